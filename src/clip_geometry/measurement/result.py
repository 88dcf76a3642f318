"""The result of `measure`: numbers by name, a table for a notebook, and files."""

import html
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from clip_geometry.files import naming, write_atomically
from clip_geometry.geometry import Measure
from clip_geometry.measuring.records import as_lines
from clip_geometry.measuring.sets import named
from clip_geometry.paths import expanded
from clip_geometry.registry import InputError, did_you_mean, listed, printable, shown
from clip_geometry.report.origin import pipeline_words
from clip_geometry.report.table import SIZE_FIELDS, Line, Table, build_table
from clip_geometry.results import Record

if TYPE_CHECKING:
    import pandas
    from matplotlib.figure import Figure

NULL = "null: the same measure on an isotropic Gaussian of this n and d, through this pipeline"


class Estimate(NamedTuple):
    """One number of a measurement.

    Args:
        value: The number.
        standard_error: Its standard error, None where there is none.
        null_value: The same measure on isotropic noise of the same size, None where there is none.

    Example:
        >>> import clip_geometry as cg
        >>> cg.Estimate(0.0816, 0.0027, 0.4929)
        Estimate(value=0.0816, standard_error=0.0027, null_value=0.4929)
    """

    value: float
    standard_error: float | None
    null_value: float | None


@dataclass(frozen=True, repr=False, eq=False)
class Measurement:
    """Numbers of one or several sets, each with its standard error and its null value.

    Iteration and `len` are over the records of the numbers that could be computed; `notes` says why others could not.
    A notebook shows the table; a measure's name there tells on hover what it means.

    Args:
        records: Records of `measure`, of `read_rows` on a file of `clip-geometry measure --json`, or of `measure_sets`.

    Example:
        >>> import numpy as np, clip_geometry as cg
        >>> x = np.random.default_rng(0).normal(size=(100, 8))
        >>> result = cg.measure({"audio": x}, measures=["isoscore", "average_cosine"])
        >>> len(result), round(result["isoscore", "audio"].value, 3), result["isoscore"] == result["isoscore", "audio"]
        (2, 0.919, True)
        >>> result
        audio: 100 × 8; pipeline: normalize
        <BLANKLINE>
        measure         set    value             null
        average_cosine  audio  -0.0005 ± 0.0014  -0.0013
        isoscore        audio  0.919 ± 0.024     0.908
        <BLANKLINE>
        ±: standard error, jackknife over 20 blocks of items
        null: the same measure on an isotropic Gaussian of this n and d, through this pipeline
    """

    records: Sequence[Record]

    @property
    def notes(self) -> dict[str, str]:
        """Why a measure could not be computed, by its name; with the set where only one of several lacks it."""
        reasons: dict[str, dict[str, None]] = {}
        for record in self.records:
            if record.value is None:
                where = ", ".join(map(str, record.at.values()))
                reasons.setdefault(record.measure, {})[": ".join(filter(None, (where, record.note)))] = None
        return {name: "; ".join(several) for name, several in reasons.items()}

    @property
    def remarks(self) -> list[str]:
        """What is worth knowing of the sets: pairs that look shuffled, copies of rows."""
        return list(dict.fromkeys(remark for record in self.records for remark in record.get("remarks", ())))

    @property
    def frame(self) -> "pandas.DataFrame":
        """A row per measure and set: value, standard_error, null_value, n, d, unit, direction, title and note.

        The values of `by` are a column before the set.
        """
        import pandas as pd

        rows = []
        for record in self:
            measure = _entry(record.measure)
            place = {key: value for key, value in record.at.items() if key != "modality"}
            numbers = {key: record.get(key) for key in ("value", "standard_error", "null_value", "n", "d")}
            about = {"unit": measure.unit, "direction": measure.direction, "title": measure.title}
            place |= {"set": record.at.get("modality")}
            rows.append({"measure": record.measure, **place, **numbers, **about, "note": record.note or ""})
        frame = pd.DataFrame(rows)
        return frame.astype({key: float for key in ("value", "standard_error", "null_value") if rows})

    def __iter__(self) -> Iterator[Record]:
        return (record for record in self.records if record.value is not None)

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __getitem__(self, key: str | tuple) -> Estimate:
        """The number of a measure: `result["isoscore", "image"]`, or `result["modality_gap"]` where it has only one.

        The value of `by`, if any, is one more part of the key. Raises InputError for a key of no number or of several.
        """
        name, *places = key if isinstance(key, tuple) and key else (key,)
        of_measure = [record for record in self if record.measure == name]
        if not of_measure:
            if name in self.notes:
                raise InputError(f"{name} was not computed: {self.notes[name]}")
            known = dict.fromkeys(record.measure for record in self)
            raise InputError(f"no {shown(name)} was measured{did_you_mean(str(name), known, listed_by='.frame')}")
        found = [record for record in of_measure if all(place in record.at.values() for place in places)]
        if len(found) != 1:
            keys = (", ".join(map(repr, (name, *reversed(record.at.values())))) for record in found or of_measure)
            near = listed(f"[{each}]" for each in keys)
            raise InputError(
                f"[{', '.join(map(repr, (name, *places)))}] is {len(found) or 'none'} of the numbers; expected one of {near}"
            )
        (record,) = found
        return Estimate(record["value"], record.standard_error, record.null_value)
