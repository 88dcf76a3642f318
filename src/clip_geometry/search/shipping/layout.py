"""The constants of a repair as JSON and arrays, and the scripts that read them."""

import re
from pathlib import Path
from typing import Any

import numpy as np

from clip_geometry.display.words import render
from clip_geometry.search.repairs import InnerProduct, Repair
from clip_geometry.search.repairs.neighborhoods import SAME
from clip_geometry.search.shipping.rows import Biased, RowMap, item_map, query_map
from clip_geometry.transforms import Affine


class Arrays:
    """The arrays behind a layout, each once, whatever uses it."""

    def __init__(self) -> None:
        self.by_name: dict[str, np.ndarray] = {}
        self._names: dict[int, str] = {}

    def view(self, view: Affine) -> dict[str, Any]:
        """Return a view in JSON: names of its arrays, and whether rows are made unit length before and after it."""
        return {
            "unit_before": view.unit_rows_in,
            "W": None if view.identity else self._name(view.W),
            "b": self._name(view.b) if view.b.any() else None,
            "unit_after": view.renormalise,
        }

    def statistic(self, biased: Biased) -> dict[str, Any]:
        """Return a statistic in JSON; k is 0 for the log sum."""
        column, view, statistic = biased
        return {
            "column": column,
            "view": view,
            "bank": self._name(statistic.bank),
            "own": statistic.own,
            "factor": statistic.factor,
            "k": statistic.neighbors,
            "beta": statistic.beta,
        }

    def _name(self, array: np.ndarray) -> str:
        if id(array) not in self._names:
            self._names[id(array)] = name = f"array{len(self._names)}"
            self.by_name[name] = array
        return self._names[id(array)]


def layout_of(repair: InnerProduct) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Return {"queries": modality → map of rows, "items": …} and the arrays that it names."""
    arrays = Arrays()

    def described(mapped: RowMap) -> dict[str, Any]:
        return {
            "views": [arrays.view(view) for view in mapped.views],
            "copies": [[v, float(weight)] for v, weight in mapped.copies],
            "constants": [float(value) for value in mapped.constants],
            "statistics": [arrays.statistic(each) for each in mapped.statistics],
            "dimensions": [mapped.d_in, mapped.d_out],
        }

    maps = {"queries": query_map, "items": item_map}
    layout = {role: {name: described(make(repair, name)) for name in repair.modalities} for role, make in maps.items()}
    return layout, arrays.by_name


def script(template: str, repair: Repair, **values: Any) -> str:
    """Return a script from its template; the name of the repair, which a file may have said, cannot become code."""
    name = re.sub(r"[^\w ,.()\[\]=→-]", "", repair.name)
    return render(Path(__file__).with_name(template), name=name, same=SAME, **values)
