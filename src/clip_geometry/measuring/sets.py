"""Numbers of sets: each measure in every place, with its standard error and its null value."""

import math
import operator
import warnings
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from clip_geometry.config import digest
from clip_geometry.embeddings import Embeddings, is_large
from clip_geometry.evaluate import ensemble
from clip_geometry.evaluate.base import Share
from clip_geometry.geometry import Measure
from clip_geometry.geometry.statistics import BlockedRows, Moments, Statistic
from clip_geometry.geometry.uncertainty import BLOCKS, jackknife
from clip_geometry.measuring.views import Items, View, context, is_prompts
from clip_geometry.memory import can_be_held, give_back, memory
from clip_geometry.progress import PassProgress
from clip_geometry.registry import InputError, instance, shown
from clip_geometry.results import Row
from clip_geometry.rows.arguments import seed_number, whole_number
from clip_geometry.rows.matrix import BLOCK, as_matrix, as_rows
from clip_geometry.rows.streamed import StreamedRows, gaussian_rows, release, taken
from clip_geometry.search.checks.remarks import remarks_on
from clip_geometry.steps import Step, parse_pipeline

if TYPE_CHECKING:
    from clip_geometry.embedding.engines import Engine

# with more rows, O(n²) measures get no standard error, and sums replace the rows without each block
QUADRATIC_ROWS = 4000
# limit for cached rows without each block, which would otherwise be transformed again for every measure
KEPT_BYTES = 2**30


class NoSuchNumber(InputError):
    """Raised if the evaluator has no such number for these sets, such as a top-5 accuracy for three classes."""


class MeasuredSets(View):
    """Embeddings of one or several modalities after a pipeline, ready to be measured.

    `measure` builds it for you; use it to measure the same sets several times. Measures across modalities are computed
    for every pair of sets. Measures that come from the same function, such as I1 and I2, share one call of it.

    Sets that take more than `embeddings.LARGE` bytes in float64 are streamed: every pass reads them from disk block by
    block. Standard errors then exist only for measures that can be computed from moments and sums, and only if no step
    of the pipeline is fitted. For a measure that needs all rows at once, the rows are read into memory if they take at
    most `memory.MOST_HELD` bytes.

    Args:
        sets: Maps modality → `Embeddings`.
        steps: The pipeline, as returned by `parse_pipeline`.
        seed: Seed of the Gaussian rows behind the null values, and of the assignment to blocks.
        blocks: Number of jackknife blocks for the standard errors; 0 computes none.
        name: Label for progress messages, shown next to the modality.
        engine: Engine from `open_engine`. It streams the sets, whatever their size, and runs the passes over their
            rows.
        in_memory: Keep the sets in memory, whatever their size.

    Raises:
        InputError: The sets cannot be measured: a set has fewer than two rows, or contains NaN or infinity.

    Example:
        >>> import numpy as np, clip_geometry as cg
        >>> image, text = np.random.default_rng(0).normal(size=(2, 100, 8))
        >>> sets = {"image": cg.Embeddings(image, "image"), "text": cg.Embeddings(text + 1, "text")}
        >>> measured = cg.MeasuredSets(sets, cg.transforms.parse_pipeline("normalize"))
        >>> round(measured.value(cg.geometry.measures["modality_gap"], "both"), 3)
        0.759
    """

    def __init__(
        self,
        sets: Mapping[str, Embeddings],
        steps: Sequence[Step],
        *,
        seed: int = 0,
        blocks: int = BLOCKS,
        name: str = "",
        engine: "Engine | None" = None,
        in_memory: bool = False,
    ):
        for modality, embeddings in instance(sets, Mapping, "sets", "a mapping of modality → Embeddings").items():
            instance(embeddings, Embeddings, f"sets[{modality!r}]", "Embeddings")
        if engine is not None and not hasattr(engine, "spent"):
            raise InputError(f"engine is {shown(engine)}; expected an engine from open_engine")
        self.steps = parse_pipeline(steps)
        self.seed = seed_number(seed)
        self.blocks = whole_number(blocks, "blocks", least=0)
        self.engine = engine
        self.in_memory = in_memory
        large = is_large(*(embeddings.vectors.shape for embeddings in sets.values()))
        self.streamed = not in_memory and (large or engine is not None)
        self._raw = stream(sets, name, engine) if self.streamed else None
        if not self.streamed:
            for modality, embeddings in sets.items():
                as_rows(embeddings.vectors, name=modality)
        super().__init__(sets, self._raw, self.steps)
        for embeddings in sets.values():
            release(embeddings.vectors)
        self.items = Items(sets, blocks=blocks, seed=seed)
        self.learns = any(step.fits for step in self.steps)
        self._many_rows = not self.streamed and max(map(len, self.rows.values())) > QUADRATIC_ROWS
        self._from_sums = self.streamed or self._many_rows  # whether sums replace the rows without each block
        # whether measures can run in parallel threads; fitting without each block suppresses warnings, which are not
        # per thread
        self.small = not self._from_sums and not (self.learns and blocks > 1)
        # results by call (see `call_of`) and place
        self._results: dict[Any, Any] = {}
        self._results_without_blocks: dict[Any, list[Any]] = {}
        self._shares: dict[Any, Mapping[str, Share]] = {}
        # objects that several calls share
        self._statistics: dict[tuple[type[Statistic], str, str], Statistic] = {}
        self._blocked_rows: dict[tuple[str, tuple[str, str] | None], BlockedRows] = {}
        self._views_without_block: dict[int, View] = {}

    def context(self) -> Row:
        """Return the fields that all records of these sets share: pipeline, fitting sets, seed and origin."""
        fitted_on = self.fitted and self.fitted.fitted_on
        shared = context(self.embeddings, seed=self.seed, steps=self.steps, fitted_on=fitted_on, blocks=self.blocks)
        if self.streamed:
            shared["streamed"] = True
        if self.engine is not None:
            shared["engine"] = self.engine.name
        return shared

    def remarks(self) -> list[str]:
        """Return warnings about the sets themselves, such as pairs out of order and duplicated rows."""
        with ThreadPoolExecutor(1) as executor:
            if self._many_rows:  # generating the noise of many rows takes as long, and uses one thread
                executor.submit(getattr, self, "null")
            shapes = [embeddings.vectors.shape for embeddings in self.embeddings.values()]
            all_rows = self.engine is None and can_be_held(*shapes)
            return list(remarks_on(self.embeddings, self.couples.values(), self.pairs_of, all_rows=all_rows))

    # --- the same sets in other forms

    @cached_property
    def null(self) -> "MeasuredSets":
        """The same sets with isotropic Gaussian noise in place of the rows.

        The noise has the same n, d, labels, pairs, pipeline and mean squared row length. For streamed sets, the noise
        is generated block by block when it is read.
        """
        sets: dict[str, Embeddings] = {}
        generator = torch.Generator().manual_seed(self.seed)
        for k, modality in enumerate(sorted(self.embeddings)):
            embeddings = self.embeddings[modality]
            n, d = embeddings.vectors.shape
            if self._raw is None:
                squares = 0.0
                for start in range(0, n, 4096):
                    squares += float(np.square(embeddings.vectors[start : start + 4096].astype(np.float64)).sum())
                rows = torch.randn((n, d), generator=generator, dtype=torch.float64)
                noise: Any = rows.mul_(float(np.sqrt(squares / (n * d)))).numpy()
            else:
                squares = n * d
                if not (self.steps and self.steps[0].name == "normalize"):  # which makes the scale irrelevant
                    squares = self._raw[modality].aggregate(float, _add_squares, operator.add, BLOCK)
                noise = gaussian_rows((n, d), self.seed + k, math.sqrt(squares / (n * d)))
            sets[modality] = replace(embeddings, vectors=noise)
        return self._with(sets, blocks=0, name=" (null)")

    def _with(self, sets: Mapping[str, Embeddings], **changes: Any) -> "MeasuredSets":
        """Return these sets with some of them replaced, in the same order."""
        options = {"seed": self.seed, "blocks": self.blocks, "engine": self.engine, "in_memory": self.in_memory}
        return MeasuredSets({**self.embeddings, **sets}, self.steps, **options | changes)

    def whole(self, what: str) -> "MeasuredSets":
        """Return the same sets with all rows in memory.

        Raises InputError if the sets are too large or an engine holds them. `what` names the computation that needs all
        rows, for the error message.
        """
        shapes = [rows.shape for rows in self.rows.values()]
        if self.streamed and self.engine is not None:
            raise InputError(f"{what} needs all rows in memory; leave --engine out")
        if self.streamed and not can_be_held(*shapes):
            size = f"{sum(8 * n * d for n, d in shapes) / 1e9:.3g} GB of {memory() / 1e9:.3g} GB"
            raise InputError(f"{what} needs all rows in memory, where they would take {size}; measure a sample of them")
        return self._whole if self.streamed else self

    @cached_property
    def _whole(self) -> "MeasuredSets":
        return self._with({}, in_memory=True)

    @cached_property
    def _by_class(self) -> "MeasuredSets":
        """Return the same sets with one text per class.

        If a class has several prompts, their ensemble replaces them before the pipeline is applied.
        """
        ensembles = {}
        for modality, text in self.embeddings.items():
            if not is_prompts(text) or text.labels is None:
                continue
            classes, codes = np.unique(np.asarray(text.labels), return_inverse=True)
            if len(classes) < len(text):
                ids = np.array([f"class-{label}" for label in classes])
                rows = ensemble(text.vectors, codes)
                ensembles[modality] = replace(text, vectors=rows, item_id=ids, labels=classes, metadata={})
        return self._with(ensembles) if ensembles else self

    def part(self, chosen: Mapping[str, np.ndarray], *, refit: bool = False) -> View:
        """Return some rows of each modality, after the pipeline fitted on all rows or, with `refit`, fitted on these
        rows."""
        subsets = {modality: embeddings.take(chosen[modality]) for modality, embeddings in self.embeddings.items()}
        if not refit:
            return View(subsets, {name: np.asarray(rows)[chosen[name]] for name, rows in self.rows.items()})
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the same warnings were shown once for all rows
            return View(subsets, steps=self.steps)

    def _without_block(self, block: int) -> View:
        """Return the rows outside the block, after a pipeline that is fitted on them."""
        if block in self._views_without_block:
            return self._views_without_block[block]
        outside = {modality: blocks != block for modality, blocks in self.items.block_of.items()}
        view = self.part(outside, refit=self.learns)
        if self.blocks * sum(rows.nbytes for rows in view.rows.values()) < KEPT_BYTES:
            self._views_without_block[block] = view
        return view

    # --- numbers

    @property
    def pairs(self) -> tuple[np.ndarray, np.ndarray]:
        """Row indices (i, j) of all matching pairs of two sets. Raises InputError if there are none."""
        (couple,) = self.couples.values()
        return self.pairs_of(*couple)

    def places(self, measure: Measure) -> list[str]:
        """Return the places where the measure can be computed, as in `View.places`."""
        if self.streamed and not measure.streams:
            return self.whole(measure.name).places(measure)
        return super().places(measure)

    def row(self, measure: Measure, place: str) -> Row:
        """Return the measure in one place as a row with its standard error, its null value and a note on what it leaves
        out."""
        if self.streamed and not measure.streams:
            return self.whole(measure.name).row(measure, place)
        couple = self.couples.get(place)
        if measure.takes == "classes" and couple and self._by_class is not self:
            prompts = len(self.embeddings[couple[1]]) / len(self._by_class.embeddings[couple[1]])
            note = f"class texts are unit means of {prompts:g} unit prompts, computed before the pipeline"
            return self._by_class.row(measure, place) | {"note": note}
        arguments = self.arguments(measure, place)
        n = len(arguments[0])
        d = self.rows[couple[0] if couple else place].shape[1]
        results: list[Any] = []
        # errors first, because the value can use their moments
        for compute in (self.errors, self.value, self.null.value):
            results.append(compute(measure, place))
            if self.streamed:  # free the blocks of this pass before the next one uses other sizes
                give_back()
        errors, value, null_value = results
        row = {
            "measure": measure.name,
            "value": value,
            "standard_error": None,
            "null_value": null_value,
            "n": n + len(arguments[1]) if measure.takes == "two sets" else n,
            "d": d,
            "at": {"modality": place},
            **errors,
        }
        notes = [measure.remark(*arguments)] if measure.remark else []
        if measure.takes == "distinct pairs" and couple:
            all_pairs = len(self.pairs_of(*couple)[0])
            if n < all_pairs:
                notes.append(f"one pair of each item, {n} of {all_pairs} pairs")
        if measure.takes == "matched sets" and couple:
            for name, matched in zip(couple, arguments, strict=False):
                left_out = len(self.rows[name]) - len(matched)
                if left_out > 0:
                    notes.append(f"{left_out} of {len(self.rows[name])} {name} rows have no pair and are left out")
        from_moments = self.streamed and measure.statistic is Moments and self.items.has_blocks and not self.learns
        if from_moments and Moments.too_large(self.blocks + 1, d):
            notes.append(f"no standard error: moments of {d} columns without each block take too much memory")
        note = "; ".join(filter(None, notes))
        return {**row, "note": note} if note else row

    def value(self, measure: Measure, place: str) -> float:
        """Return the measure of all rows."""
        if share := self._share(measure, place):
            return share.value
        key = (*call_of(measure), place)
        if key not in self._results:
            self._results[key] = self._result(measure, place)
        try:
            return float(measure.pick(self._results[key]))
        except KeyError:
            raise NoSuchNumber(f"{measure.name} does not exist for so few rows, classes or relevant items") from None

    def errors(self, measure: Measure, place: str) -> dict[str, Any]:
        """Return the standard error and the fields that `compare` needs from it; empty if there is none.

        Means over queries use the standard error of `Share`, with the pipeline as fitted, and also have an interval,
        `low` and `high`. All other measures use the jackknife, for which the pipeline is fitted again without each
        block.

        There is no standard error for measures that are not smooth, where the jackknife is wrong, and none if `blocks`
        evaluations of an O(n²) measure would take long (more than QUADRATIC_ROWS rows). For streamed rows it exists
        only if it follows from sums over blocks.
        """
        if share := self._share(measure, place):
            low, high = share.interval
            fields = {"standard_error": share.standard_error, "low": low, "high": high}
            if share.means_of_items is None:
                return fields
            items, values = share.means_of_items
            blocks = digest([self.items.identity["item_blocks"], items])
            return {**fields, "by_item": values, **self.items.identity, "item_blocks": blocks}
        if not measure.smooth or (measure.quadratic and self._from_sums) or not self.items.has_blocks:
            return {}
        without = []
        try:
            for result in self._without_each(measure, place):
                without.append(float(measure.pick(result)))
        except (InputError, KeyError):  # too few rows without a block
            return {}
        return {"standard_error": jackknife(without), "without": without, **self.items.identity} if without else {}

    def forget(self, statistic: type[Statistic] | None) -> None:
        """Free the memory of a statistic of the rows and of their noise once no further measure needs it.

        Statistics of small sets are kept.
        """
        if self.small:
            return
        null = self.__dict__.get("null")  # not computed for this
        for statistics in (self._statistics, {} if null is None else null._statistics):
            for key in [key for key in statistics if key[0] is statistic]:
                del statistics[key]

    def _share(self, measure: Measure, place: str) -> Share | None:
        """Return the number as a mean over queries, which has an interval over items.

        None if the number is not such a mean, or if there are too many rows.
        """
        if measure.shares is None or self.streamed or (self._many_rows and measure.quadratic):
            return None
        if not self.blocks or len(self.items) < 2:
            return None
        key = (*call_of(measure), place)
        if key not in self._shares:
            arguments = self.arguments(measure, place)
            couple = self.couples[place]
            rows: Sequence[Any] = slice(None), slice(None)
            if measure.takes == "matched sets":
                i, j = self.pairs_of(*couple)
                rows = (np.unique(i), np.unique(j)) if len(arguments) > 2 else (i, j)
            items = []
            for name, chosen in zip(couple, rows, strict=True):
                items.append(torch.from_numpy(self.items.of_rows[name][chosen]))
            self._shares[key] = measure.shares(*arguments, items=tuple(items), **measure.options)
        return self._shares[key].get(measure.attribute or "")

    def _result(self, measure: Measure, place: str) -> Any:
        """Return the result of the function on all rows, from the statistic that its measures share."""
        key = (*call_of(measure), place)
        statistic = measure.statistic
        if self._from_sums and statistic is not None and statistic.includes_all and not measure.quadratic:
            with suppress(InputError):  # without a block there may be too few rows
                self._without_each(measure, place)
            if key in self._results:
                return self._results[key]
        arguments = self.arguments(measure, place)
        if statistic is not None and not self.streamed:
            statistic_key = statistic, measure.takes, place
            with suppress(InputError):  # the function below raises the error for the user, which is about the rows
                if statistic_key not in self._statistics:
                    self._statistics[statistic_key] = statistic.of(*arguments)
                return measure.function(self._statistics[statistic_key], **measure.options)
        return measure.function(*arguments, **measure.options)

    def _without_each(self, measure: Measure, place: str) -> list[Any]:
        """Return the results of the function without each block, from the statistic if that is cheaper than one by one.

        For many rows this also gives the result of all rows, which is computed as leaving out an additional, empty
        block.
        """
        key = (*call_of(measure), place)
        if key in self._results_without_blocks:
            return self._results_without_blocks[key]
        blocked = None if self.learns or measure.statistic is None else self._blocked_arguments(measure, place)
        from_statistic = None if blocked is None else measure.without_each(*blocked)
        results = list(from_statistic or ())
        if from_statistic is not None and self._from_sums:
            self._results[key] = results.pop()
        elif from_statistic is None and not self.streamed:
            for block in range(self.blocks):
                arguments = self._without_block(block).arguments(measure, place)
                results.append(measure.function(*arguments, **measure.options))
        self._results_without_blocks[key] = results
        return results

    def _blocked_arguments(self, measure: Measure, place: str) -> tuple[Any, ...] | None:
        """Return the arguments of the measure with their rows assigned to blocks.

        None for measures that take neither the rows of a set nor pairs of rows. The assigned rows are cached, together
        with the work that measures share.
        """
        couple = self.couples.get(place)
        arguments = []
        if couple and measure.takes not in ("two sets", "pairs", "distinct pairs"):
            return None
        pairs = (None, None)
        if couple and measure.takes != "two sets":
            pairs = self.pairs_of(*couple, distinct=measure.takes == "distinct pairs")
        for modality, paired in zip(couple or (place,), pairs, strict=False):
            rows = self.rows[modality]
            if self._from_sums and paired is not None and np.array_equal(paired, range(len(rows))):
                paired = None  # lets all couples share the rows
            key = modality, None if paired is None else couple
            blocked = self._blocked_rows.get(key)
            if blocked is None:
                block_of, blocks = np.full(len(rows), -1), 0
                if self.items.has_blocks:
                    block_of, blocks = self.items.block_of[modality], self.blocks
                if paired is not None:
                    rows, block_of = taken(rows, paired), block_of[paired]
                blocked = BlockedRows(as_matrix(rows), torch.from_numpy(block_of).long(), blocks + self._from_sums)
                # caching the pairs of all couples would need the memory of all sets
                if not self._many_rows or paired is None:
                    blocked = self._blocked_rows.setdefault(key, blocked)  # another thread may have been first
            arguments.append(blocked)
        return (*arguments, *(() if couple else self.arguments(measure, place)[1:]))


def call_of(measure: Measure) -> tuple[Any, ...]:
    """Return a key that is equal for measures that read the result of the same call."""
    return measure.function, repr(measure.options), measure.takes


def stream(sets: Mapping[str, Embeddings], note: str = "", engine: "Engine | None" = None) -> dict[str, StreamedRows]:
    """Return the rows of each set, read in blocks; throughput is logged to stderr.

    `engine` runs the passes that are aggregations, and logs their throughput itself. Sets that are small in float64
    give the same numbers as in memory.
    """
    rows: dict[str, StreamedRows] = {}
    large = is_large(*(embeddings.vectors.shape for embeddings in sets.values()))
    for modality, embeddings in sets.items():
        vectors: Any = embeddings.vectors
        size = vectors.shape[1] * getattr(getattr(vectors, "dtype", None), "itemsize", 4)
        pass_progress = PassProgress(f"{modality}{note}", len(vectors), size) if engine is None else None
        streamed = StreamedRows.of(vectors, name=modality, watch=pass_progress)
        as_matrix(streamed, name=modality)
        rows[modality] = streamed if engine is None else engine.stream(streamed)
        if not large:
            rows[modality].stored = torch.float64
    return rows


def _add_squares(total: float, block: torch.Tensor, along: torch.Tensor | None) -> float:
    return total + float(block.double().square().sum())
