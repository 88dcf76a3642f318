"""Result rows of the trainings, and statistics over their seeds."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping

import numpy as np

from clip_geometry.experiments.kit import trajectories
from clip_geometry.experiments.rudman2024.finetune.config import I_STAR, NONE, FinetuneConfig, Method
from clip_geometry.experiments.rudman2024.finetune.data import Examples
from clip_geometry.results import Row
from clip_geometry.versions import library_versions

SEED = "training.seed"  # of head, batches and dropout; a row's own `seed` is of samples and of held-out examples
ALL = "all"
PERFORMANCE = "finetune.performance"


def context(config: FinetuneConfig, validation: Examples) -> Row:
    """The fields that all rows share."""
    options = config.task.model_dump(
        mode="json", serialize_as_any=True, exclude_defaults=True, exclude={"name", "split"}
    )
    return {
        "model": config.model.model,
        "model_options": config.model.options(),
        "dataset": validation.name,
        "data_options": options,
        "split": validation.split,
        "dtype": "float32" if config.precision == "fp32" else config.precision,
        "pipeline": [],
        "fitted_on": None,
        "seed": config.seed,
        "versions": library_versions(),
    }


def performance_rows(found: Mapping[str, float | None], examples: Examples) -> Iterator[Row]:
    """A row for each metric. The task's own metric is also `finetune.performance`, so that tasks can be compared."""
    metric = next(iter(found))
    own = (PERFORMANCE, found[metric], {"metric": metric})
    for name, value, at in [own, *((f"finetune.{name}", value, {}) for name, value in found.items())]:
        row = {"measure": name, "value": value, "standard_error": None, "n": len(examples), "d": None, "at": at}
        yield row if value is not None else {**row, "note": "not defined: all predictions or all targets are equal"}


def of_training(row: Row, method: Method, seed: int) -> Row:
    return {**row, "at": {**method.at(), SEED: seed, **row["at"]}}


def pooled_rows(rows: Iterable[Row]) -> Iterator[Row]:
    """Mean over seeds of every number of each method, with its standard error; and the correlations."""
    rows = list(rows)
    groups: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        if row["value"] is not None:
            at = {key: value for key, value in row["at"].items() if key != SEED}
            groups[repr((row["measure"], at))].append(row)
    for members in groups.values():
        values = np.array([row["value"] for row in members])
        error = float(values.std(ddof=1) / len(values) ** 0.5) if len(values) > 1 else None
        first = {key: members[0][key] for key in ("measure", "n", "d")}
        at = {**members[0]["at"], SEED: ALL, "seeds": len(members)}
        yield {**first, "value": float(values.mean()), "standard_error": error, "at": at}
    yield from correlation_rows(rows)


def correlation_rows(rows: Iterable[Row]) -> Iterator[Row]:
    """Correlations of IsoScore (all layers) and performance over the trainings with any λ of I-STAR, including 0."""
    found: dict[tuple[float, int], dict[str, float]] = defaultdict(dict)
    for row in rows:
        at = row["at"]
        wanted = row["measure"] == PERFORMANCE or (row["measure"] == "isoscore" and at.get("rows") == "tokens")
        if wanted and row["value"] is not None and at.get(SEED) not in (None, ALL) and at["method"] in (I_STAR, NONE):
            found[at["lambda"], at[SEED]][row["measure"]] = row["value"]
    pairs = [(each["isoscore"], each[PERFORMANCE]) for each in found.values() if len(each) == 2]
    x, y = np.array(pairs, dtype=float).reshape(-1, 2).T
    at = {"method": I_STAR, SEED: ALL, "of": "isoscore", "with": PERFORMANCE}
    yield from trajectories.correlation_rows("finetune", x, y, d=None, at=at)
