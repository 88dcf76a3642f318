"""Measures of the sets at hand as result rows: what `measure` prints and the geometry experiment writes."""

import hashlib
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from functools import cached_property, partial
from typing import Any

import numpy as np
import torch

from clip_geometry.config import digest
from clip_geometry.embedding.engines import Engine
from clip_geometry.embeddings import Embeddings, is_large
from clip_geometry.evaluators import ensemble
from clip_geometry.geometry import Measure, by_group, measures
from clip_geometry.geometry.statistics import Dealt, Moments, Statistic
from clip_geometry.geometry.uncertainty import BLOCKS, deal, jackknife
from clip_geometry.measuring.provenance import context, origin_of
from clip_geometry.measuring.remarks import remarks_on
from clip_geometry.measuring.streaming import gaussian, stream
from clip_geometry.measuring.views import TAKES, View
from clip_geometry.memory import can_be_held, give_back, memory
from clip_geometry.registry import InputError, unknown
from clip_geometry.results import Row
from clip_geometry.rows.matrix import as_matrix, as_rows
from clip_geometry.rows.streamed import release
from clip_geometry.rows.threads import side_by_side
from clip_geometry.transforms import Step, transforms
from clip_geometry.transforms.pipeline import taken

QUADRATIC_ROWS = 4000  # measures in O(n²) get no standard error beyond, and sums replace the rows without each block
# what a first look needs, as it is read; all but retrieval in O(n)
CORE = (
    "average_cosine",
    "isoscore[unbiased]",
    "modality_gap",
    "relative_modality_gap",
    "modality_silhouette[cosine]",
    "matching_cosine",
    "random_cosine",
    "retrieval.image_to_text.r_at_1",
    "retrieval.text_to_image.r_at_1",
    "retrieval[mixed].image.same_modality_at_10",
    "retrieval[mixed].text.same_modality_at_10",
    "retrieval[mixed].image_to_text.r_at_1",
    "retrieval[mixed].text_to_image.r_at_1",
    "silhouette[cosine]",
)
MOST_WORK = 2e11  # multiplications of all couples in one O(n²) measure: about a minute for the core on two cores
KEPT_BYTES = 2**30  # of rows without each block, rather than moving them again for every measure


class NoSuchNumber(InputError):
    """The evaluator has no such number for these sets: no top 5 of three classes."""


class MeasuredSets:
    """Embeddings of one or several modalities after a pipeline, ready to be measured.

    Measures across modalities are taken of every couple of sets.

    One call of a function serves all measures that read its result, e.g. I1 and I2. Sets that take more than
    `embeddings.LARGE` bytes in float64 are streamed: read block by block in every pass, with NaN found on the way.
    Standard errors then exist for functions of moments and sums, after steps that fit nothing. Measures that need all
    rows at once get them, up to `memory.MOST_HELD` bytes.

    Args:
        sets: Modality → `Embeddings`.
        steps: The pipeline, as `parse_pipeline` gives it.
        seed: Seed of the Gaussian behind the null values and of the dealing into blocks.
        blocks: Number of jackknife blocks behind the standard errors, 0 for none.
        name: Shown beside the modality where progress is reported.
        engine: Streams the sets, whatever their size, and runs the passes for means, moments and class sums.
        in_memory: Do not stream the sets, whatever their size.

    Raises:
        InputError: No measure can use the sets: fewer than two rows, NaN or infinity.

    Example:
        >>> import numpy as np, clip_geometry as cg
        >>> image, text = np.random.default_rng(0).normal(size=(2, 100, 8))
        >>> sets = {"image": cg.Embeddings(image, "image"), "text": cg.Embeddings(text + 1, "text")}
        >>> measured = cg.MeasuredSets(sets, cg.parse_pipeline("normalize"))
        >>> round(measured.value(cg.measures["modality_gap"], "both"), 3)
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
        engine: Engine | None = None,
        in_memory: bool = False,
    ):
        self.embeddings = dict(sets)
        self.steps = tuple(steps)
        self.seed = seed
        self.blocks = blocks
        self.engine = engine
        self.in_memory = in_memory
        large = is_large(*(each.vectors.shape for each in self.embeddings.values()))
        self.streamed = not in_memory and (large or engine is not None)
        self._raw = stream(self.embeddings, name, engine) if self.streamed else None
        if not self.streamed:
            for modality, each in self.embeddings.items():
                as_rows(each.vectors, name=modality)
        origin = origin_of(self.embeddings)
        self._view, prepared = View.through(self.steps, self.embeddings, origin=origin, rows=self._raw)
        self.rows, self.refusal, self.fitted_on = prepared.sets, prepared.refusal, prepared.fitted.fitted_on
        for each in self.embeddings.values():
            release(each.vectors)
        self.learns = any(transforms[step.name].fits for step in self.steps)
        self._values: dict[tuple[str, str, int | None], float] = {}  # numbers, not what the functions returned
        self._of_shares: dict[tuple[str, str], dict[str, Any]] = {}  # errors
        self._views: dict[int, View] = {}
        self._statistics: dict[tuple[type[Statistic], str, str], Statistic] = {}
        self._parts: dict[tuple[str, tuple[str, str] | None], Dealt] = {}

    def context(self) -> Row:
        """What every row of these sets has in common."""
        shared = context(
            self.embeddings, steps=self.steps, fitted_on=self.fitted_on, seed=self.seed, blocks=self.blocks
        )
        shared |= {"streamed": True} if self.streamed else {}
        return shared | ({"engine": self.engine.name} if self.engine is not None else {})

    def remarks(self) -> list[str]:
        """What is worth knowing of the sets before any number: pairs out of order, copies of rows."""
        with ThreadPoolExecutor(1) as beside:
            if self._many:  # noise of many rows takes as long, in one thread
                beside.submit(getattr, self, "null")
            couples = self._view.couples.values()
            all_rows = self.engine is None and can_be_held(*(each.vectors.shape for each in self.embeddings.values()))
            return list(remarks_on(self.embeddings, couples, self._view.pairs, all_rows=all_rows))

    @cached_property
    def null(self) -> "MeasuredSets":
        """The same with isotropic Gaussian rows: equal n, d, labels, pairs, steps and mean squared row length.

        Of streamed sets these are streamed, too: as many rows, made when they are asked for.
        """
        sets: dict[str, Embeddings] = {}
        if self._raw is not None:
            any_scale = bool(self.steps) and self.steps[0].name == "normalize"
            for k, modality in enumerate(self._sorted):
                noise: Any = gaussian(self._raw[modality], self.seed + k, any_scale=any_scale)
                sets[modality] = replace(self.embeddings[modality], vectors=noise)
            return self._with(sets, blocks=0, name=" (null)")
        generator = torch.Generator().manual_seed(self.seed)
        for modality in self._sorted:
            each = self.embeddings[modality]
            rows = torch.randn(each.vectors.shape, generator=generator, dtype=torch.float64)
            blocks = (each.vectors[k : k + 4096].astype(np.float64) for k in range(0, len(each.vectors), 4096))
            rms = float(np.sqrt(sum(float(np.square(block).sum()) for block in blocks) / each.vectors.size))
            sets[modality] = replace(each, vectors=rows.mul_(rms).numpy())
        return self._with(sets, blocks=0)

    @property
    def _sorted(self) -> list[str]:
        """The order in which noise is drawn and items are numbered: that in which sets are given changes no number."""
        return sorted(self.embeddings)

    def _with(self, sets: Mapping[str, Embeddings], **changes: Any) -> "MeasuredSets":
        """Other sets in place of these, in their order."""
        sets = {modality: sets[modality] for modality in self.embeddings}
        same = {"seed": self.seed, "blocks": self.blocks, "engine": self.engine, "in_memory": self.in_memory}
        return MeasuredSets(sets, self.steps, **same | changes)

    @cached_property
    def _whole(self) -> "MeasuredSets":
        """The same, not streamed: for what needs all rows at once."""
        return self._with(self.embeddings, engine=None, in_memory=True) if self.streamed else self

    def whole(self, what: str) -> "MeasuredSets":
        """The same with all rows in memory; InputError where they are too large, or where an engine has them.

        what: what needs them, for the message.
        """
        if self.engine is not None:
            raise InputError(f"{what} needs all rows in memory; leave --engine out")
        shapes = [rows.shape for rows in self.rows.values()]
        if self.streamed and not can_be_held(*shapes):
            size = sum(8 * n * d for n, d in shapes)
            raise InputError(
                f"{what} needs all rows in memory, where they would take {size / 1e9:.3g} GB of "
                f"{memory() / 1e9:.3g}; measure a part of them"
            )
        return self._whole

    @cached_property
    def _by_class(self) -> "MeasuredSets":
        """The same with one text per class: of several prompts the ensemble, taken before the pipeline, whose rows
        then are as it leaves them."""
        ensembles = {}
        for modality, text in self.embeddings.items():
            if not _is_prompts(text) or text.labels is None:
                continue
            classes, codes = np.unique(np.asarray(text.labels), return_inverse=True)
            if len(classes) < len(text):
                ids = np.array([f"class-{label}" for label in classes])
                rows = ensemble(text.vectors, codes)
                ensembles[modality] = replace(text, vectors=rows, item_id=ids, labels=classes, metadata={})
        return self._with({**self.embeddings, **ensembles}) if ensembles else self

    @property
    def small(self) -> bool:
        """Whether measures of these rows can be taken side by side, in threads."""
        # fitting without each block has warnings to hide
        return not self.streamed and not self._many and not (self.learns and self.blocks > 1)

    @cached_property
    def _many(self) -> bool:
        """Whether there are more rows, in memory, than QUADRATIC_ROWS."""
        return not self.streamed and max(map(len, self.rows.values())) > QUADRATIC_ROWS

    @property
    def _sums(self) -> bool:
        """Whether sums over the blocks replace the rows without each of them."""
        return self.streamed or self._many

    @cached_property
    def _deals(self) -> bool:
        """Whether there is a jackknife: blocks, and an item for each."""
        return 2 <= self.blocks <= len(self._items)

    def prepare(self) -> None:
        """Computes what all measures read, before threads would do so twice."""
        _ = self.null, self._deals and self._block_of

    @property
    def pairs(self) -> tuple[np.ndarray, np.ndarray]:
        """Row indices (i, j) of all matching pairs of two sets; InputError where there are none."""
        (couple,) = self._view.couples.values()
        return self._view.pairs(*couple)

    @property
    def couples(self) -> list[tuple[str, str]]:
        """The couples of which measures across modalities are taken."""
        return list(self._view.couples.values())

    def couple(self, place: str) -> tuple[str, str] | None:
        """The two modalities of "both" or "audio+image", in the order in which a measure takes them; else None."""
        return self._view.couples.get(place)

    def places(self, measure: Measure) -> list[str]:
        """Where the measure can be taken: some of the modalities, "both" of two, or couples such as "audio+image".

        Raises InputError where nowhere.
        """
        if self.streamed and not measure.streams:
            return self.whole(measure.name).places(measure)
        if measure.takes not in TAKES:
            call = f"clip_geometry.{measure.function.__name__}"
            raise InputError(f"{measure.name} needs {measure.needs[0]}, which this command does not have; call {call}")
        if not measure.inputs.across and measure.takes != "labeled rows":
            return list(self.rows)
        if measure.inputs.across:
            if len(self.rows) < 2:
                raise InputError(f"{measure.name} needs two modalities, only {next(iter(self.rows))} was given")
            if self.refusal:
                raise InputError(f"{measure.name} compares the modalities, but {self.refusal}")
            dims = {modality: rows.shape[1] for modality, rows in self.rows.items()}
            couples = self._view.couples.items()
            places = [place for place, (one, two) in couples if not measure.one_space or dims[one] == dims[two]]
            if not places:
                given = " and ".join(f"{modality} has dimension {dim}" for modality, dim in dims.items())
                raise InputError(f"{measure.name} needs one space, but {given}")
            return places
        # a class prompt stands for its class: alone in it, it has no silhouette
        labeled = [name for name, e in self.embeddings.items() if e.labels is not None and not _is_prompts(e)]
        if not labeled:
            raise InputError(f"{measure.name} needs labels")
        return labeled

    def row(self, measure: Measure, place: str) -> Row:
        """The measure in one of its places, with its standard error, its null value and what it leaves out."""
        if self.streamed and not measure.streams:
            return self.whole(measure.name).row(measure, place)
        couple = self.couple(place)
        if measure.takes == "classes" and couple and self._by_class is not self:
            several = len(self.embeddings[couple[1]]) / len(self._by_class.embeddings[couple[1]])
            said = f"class texts are unit means of {several:g} unit prompts, made before the pipeline"
            return self._by_class.row(measure, place) | {"note": said}
        arguments = self._view.arguments(measure, place)
        counts = [len(part) for part in arguments[:2]]
        errors = self.errors(measure, place)  # before the value: its moments are those of all rows, too
        self._give_back()
        value = self.value(measure, place)
        self._give_back()
        null_value = self.null.value(measure, place)
        self._give_back()
        row = {
            "measure": measure.name,
            "value": value,
            "standard_error": errors.pop("standard_error", None),
            "null_value": null_value,
            "n": sum(counts) if measure.takes == "two sets" else counts[0],
            "d": self.rows[couple[0] if couple else place].shape[1],
            "at": {"modality": place},
            **errors,
        }
        remarks = [measure.remark(*arguments)] if measure.remark else []
        if measure.takes == "distinct pairs" and couple and counts[0] < (several := len(self._view.pairs(*couple)[0])):
            remarks.append(f"one pair of each item, {counts[0]} of {several}")
        if measure.takes == "matched sets" and couple:
            remarks += [
                f"{len(self.rows[name]) - count} of {len(self.rows[name])} {name} rows have no pair and are left out"
                for name, count in zip(couple, counts, strict=True)
                if count < len(self.rows[name])
            ]
        note = "; ".join(filter(None, remarks))
        return {**row, "note": note} if note else row

    def _give_back(self) -> None:
        """What a pass has left in the allocator, before the next asks for blocks of other sizes."""
        if self.streamed:
            give_back()

    def value(self, measure: Measure, place: str) -> float:
        return self._value(measure, place, None)

    def errors(self, measure: Measure, place: str) -> dict[str, Any]:
        """The standard error and what `compare` needs of it; empty where there is none.

        Means over queries have the error of `Share`, which takes the pipeline as fitted, and an interval, `low` and
        `high`. Of all other measures this is the jackknife, for which the pipeline is fitted again without each block.

        There is none of measures that are not smooth, where the jackknife is wrong, and none where `blocks` rounds of
        O(n²) would take long (more than QUADRATIC_ROWS rows). Of streamed rows only where sums over blocks give it.
        """
        if not self.streamed and measure.quadratic and self._many:
            return {}
        if measure.shares is not None and not self.streamed and self.blocks and len(self._items) > 1:
            key = measure.name, place
            if key not in self._of_shares:
                self._keep_shares(measure, place, measure.shares)
            if key in self._of_shares:
                return dict(self._of_shares[key])
        without = self.without_each(measure, place)
        if without is None:
            return {}
        same = {"item_blocks": self._item_blocks, "items_from": self._items_from}
        return {"standard_error": jackknife(without), "without": without, **same}

    def _keep_shares(self, measure: Measure, place: str, of: Callable[..., Mapping[str, Any]]) -> None:
        """Keeps value and errors of the numbers of a call that are means over queries."""
        arguments, couple = self._view.arguments(measure, place), self._view.couples[place]
        rows = [np.arange(len(self.rows[name])) for name in couple]
        if measure.takes == "matched sets":
            paired = self._view.pairs(*couple)
            rows = [np.unique(each) for each in paired] if len(arguments) > 2 else paired
        items = tuple(torch.from_numpy(self.item_of[name][each]) for name, each in zip(couple, rows, strict=True))
        for number, share in of(*arguments, items=items, **measure.options).items():
            low, high = share.interval
            found = {"standard_error": share.standard_error, "low": low, "high": high}
            of_items = share.means_of_items
            if of_items is not None:
                items_asked, values = of_items
                found |= {"by_item": values, "item_blocks": digest([self._item_blocks, items_asked])}
                found |= {"items_from": self._items_from}
            name = f"{measure.evaluator}.{number}"
            self._of_shares[name, place] = found
            self._values[name, place, None] = share.value

    def without_each(self, measure: Measure, place: str) -> list[float] | None:
        """The values behind the standard error, without each block of items; None where there is none."""
        if not measure.smooth or (measure.quadratic and self._sums) or not self._deals:
            return None
        try:
            self._share(measure, place)
            if self.streamed and (measure.name, place, 0) not in self._values:
                return None
            return [self._value(measure, place, block) for block in range(self.blocks)]
        except InputError:  # too small without a block
            return None

    def _share(self, measure: Measure, place: str) -> None:
        """Keeps the values without each block that the measure finds with less work than one by one; of many rows the
        value of all of them, too, which are those without a block that is empty."""
        if (measure.name, place, 0) in self._values:
            return
        if self.learns or measure.statistic is None:
            return
        couple = self.couple(place)
        if couple is None:
            parts = (self._dealt(place), *self._view.arguments(measure, place)[1:])
        elif measure.takes == "two sets":
            parts = tuple(self._dealt(modality) for modality in couple)
        elif measure.takes in ("pairs", "distinct pairs"):
            paired = self._view.pairs(*couple, distinct=measure.takes == "distinct pairs")
            both = zip(couple, paired, strict=True)
            parts = tuple(self._dealt(modality, couple, taken) for modality, taken in both)
        else:
            return
        for block, result in enumerate(measure.without_each(*parts) or ()):
            self._keep(measure, place, None if self._sums and block == parts[0].blocks - 1 else block, result)

    def _dealt(self, modality: str, couple: tuple[str, str] | None = None, paired: np.ndarray | None = None) -> Dealt:
        """The rows of a modality, or those paired in a couple; kept, with the work that measures share."""
        if self._sums and paired is not None and np.array_equal(paired, range(len(self.rows[modality]))):
            couple = paired = None  # all couples share it
        if (modality, couple) in self._parts:
            return self._parts[modality, couple]
        rows, blocks = self.rows[modality], self.blocks if self._deals else 0
        block_of = self._block_of[modality] if self._deals else np.full(len(rows), -1)
        if paired is not None:
            rows, block_of = taken(rows, paired), block_of[paired]
        part = Dealt(as_matrix(rows), torch.from_numpy(block_of).long(), blocks + self._sums)
        if self._many and couple:  # of all couples together they would take the memory of all sets once for each
            return part
        return self._parts.setdefault((modality, couple), part)  # another thread may have been first

    def _value(self, measure: Measure, place: str, block: int | None) -> float:
        """Of all rows, or of those outside of a block."""
        # the statistic of many rows may come with those without each block
        merges = self._sums and measure.statistic and measure.statistic.merges and not measure.quadratic
        if merges and block is None and (measure.name, place, block) not in self._values:
            with suppress(InputError):  # without a block there may be too few rows
                self._share(measure, place)
        if (measure.name, place, block) not in self._values:
            self._keep(measure, place, block, self._result(measure, place, block))
        if (measure.name, place, block) not in self._values:
            raise NoSuchNumber(f"{measure.name} does not exist for so few rows, classes or relevant items")
        return self._values[measure.name, place, block]

    def _result(self, measure: Measure, place: str, block: int | None) -> Any:
        """What the function returns: of all rows from the statistic that its measures share."""
        view = self._view if block is None else self._without(block)
        arguments = view.arguments(measure, place)
        if block is None and measure.statistic is not None and not self.streamed:
            key = measure.statistic, measure.takes, place
            with suppress(InputError):  # whose sentence is not about the rows
                if key not in self._statistics:
                    self._statistics[key] = measure.statistic.of(*arguments)
                return measure.function(self._statistics[key], **measure.options)
        return measure.function(*arguments, **measure.options)

    def forget(self, statistic: type[Statistic] | None) -> None:
        """Give up a statistic of these rows and of their noise: no measure will ask for it again."""
        for sets in filter(None, (self, self.__dict__.get("null"))):
            for key in [key for key in sets._statistics if key[0] is statistic]:
                del sets._statistics[key]

    def _keep(self, measure: Measure, place: str, block: int | None, result: Any) -> None:
        for each in _reading_one_result(measure):
            with suppress(KeyError):  # some numbers exist for large enough sets only
                self._values[each.name, place, block] = float(each.pick(result))

    def _without(self, block: int) -> View:
        """The rows outside of the block, by the pipeline that is fitted on them."""
        if block in self._views:
            return self._views[block]
        outside = {modality: blocks != block for modality, blocks in self._block_of.items()}  # prompts lie in none
        kept = {modality: each.take(outside[modality]) for modality, each in self.embeddings.items()}
        if self.learns:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # said once, of all rows
                view, _ = View.through(self.steps, kept)
        else:
            view = View(kept, {name: np.asarray(rows)[outside[name]] for name, rows in self.rows.items()})
        if self.blocks * sum(rows.nbytes for rows in view.rows.values() if isinstance(rows, np.ndarray)) < KEPT_BYTES:
            self._views[block] = view
        return view

    @cached_property
    def _items(self) -> Mapping[Any, int] | range:
        """Every item, numbered: an image and all its captions are one, and lie in one block."""
        if all(each.item_id is None and not _is_prompts(each) for each in self.embeddings.values()):
            return range(max(map(len, self.embeddings.values())))
        keys = (self._keys(modality) for modality in self._sorted if not _is_prompts(self.embeddings[modality]))
        return {key: number for number, key in enumerate(dict.fromkeys(key for part in keys for key in part))}

    @cached_property
    def _item_blocks(self) -> str:
        """Equal for sets that have the same items in the same blocks, whose errors can be paired."""
        items = f"{len(self._items)} rows" if isinstance(self._items, range) else [str(key) for key in self._items]
        return digest([items, self.blocks, self.seed])

    @cached_property
    def _items_from(self) -> str:
        """ "ids", or a digest of the first and last rows where they have none: equal rows are surely the same items."""
        if not isinstance(self._items, range):
            return "ids"
        rows = hashlib.blake2b(digest_size=16)
        for modality in self._sorted:
            vectors = self.embeddings[modality].vectors
            for part in (vectors[:4096], vectors[-4096:]):
                rows.update(np.ascontiguousarray(part).tobytes())
        return rows.hexdigest()

    def _keys(self, modality: str) -> list:
        """The items of the rows: their ids; without ids those of the rows that they pair with, by position."""
        own = self.embeddings[modality]
        others = (self.embeddings[name] for name in self._sorted)
        alike = (own, *(each for each in others if len(each) == len(own) and not _is_prompts(each)))
        ids = next((each.item_id for each in alike if each.item_id is not None), None)
        return list(range(len(own))) if ids is None else ids.tolist()

    @property
    def items(self) -> int:
        """The number of items: an image and all its captions are one."""
        return len(self._items)

    @cached_property
    def item_of(self) -> dict[str, np.ndarray]:
        """The number of the item of each row, from 0; -1 of class prompts, which are no sample."""
        found = {}
        for name, each in self.embeddings.items():
            if _is_prompts(each):
                found[name] = np.full(len(each), -1)
            elif isinstance(self._items, range):
                found[name] = np.arange(len(each))
            else:
                found[name] = np.array([self._items[key] for key in self._keys(name)])
        return found

    @cached_property
    def _block_of(self) -> dict[str, np.ndarray]:
        dealt = deal(len(self._items), self.blocks, self.seed).numpy()  # of each row, and kept
        return {name: np.where(items < 0, -1, dealt[items]) for name, items in self.item_of.items()}


_FAMILIES: dict[str, tuple[Measure, list[Measure]]] = {}


def _reading_one_result(measure: Measure) -> list[Measure]:
    """The measure, and the registered ones that read the result of the same call."""
    known = _FAMILIES.get(measure.name)
    if known is None or known[0] is not measure:
        call = (measure.function, measure.options, measure.takes)
        others = (each for each in measures.values() if (each.function, each.options, each.takes) == call)
        known = _FAMILIES[measure.name] = measure, [measure, *others]
    return known[1]


def _is_prompts(embeddings: Embeddings) -> bool:
    """Class prompts are no sample: they stay where items are left out."""
    return embeddings.pair_on == "label"


def measure_sets(
    sets: MeasuredSets,
    names: Sequence[str] | None,
    advance: Callable[[int], object] = lambda done: None,
    *,
    optional: bool = False,
) -> Iterator[Row]:
    """Measures sets, each measure in every place where it can be taken.

    Args:
        sets: The sets after their pipeline.
        names: Names of measures and evaluators, or None for all default measures. A named one that cannot be taken
            raises InputError; an unnamed one gives a record without a value, whose `note` says why.
        advance: Called with 1 after each measure.
        optional: Whether measures of `names` count as unnamed, as the `CORE` does.

    Returns:
        An iterator over records with measure, value, standard_error, null_value, n, d and at.

    Raises:
        InputError: A name is unknown, or a named measure cannot be taken.

    Example:
        >>> import numpy as np, clip_geometry as cg
        >>> image, text = np.random.default_rng(0).normal(size=(2, 100, 8))
        >>> sets = {"image": cg.Embeddings(image, "image"), "text": cg.Embeddings(text + 1, "text")}
        >>> measured = cg.MeasuredSets(sets, cg.parse_pipeline("normalize"))
        >>> [(row["at"], round(row["value"], 3)) for row in cg.measure_sets(measured, ["isoscore"])]
        [({'modality': 'image'}, 0.919), ({'modality': 'text'}, 0.889)]
    """
    chosen, asked = by_group() if names is None else named(names), names is not None and not optional
    if not sets.small:
        last = {measure.statistic: number for number, measure in enumerate(chosen)}
        for number, measure in enumerate(chosen):
            yield from rows_or_notes(sets, measure, named=asked)
            if last[measure.statistic] == number:
                sets.forget(measure.statistic)
            advance(1)
        return
    sets.prepare()
    together: dict[Any, list[Measure]] = {}
    for measure in chosen:
        shared = measure.statistic or (measure.function, repr(measure.options))
        together.setdefault((shared, measure.takes), []).append(measure)
    found: dict[str, list[Row]] = {}
    groups = list(together.values())
    for group, rows in zip(groups, side_by_side(partial(_rows_of, sets, asked), groups), strict=True):
        found |= rows
        advance(len(group))
    for measure in chosen:
        yield from found[measure.name]


def _rows_of(sets: MeasuredSets, named: bool, group: Sequence[Measure]) -> dict[str, list[Row]]:
    return {measure.name: rows_or_notes(sets, measure, named=named) for measure in group}


def named(names: Iterable[str]) -> list[Measure]:
    """Measures and numbers of evaluators; the name of an evaluator stands for all of its numbers."""
    numbers: dict[str, list[Measure]] = {}
    for measure in measures.values():
        numbers.setdefault(measure.evaluator or measure.name, []).append(measure)
    found: dict[str, Measure] = {}
    for name in names:
        if name not in measures and name not in numbers:
            evaluator = [each.name for each in numbers.get(name.partition(".")[0], ())]
            known, what = (evaluator, "evaluators") if evaluator else ([*measures, *numbers], "measures")
            raise unknown("measure", name, known, f"clip-geometry list {what}")
        found |= {each.name: each for each in numbers.get(name) or [measures[name]]}
    return list(found.values())


def rows_or_notes(sets: MeasuredSets, measure: Measure, *, named: bool) -> list[Row]:
    """The measure's rows; where it cannot be taken, a row with a note instead of a value, unless it was named."""
    rows = []
    if sets.streamed and measure.streams and measure.quadratic and not named:
        why = "time grows with n² and the rows are streamed; named in --measures it is taken all the same"
        return [_note(measure, {}, InputError(why))]
    couples = (
        [(sets.embeddings[one], sets.embeddings[other]) for one, other in sets.couples] if measure.quadratic else []
    )
    if measure.inputs.across and not named and sum(len(x) * len(y) * x.dim for x, y in couples) > MOST_WORK:
        rows_of = f"{len(couples)} couples of these sizes" if len(couples) > 1 else "sets of these sizes"
        why = f"time grows with n², and is minutes for {rows_of}; named in --measures it is taken all the same"
        return [_note(measure, {}, InputError(why))]
    if sets.engine is not None and not named and not (measure.aggregated or measure.statistic is Moments):
        why = "no function of moments and class sums, which the engine takes; without --engine it is taken here"
        return [_note(measure, {}, InputError(why))]
    try:
        places = sets.places(measure)
    except InputError as error:
        if named:
            raise
        return [_note(measure, {}, error)]
    for place in places:
        try:
            rows.append(sets.row(measure, place))
        except InputError as error:
            # one couple of several may fail, and so may one number of an evaluator that was named for all of them
            if named and not isinstance(error, NoSuchNumber) and len(sets.rows) < 3:
                raise InputError(f"{measure.name}, {place}: {_without_name(measure, error)}") from None
            rows.append(_note(measure, {"modality": place}, error))
    if named and len(sets.rows) > 2 and all(row["value"] is None for row in rows):
        raise InputError(f"{measure.name}, {rows[0]['at']['modality']}: {rows[0]['note']}")
    return rows


def _note(measure: Measure, at: Mapping[str, Any], error: InputError) -> Row:
    return {"measure": measure.name, "value": None, "note": _without_name(measure, error), "at": dict(at)}


def _without_name(measure: Measure, error: InputError) -> str:
    return str(error).removeprefix(f"{measure.name} ")
