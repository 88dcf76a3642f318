"""From trainings to result rows, and what is taken over their seeds."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from clip_geometry.experiments.rudman2024.finetune.config import I_STAR, NONE, FinetuneConfig, Method
from clip_geometry.experiments.rudman2024.finetune.data import Examples
from clip_geometry.results import Row
from clip_geometry.versions import library_versions

SEED = "training.seed"  # of head, batches and dropout; a row's own `seed` is that of samples and of what is held out
ALL = "all"
PERFORMANCE = "finetune.performance"


def context(config: FinetuneConfig, validation: Examples) -> Row:
    """What all rows have in common."""
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
    """The task's own number as `finetune.performance` too, so that tasks can be set beside each other."""
    metric = next(iter(found))
    for name, value, at in [
        (PERFORMANCE, found[metric], {"metric": metric}),
        *((f"finetune.{n}", v, {}) for n, v in found.items()),
    ]:
        row = {"measure": name, "value": value, "standard_error": None, "n": len(examples), "d": None, "at": at}
        yield row if value is not None else {**row, "note": "not defined: all predictions or all targets are equal"}


def of_training(row: Row, method: Method, seed: int) -> Row:
    return {**row, "at": {**method.at(), SEED: seed, **row["at"]}}


def pooled_rows(rows: Iterable[Row]) -> Iterator[Row]:
    """Of each method: the mean over seeds of all its numbers, with its standard error; and the correlations."""
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
    """Of IsoScore (all layers) and performance over the trainings with any λ of I-STAR, 0 among them."""
    from clip_geometry.experiments.mickus2024.classify.numbers import correlations

    pairs = [pair for method, pair in relation(rows) if method["method"] in (I_STAR, NONE)]
    x, y = np.array(pairs, dtype=float).reshape(-1, 2).T
    found = dict(correlations(x, y))
    for name in ("pearson", "spearman"):
        value = found[f"classify.{name}"]
        at = {"method": I_STAR, SEED: ALL, "of": "isoscore", "with": PERFORMANCE}
        row = {"measure": f"finetune.{name}", "value": value, "standard_error": None, "n": len(x), "d": None, "at": at}
        yield row if value is not None else {**row, "note": "one of them is constant or not defined"}


def relation(rows: Iterable[Row]) -> list[tuple[dict[str, Any], tuple[float, float]]]:
    """(method, (IsoScore of all layers, performance)) of each training in which both are defined."""
    found: dict[str, dict[str, float]] = defaultdict(dict)
    methods: dict[str, dict[str, Any]] = {}
    for row in rows:
        if row["value"] is None or row["at"].get(SEED) in (None, ALL):
            continue
        wanted = row["measure"] == PERFORMANCE or (row["measure"] == "isoscore" and row["at"].get("rows") == "tokens")
        if wanted:
            method = {key: row["at"][key] for key in ("method", "lambda", "components") if key in row["at"]}
            key = repr((method, row["at"][SEED]))
            methods[key] = method
            found[key][row["measure"]] = row["value"]
    return [(methods[key], (each["isoscore"], each[PERFORMANCE])) for key, each in found.items() if len(each) == 2]
