"""Comparison of records: the change of each number, with a paired standard error if the items are the same."""

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from scipy.stats import binomtest

from clip_geometry.display.explained import explain, title_of
from clip_geometry.display.numbers import MISSING, in_ascii, plus_minus, to_error, with_error
from clip_geometry.display.origin import heading, letter, words
from clip_geometry.display.table import Cell, Table, TableColumn, bibtex, latex
from clip_geometry.evaluate.base import Z
from clip_geometry.geometry import measures
from clip_geometry.geometry.uncertainty import jackknife
from clip_geometry.io.sources import by_suffix
from clip_geometry.measuring.given import given_sets
from clip_geometry.measuring.records import DEFAULT_STEPS, measure
from clip_geometry.paths import existing
from clip_geometry.registry import InputError, instance, listed, shown
from clip_geometry.results import ORIGIN, Record, read_rows
from clip_geometry.rows.arguments import seed_number, whole_number
from clip_geometry.steps import transforms

if TYPE_CHECKING:
    import pandas

FLIPS = 9999
LEVEL = 0.05  # significance level: a change with a larger or equal p is a tie
RAW = "raw"  # name of the empty pipeline
_OF_ONE_SEED = ("note", "trajectory", "seed", "scaling", "expected", "low", "high", "by_item")
ROUNDING = 1e-9  # relative; smaller changes count as equal


@dataclass(frozen=True)
class Column:
    """The records of one origin, by measure and place.

    `origin` holds the fields of `ORIGIN` of its records, without the seed if there are several. `seeds` are the seeds
    over which its values are averaged, if there are several.
    """

    name: str
    origin: Mapping[str, Any]
    records: Mapping[tuple[str, str], Record]
    seeds: tuple[Any, ...] = ()

    @property
    def saw(self) -> str:
        """Warning that the column was, or may have been, fitted on the items that it is measured on; otherwise ""."""
        steps = [str(step).partition("[")[0].partition("(")[0] for step in self.origin.get("pipeline") or ()]
        learned = dict.fromkeys(step for step in steps if step in transforms and transforms[step].fits)
        if learned and self.origin.get("fitted_on"):
            return (
                f"saw these items: {', '.join(learned)} {'was' if len(learned) == 1 else 'were'} fitted on them, so "
                "new items can score lower; to evaluate on unseen items, fit on other items and apply to these"
            )
        if maps := self.origin.get("maps"):
            return f"went through a saved map ({maps}); if that was fitted on these items, new items can score lower"
        return ""


@dataclass(frozen=True)
class Change:
    """The change Δ = after − before of one number from the first compared column to another one.

    Args:
        measure: Name of the measure.
        place: Where the number was measured: the set or the pair of sets, and all other keys of `Record.at`, such as
            the layer.
        before: The record in the first column, or None if there is none.
        after: The record in the other column, or None if there is none.
        value: Δ; None if the two numbers cannot be compared.
        standard_error: Standard error of Δ; None if a standard error is missing.
        low, high: 95% interval of Δ if both numbers have an interval, as recall does; otherwise None.
        p_value: Two-sided p-value of the hypothesis Δ = 0.
        paired: Whether the standard error is that of the differences of paired items, instead of two independent
            samples.
        assumed: Whether the items of both columns are only assumed to be the same, because they have equally many rows
            but no ids.
        obstacle: Why the two numbers cannot be compared, and what to do about it; "" if they can.

    Example:
        >>> from clip_geometry import Record, compare
        >>> a, b = (Record("isoscore", value, 0.01, at={"modality": "image"}) for value in (0.2, 0.5))
        >>> (change,) = compare([a], [b]).changes[0]
        >>> round(change.value, 3), round(change.standard_error, 4), change.paired, change.verdict
        (0.3, 0.0141, False, 'higher')
    """

    measure: str
    place: str
    before: Record | None
    after: Record | None
    value: float | None = None
    standard_error: float | None = None
    p_value: float | None = None
    paired: bool = False
    obstacle: str = ""
    low: float | None = None
    high: float | None = None
    assumed: bool = False

    @property
    def error(self) -> Literal["paired", "by position", "independent", ""]:
        """How items enter the standard error: "paired", "by position" or "independent"; "" if there is none."""
        if self.standard_error is None:
            return ""
        if self.assumed:
            return "by position"
        return "paired" if self.paired else "independent"

    @property
    def verdict(self) -> Literal["higher", "lower", "tie", "equal", "not compared", "no error"]:
        """The sign of Δ as a word.

        "tie" means that p is not below 0.05, "equal" that nothing changes beyond rounding, and "no error" that Δ has no
        standard error.
        """
        if self.value is None or self.before is None or self.after is None:
            return "not compared"
        rounding = ROUNDING * max(abs(float(record.value or 0)) for record in (self.before, self.after))
        if abs(self.value) <= rounding and (self.standard_error or 0) <= rounding:
            return "equal"
        if self.standard_error is None:
            return "no error"
        if self.p_value is None or self.p_value >= LEVEL:
            return "tie"
        return "higher" if self.value > 0 else "lower"

    @property
    def effect(self) -> Literal["better", "worse", ""]:
        """Whether the change makes the embeddings better or worse to use; "" for ties and for purely descriptive
        measures."""
        measure = measures.get(self.measure)
        if measure is None or measure.better is None or self.verdict not in ("higher", "lower"):
            return ""
        return "better" if self.verdict == measure.better else "worse"


@dataclass(frozen=True, repr=False)
class Comparison:
    """Result of `compare`: the changes of all numbers from the first column to each other column.

    A column holds the records of one operand. Displayed as the table that `clip-geometry compare` prints.

    Args:
        columns: The compared columns. The first is the one with which all others are compared.
        changes: For each other column, a list with one `Change` for every number that it or the first column has.
        flips: Number of random sign flips from which the p-values of paired changes are computed.
        seed: Seed of the sign flips.

    Example:
        >>> from clip_geometry import Record, compare
        >>> a, b = (Record("isoscore", value, 0.01, at={"modality": "image"}) for value in (0.2, 0.5))
        >>> compare([a], [b]).frame[["measure", "set", "before", "after", "error"]]
            measure    set  before  after        error
        0  isoscore  image     0.2    0.5  independent
        >>> compare([a], [b], names=["old", "new"])
        A = old
        B = new
        <BLANKLINE>
        no measure here says whether B is better than A: all of them describe the geometry
        <BLANKLINE>
        measure   set        A      B          B - A        p
        isoscore  image  0.200  0.500  0.300 ± 0.014  <0.0001
        <BLANKLINE>
        independent: not the same items in the same blocks; standard errors of two samples, p of the normal
        distribution
    """

    columns: tuple[Column, ...]
    changes: tuple[tuple[Change, ...], ...]
    flips: int
    seed: int

    @property
    def table(self) -> Table:
        """The compared columns, and a table of the changes of each column but the first."""
        return comparison_table(self)

    @property
    def _measures(self) -> list[str]:
        return list(dict.fromkeys(change.measure for changes in self.changes for change in changes))

    def to_json(self) -> str:
        """Return the changes as JSON, with all digits."""
        content = {"flips": self.flips, "seed": self.seed, "changes": self.rows()}
        return json.dumps(content, indent=1, ensure_ascii=False) + "\n"

    def __repr__(self) -> str:
        return str(self.table)

    def _repr_html_(self) -> str:
        return self.table.html()

    def to_bibtex(self) -> str:
        """Return the BibTeX entries that `to_latex` cites."""
        return bibtex(self._measures)

    def to_latex(self) -> str:
        """Return a LaTeX table for each column but the first: both values with their errors, the change and p."""
        first, *others = self.columns
        table = self.table
        tables = []
        for number, (column, changes) in enumerate(zip(others, table.more, strict=True), start=1):
            b = letter(number)
            compared = f"{first.name} (A) and {column.name} ({b}), each with its own standard error or 95% interval"
            label = f"tab:compare-a-{b.lower()}"
            tables.append(latex(changes, label=label, measures=self._measures, caption=[compared, *table.legend]))
        return "\n".join(tables)

    @property
    def frame(self) -> "pandas.DataFrame":
        """Table with one row per number and column, for each column but the first."""
        import pandas as pd

        return pd.DataFrame(self.rows())

    def rows(self) -> list[dict[str, Any]]:
        """Return the rows of `frame` as dictionaries."""
        rows = []
        for column, changes in zip(self.columns[1:], self.changes, strict=True):
            for change in changes:
                before, after = change.before or {}, change.after or {}
                row = {"measure": change.measure, "set": change.place, "from": self.columns[0].name, "to": column.name}
                row |= {"before": before.get("value"), "before_error": before.get("standard_error")}
                row |= {"after": after.get("value"), "after_error": after.get("standard_error"), "change": change.value}
                keys = ("standard_error", "low", "high", "p_value", "error", "verdict", "effect", "obstacle")
                rows.append(row | {key: getattr(change, key) for key in keys})
        return rows


def compare(
    *operands: Any,
    names: Sequence[str] | None = None,
    pipelines: str | Sequence[str] = (),
    measures: str | Sequence[str] | None = None,
    labels: Any = None,
    blocks: int | None = None,
    flips: int = FLIPS,
    seed: int = 0,
) -> Comparison:
    """Compare embeddings, runs or measurements with the first one, as `clip-geometry compare` does.

    Each operand becomes a column of numbers; embeddings are measured first, as by `measure`. The result contains, for
    every number, the change Δ from the first column to each other column, with its standard error and p-value.

    **Paired numbers.** If both columns were measured on the same items, Δ has a paired standard error: the jackknife
    over the values of Δ without each block of items. It is much smaller than the error of independent samples if the
    items affect both numbers in the same way. The p-value comes from random sign flips of the blocks' pseudo-values Δ −
    (g − 1)(Δ_b − mean Δ_b), where Δ_b is Δ without block b: p = (1 + number of flips with a mean at least as large)/(1
    + flips). With g blocks there are only 2^g different flips, so p cannot be much below 2/2^g; with five blocks it
    never reaches 0.05.

    Items count as the same if their ids agree or, without ids, if their rows before the pipeline agree. Sets with
    equally many rows and no ids are assumed to have the same items in the same order, and `Change.assumed` says so. If
    the assumption is wrong, the errors and p-values remain valid, because the blocks of both sets are then independent.

    **Independent numbers.** Otherwise SE(Δ)² = SE_A² + SE_B², and p comes from the normal distribution. If the items
    are in fact the same, this standard error is usually too large.

    **Shares of queries,** such as recall, have an interval for Δ, computed from both intervals and the correlation of
    the items (Newcombe 1998). For paired items, p is that of McNemar's exact test; if items have several queries each,
    signs are flipped as above.

    Δ ± 1.96 SE contains the true Δ in 93.5% of cases with 20 blocks, and in 94.3% with 40. Numbers that depend on n are
    compared only at equal n, and variants of a measure only with the same variant. Records of one operand that differ
    only in the seed are averaged; their standard error is that of the mean over seeds, paired if both columns have the
    same seeds. If a step of the pipeline was fitted on the measured items, a note in the table says so.

    Args:
        operands: Paths, sets or records. A path contains embeddings as for `read`, or records: a run folder, or a file
            of `clip-geometry measure --json`. Sets are anything that `measure` accepts as its first argument: an array,
            a mapping of modality → set, or `Embeddings`. Records are a `Measurement` or the output of `read_rows` or
            `measure_sets`; records of several origins (a sweep) become several columns.
        names: A name for each operand. Default: its path, or its letter.
        pipelines: Steps before measuring: one pipeline for all operands, or a list with one for each. With a single
            operand, the columns are its pipelines; a single pipeline is then compared with the default, which scales
            rows to unit length. "raw" is the empty pipeline. Pipelines do not apply to records.
        measures: Names of measures for embeddings, as for `measure`. Default: the core measures.
        labels: Labels of embeddings, as for `measure`.
        blocks: Number of jackknife blocks for embeddings, as for `measure`.
        flips: Number of random sign flips.
        seed: Seed of the flips, and of the blocks and null values of embeddings.

    Returns:
        A `Comparison`, which is displayed as a table. `changes` and the pandas table `frame` hold the numbers.

    Raises:
        InputError: There are fewer than two columns, an operand is of another type, or options for embeddings were
            given with records.

    Example:
        >>> import numpy as np, clip_geometry as cg
        >>> x = np.random.default_rng(0).normal(size=(200, 8)) + 0.5
        >>> pipelines = ["normalize", "normalize,center"]
        >>> comparison = cg.compare({"image": x}, pipelines=pipelines, measures=["average_cosine"])
        >>> ((change,),) = comparison.changes
        >>> change.paired, change.verdict, round(change.value, 3), round(change.standard_error, 3)
        (True, 'lower', -0.195, 0.019)
    """
    seed = seed_number(seed)
    flips = whole_number(flips, "flips")
    if not operands:
        raise InputError("nothing was given to compare; expected at least two sets, runs or measurements")
    instance(names, Sequence | None, "names", "a list of names")
    instance(pipelines, str | Iterable, "pipelines", "one or several pipelines")
    pipelines = [pipelines] if isinstance(pipelines, str) else list(pipelines)
    operands = tuple(list(operand) if isinstance(operand, Iterator) else operand for operand in operands)
    records_of_operands = [_records(operand) for operand in operands]
    if len(operands) == 1 and not pipelines and records_of_operands[0] is None:
        raise InputError(
            "one set of embeddings was given; expected at least one more, or several pipelines to compare on it"
        )
    if len(operands) == len(pipelines) == 1:
        pipelines = [DEFAULT_STEPS, *pipelines]
    if len(pipelines) > 1 and len(operands) not in (1, len(pipelines)):
        raise InputError(
            f"{len(pipelines)} pipelines and {len(operands)} operands were given; give one of each per column"
        )
    options = {"pipelines": pipelines, "measures": measures, "labels": labels, "blocks": blocks}
    unused = [option for option, value in options.items() if value not in (None, [])]
    results: list[tuple[str, Sequence[Record]]] = []
    for number, (operand, records) in enumerate(zip(operands, records_of_operands, strict=True)):
        name = str(operand) if isinstance(operand, str | Path) else letter(number)
        name = names[number] if names else name
        if records is not None:
            if unused:
                raise InputError(
                    f"{shown(Path(name))} holds records, which are compared as they are; leave out {listed(unused)}, "
                    "which apply only to embeddings"
                )
            results.append((name, records))
            continue
        sets = given_sets(operand, labels=labels)
        own_pipelines = pipelines[number : number + 1] if 1 < len(pipelines) == len(operands) else pipelines
        for steps in own_pipelines or [DEFAULT_STEPS]:
            steps = "" if steps == RAW else steps
            measured = measure(sets, pipeline=steps, measures=measures, seed=seed, blocks=blocks)
            results.append((name, measured.records))
    places = [{record.at["modality"] for record in records if "modality" in record.at} for _, records in results]
    # if each operand has one set, which is named after its file, the sets are compared under a common name
    single_sets = all(len(names) == 1 for names in places) and len(set.union(*places)) > 1
    columns: list[Column] = []
    for name, records in results:
        columns += columns_of(records, name, "rows" if single_sets else None)
    if len(columns) < 2:
        raise InputError(f"{len(columns) or 'no'} run was given; compare needs at least two")
    changes = tuple(tuple(_changes(columns[0], other, flips, seed)) for other in columns[1:])
    return Comparison(_with_origins(columns), changes, flips, seed)


def _records(operand: Any) -> list[Record] | None:
    """Return the records of an operand, or None for embeddings."""
    if isinstance(operand, str | Path):
        path = existing(operand, "embeddings, a run folder or a file of measure --json")
        has_records = (path / "results.jsonl").exists() if path.is_dir() else path.suffix.lower() not in by_suffix()
        return read_rows(path) if has_records else None
    if isinstance(operand, Mapping) or not isinstance(operand, Iterable):
        return None
    return [Record.of(row) for row in operand] if isinstance(next(iter(operand), {}), Mapping) else None


def _with_origins(columns: Sequence[Column]) -> tuple[Column, ...]:
    """Return the columns with names that also show how their models, data or seeds differ."""
    records = [next(iter(column.records.values())) for column in columns]  # the first of each column
    varying = []
    for field in ORIGIN:
        if field != "fitted_on" and len({words(record, field) for record in records}) > 1:
            varying.append(field)
    named = []
    for column, record in zip(columns, records, strict=True):
        parts = [column.name, heading(record, [field for field in varying if field != "seed" or not column.seeds])]
        parts += [f"mean over {len(column.seeds)} seeds"] if column.seeds else []
        named.append(replace(column, name=" · ".join(dict.fromkeys(filter(None, parts)))))
    return tuple(named)


def columns_of(records: Iterable[Record], name: str, only: str | None = None) -> list[Column]:
    """Return a column for each origin; origins that differ only in the seed share a column.

    `only` is the name of the set if there is a single one.
    """
    origins: dict[str, dict[str, Any]] = {}
    runs: dict[str, dict[Any, dict[tuple[str, str], Record]]] = {}  # origin → seed → measure and place → record
    for record in records:
        place = [only or str(record.at.get("modality", ""))]
        place += [f"{key}={value}" for key, value in record.at.items() if key != "modality"]
        origin = {key: record.get(key) for key in ORIGIN if key != "seed"}
        origins[repr(origin)] = origin
        runs.setdefault(repr(origin), {}).setdefault(record.seed, {})[record.measure, " ".join(place).strip()] = record
    columns = []
    for key, seeds in runs.items():
        if len(seeds) == 1:
            ((seed, of_seed),) = seeds.items()
            columns.append(Column(name, {**origins[key], "seed": seed}, of_seed))
            continue
        by_line: dict[tuple[str, str], list[Record]] = {}
        for of_seed in seeds.values():
            for line, record in of_seed.items():
                by_line.setdefault(line, []).append(record)
        means = {line: _over_seeds(several) for line, several in by_line.items()}
        columns.append(Column(name, origins[key], means, tuple(seeds)))
    return columns


def _over_seeds(records: Sequence[Record]) -> Record:
    """Return the mean over k seeds, whose standard error sd/√k is the jackknife over the seeds."""
    records = [record for record in records if record.value is not None] or list(records[:1])
    values = [float(record.value) for record in records if record.value is not None]
    k = len(records)
    if k < 2:
        return records[0]
    without = [(sum(values) - value) / (k - 1) for value in values]
    shared = {key: value for key, value in records[0].items() if key not in _OF_ONE_SEED}
    return Record.of(
        {
            **shared,
            "value": math.fsum(values) / k,
            "standard_error": jackknife(without),
            "sd": float(np.std(values, ddof=1)),
            "without": without,
            "item_blocks": f"seeds {[record.seed for record in records]}",
        }
    )


def _changes(first: Column, other: Column, flips: int, seed: int) -> Iterable[Change]:
    """Yield the changes in the order of the first column, then the numbers that only the other column has."""
    for name, place in dict.fromkeys([*first.records, *other.records]):
        before, after = first.records.get((name, place)), other.records.get((name, place))
        change = Change(name, place, before, after)
        measure = measures.get(name)
        has_values = _has_value(before), _has_value(after)
        if before is None or after is None or not all(has_values):
            if any(has_values):
                record, lacking = (after, other) if has_values[0] else (before, first)
                reason = (record.note if record else None) or f"not measured in {lacking.name}"
                yield replace(change, obstacle=reason)
        elif measure is not None and measure.depends_on_n and before.n != after.n:
            reason = f"depends on n, which is {before.n} and {after.n}; measure equally many rows of both"
            yield replace(change, obstacle=reason)
        else:
            value = float(after["value"]) - float(before["value"])
            yield replace(change, value=value, **_error_and_p(value, before, after, flips, seed))


def _error_and_p(value: float, before: Record, after: Record, flips: int, seed: int) -> dict[str, Any]:
    """Return the standard error of the difference and its p-value, as fields of a `Change`.

    The test is paired if both records were measured on the same items, otherwise it is for two samples.
    """
    same_items = bool(before.item_blocks) and before.item_blocks == after.item_blocks
    by_position = same_items and before.items_from != after.items_from
    if before.low is not None and after.low is not None:
        items_before, items_after = np.array(before.by_item or ()), np.array(after.by_item or ())
        paired = same_items and len(items_before) == len(items_after) > 0
        low, high = _newcombe(before, after, _correlation(items_before, items_after) if paired else 0.0)
        error = (high - low) / (2 * Z)
        p = _mcnemar(items_after - items_before, flips, seed) if paired else _normal_p(value, error)
        interval = {"low": low, "high": high, "assumed": by_position and paired}
        return {"standard_error": error, "p_value": p, "paired": paired, **interval}
    if before.without and after.without and same_items:
        without = np.subtract(after.without, before.without)
        p = 1.0
        scale = max(abs(float(before["value"])), abs(float(after["value"])))
        if abs(value) > ROUNDING * scale:  # smaller changes are rounding error
            p = _p_of_flips(value - (len(without) - 1) * (without - without.mean()), value, flips, seed)
        return {"standard_error": jackknife(without.tolist()), "p_value": p, "paired": True, "assumed": by_position}
    if before.standard_error is None or after.standard_error is None:
        return {}
    error = math.hypot(before.standard_error, after.standard_error)
    return {"standard_error": error, "p_value": _normal_p(value, error)}


def _normal_p(value: float, error: float) -> float:
    return math.erfc(abs(value) / error / math.sqrt(2)) if error else float(value == 0)


def _newcombe(before: Record, after: Record, correlation: float) -> tuple[float, float]:
    """Return the interval of the difference of two shares from both intervals, by method 10 of Newcombe 1998."""
    a, low_a, high_a = (float(before[key]) for key in ("value", "low", "high"))
    b, low_b, high_b = (float(after[key]) for key in ("value", "low", "high"))

    def margin(one: float, other: float) -> float:
        return math.sqrt(max(one**2 + other**2 - 2 * correlation * one * other, 0.0))

    return b - a - margin(b - low_b, high_a - a), b - a + margin(high_b - b, a - low_a)


def _correlation(before: np.ndarray, after: np.ndarray) -> float:
    before, after = before - before.mean(), after - after.mean()
    scale = math.sqrt(before @ before * (after @ after))
    return float(before @ after) / scale if scale else 0.0


def _mcnemar(differences: np.ndarray, flips: int, seed: int) -> float:
    """Return p of McNemar's exact test for one right or wrong query per item; otherwise use random sign flips."""
    changed = differences[differences != 0]
    if not len(changed):
        return 1.0
    if np.isin(changed, (-1, 1)).all():
        return float(binomtest(int((changed > 0).sum()), len(changed)).pvalue)
    return _p_of_flips(changed, changed.mean(), flips, seed)


def _p_of_flips(blocks: np.ndarray, mean: float, flips: int, seed: int) -> float:
    """Return the share of random sign flips with a mean at least as large."""
    generator = np.random.default_rng(seed)
    larger = 0
    for start in range(0, flips, 512):  # in batches, because many items have many signs
        signs = 2 * generator.integers(0, 2, (min(512, flips - start), len(blocks)), dtype=np.int8) - 1
        larger += int((np.abs(signs @ blocks) >= abs(mean) * len(blocks) * (1 - ROUNDING)).sum())
    return (1 + larger) / (1 + flips)


def comparison_table(comparison: Comparison) -> Table:
    """Return the compared columns, followed by a table of the changes of each column but the first."""
    letters = [letter(k) for k in range(len(comparison.columns))]
    definitions = []
    for a, column in zip(letters, comparison.columns, strict=True):
        name = column.name.removeprefix(f"{a} · ")
        if name != a:
            definitions.append(f"{a} = {name}")
    a, first = letters[0], comparison.columns[0]
    tables = []
    for b, column, changes in zip(letters[1:], comparison.columns[1:], comparison.changes, strict=True):
        verdict = list(_verdict(changes, a, b))
        verdict += [f"{name} {compared.saw}" for name, compared in ((a, first), (b, column)) if compared.saw]
        valued = [change for change in changes if _has_value(change.before) and _has_value(change.after)]
        columns = [*map(TableColumn, ("measure", "set"))]
        columns += [TableColumn(name, "number") for name in (a, b, f"{b} − {a}", "p")]
        rows = [_cells_of(change) for change in valued]
        if len({change.error for change in valued} - {""}) > 1:
            columns.append(TableColumn("error", spare=1))
            rows = [[*row, change.error] for row, change in zip(rows, valued, strict=True)]
        tables.append(Table(columns, {"": rows}, verdict=verdict, legend=[] if valued else ["no numbers"]))
    return Table(heading=definitions, more=tables, legend=list(_legend(comparison)), notes=list(_notes(comparison)))


def _verdict(changes: Sequence[Change], a: str, b: str) -> Iterator[str]:
    """Say what improved and what got worse, for measures that have a better direction."""
    directed = []  # changes of measures that have a better direction
    for change in changes:
        measure = measures.get(change.measure)
        if measure is not None and measure.better:
            directed.append(change)
    for effect in ("better", "worse"):
        entries = []
        for change in directed:
            if change.effect == effect:
                records = [record for record in (change.before, change.after) if record]
                values = " → ".join(in_ascii(float(record["value"])) for record in records)
                entries.append(f"{_name(change)} ({values})")
        if entries:
            yield f"{effect} in {b} than in {a}: {', '.join(entries)}"
    if unsure := [_name(change) for change in directed if change.verdict == "no error"]:
        yield f"changed, but there is no standard error to judge the change by: {', '.join(unsure)}"
    if ties := [_name(change) for change in directed if change.verdict in ("tie", "equal")]:
        yield f"no measurable difference between {a} and {b}: {', '.join(ties)}"
    if not directed:
        yield f"no measure here says whether {b} is better than {a}: all of them describe the geometry"


def _name(change: Change) -> str:
    return change.measure if change.place in ("both", "") else f"{change.measure} {change.place}"


def _has_value(record: Record | None) -> bool:
    return record is not None and record.value is not None


def _cells_of(change: Change) -> list[str]:
    """Return the cells: measure, set, both values, Δ ± SE or Δ [low, high], and p or the verdict."""
    explanation = explain(change.measure)
    unit = f" ({explanation.unit})" if explanation is not None and explanation.unit else ""
    measure = Cell(change.measure, full=title_of(change.measure, explanation) + unit)
    records = [record for record in (change.before, change.after) if record is not None]
    values = [_value(record, change.standard_error) for record in records]
    if change.value is None:
        return [measure, change.place, *values, MISSING, "not compared"]
    if change.verdict == "equal":
        return [measure, change.place, *values, "0", "equal"]
    row = {"value": change.value, "standard_error": change.standard_error, "low": change.low, "high": change.high}
    p = MISSING
    if change.verdict == "tie":
        p = "tie"
    elif change.p_value is not None:
        p = f"{change.p_value:.4f}" if change.p_value >= 1e-4 else "<0.0001"
    return [measure, change.place, *values, with_error(row), p]


def _value(record: Record, error: float | None) -> str:
    """Format a value with the decimals of the change; in LaTeX, with its own standard error or interval."""
    if record.get("sd") is not None:
        return plus_minus(record["value"], record["sd"])
    text = in_ascii(float(record["value"])) if error is None else to_error(record["value"], error)
    return Cell(text, full=with_error(record))


def _legend(comparison: Comparison) -> Iterator[str]:
    """Explain the columns and signs."""
    changes = list(chain.from_iterable(comparison.changes))
    same_items = [change for change in changes if change.error in ("paired", "by position")]
    blocks = set()
    for change in same_items:
        if change.low is None and change.before and change.before.without:
            blocks.add(len(change.before.without))
    if blocks:
        counts = " or ".join(map(str, sorted(blocks)))
        yield (
            f"±: paired standard error of the difference, jackknife over the same {counts} blocks of items or seeds; "
            f"p by {comparison.flips} sign flips of the blocks, seed {comparison.seed}"
        )
        if 2 / 2 ** min(blocks) > LEVEL:
            yield f"p is at least {2 / 2 ** min(blocks):.3g} with {min(blocks)} blocks, so every change is a tie"
    if any(change.low is not None for change in same_items):
        yield (
            "[ ]: 95% interval of the difference of two shares (Newcombe); p by McNemar's test of the same queries, or "
            f"by {comparison.flips} sign flips of the items if a query can be partly right"
        )
    if any(change.error == "independent" for change in changes):
        yield (
            "independent: not the same items in the same blocks; standard errors of two samples, p of the normal "
            "distribution"
        )
    if any(change.verdict == "tie" for change in changes):
        yield "tie: p is 0.05 or more; of 20 numbers that did not change, one is called changed by chance"
    if any(column.seeds for column in comparison.columns):
        yield "values of several seeds are mean ± standard deviation"


def _notes(comparison: Comparison) -> Iterator[str]:
    """Say what the standard errors assume, and which numbers were not compared and why."""
    changes = list(chain.from_iterable(comparison.changes))
    if any(change.error == "by position" for change in changes):
        yield (
            "the items have no ids: row i of one column is assumed to be the same item as row i of the other, as in "
            "the same data embedded twice; if not, the standard errors are those of independent samples and still valid"
        )
    if any(change.verdict == "no error" for change in changes):
        yield (
            "no ±: no standard errors were computed (--blocks 0), the measure has none that can be trusted, or there "
            "are too many or too few rows for one"
        )
    obstacles: dict[str, dict[str, None]] = {}
    for change in changes:
        if change.obstacle:
            obstacles.setdefault(change.obstacle, {})[_name(change)] = None
    yield from (f"not compared: {', '.join(names)}: {obstacle}" for obstacle, names in obstacles.items())
