"""The geometry of embeddings as a torchmetrics metric."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any

import torch
import torchmetrics
from jaxtyping import Float
from torch import Tensor

from clip_geometry.geometry import Measure, alignment, measures
from clip_geometry.geometry.spectrum import effective_rank
from clip_geometry.geometry.statistics import Means, PairDistance, Statistic, UnitPairs, UnitSums
from clip_geometry.geometry.statistics.moments import Moments
from clip_geometry.modalities import modality_name
from clip_geometry.registry import InputError, listed, names_in
from clip_geometry.rows.arguments import SMALLEST, as_tensor, seed_number, whole_number
from clip_geometry.rows.matrix import unit_rows

OF_EACH = (
    "average_cosine",
    "isoscore",
    "isoscore[unbiased]",
    "effective_rank",
    "effective_rank[uncentred]",
    "coordinate_spread",
    "uniformity",
)
ACROSS = (
    "modality_gap",
    "relative_modality_gap",
    "alignment",
    "retrieval.image_to_text.r_at_1",
    "retrieval.text_to_image.r_at_1",
)
TAKES = ("rows", "two sets", "pairs", "distinct pairs", "matched sets")  # inputs that rows and pairs can provide
HEADER = 4  # entries at the start of a packed state: dimension, n, invalid, rows of the sample


class EmbeddingGeometry(torchmetrics.Metric):
    """A torchmetrics metric of the geometry of embeddings, such as modality gap and rank, that arrive in batches.

    `update(image=…, text=…)` takes aligned batches, row i with row i. `compute()` returns a flat dict of 0-d float64
    tensors. The names are those of `cg.geometry.measures`: `modality_gap` for two modalities, `effective_rank/image`
    for a measure of one, and `modality_gap/image+text` if there are more than two. The default measures describe gap,
    cone, isotropy, rank, alignment, uniformity and recall.

    Measures of the variance and of pairs are computed from sums, which merge exactly across batches and processes, in
    float64 whatever the precision of the model. All other measures, such as `uniformity` and recall, are computed on a
    random sample of `kept` items. The sample depends only on the rows and the seed, not on their order or their
    distribution over processes. Recall within a sample depends on its size, so compare only runs with equal `kept`.
    With at most `kept` items, all numbers equal those of `cg.measure`.

    Items with a row that is zero, NaN or infinite are left out and counted as `invalid_rows`. A number that is
    undefined, as for rows that are all equal, is NaN, so that training continues. `forward` also returns the numbers of
    the batch, which takes longer than `update`.

    Args:
        modalities: Names of the modalities; default "image", "text". Rows of a single modality can be given to `update`
            by position.
        measures: Names in `cg.geometry.measures` of measures that take rows or pairs; None for the default measures.
        kept: Number of items in the sample, at least 2.
        seed: Seed of the sample.
        options: Options of `torchmetrics.Metric`, such as `process_group`.

    Raises:
        InputError: A name is unknown, or a measure needs more than rows and pairs. In `update`: a modality is missing,
            or the rows are not pairs in one space.

    Example:
        >>> import torch
        >>> from clip_geometry.training import EmbeddingGeometry
        >>> metric = EmbeddingGeometry()
        >>> image, text = torch.randn(2, 300, 8, generator=torch.Generator().manual_seed(0))
        >>> for start in range(0, 300, 50):
        ...     metric.update(image=image[start : start + 50], text=text[start : start + 50] + 1)
        >>> values = metric.compute()
        >>> round(float(values["modality_gap"]), 3), round(float(values["effective_rank/image"]), 3)
        (0.717, 7.971)
    """

    is_differentiable = False
    higher_is_better = None
    full_state_update = False
    packed: list[Tensor]

    def __init__(
        self,
        *modalities: str,
        measures: Sequence[str] | None = None,
        kept: int = 512,
        seed: int = 0,
        **options: Any,
    ):
        super().__init__(**options)
        names = sorted(modality_name(name) for name in modalities or ("image", "text"))
        if len(set(names)) < len(names):
            raise InputError(f"modalities are {listed(names)}; expected different names")
        if measures is None:
            measures = (*(ACROSS if len(names) > 1 else ()), *OF_EACH)
        measures = names_in(measures, "measures")
        if not measures:
            raise InputError("measures is empty; expected names, or None for the usual ones")
        kept = whole_number(kept, "kept", least=2)
        self.plan = Plan(tuple(names), tuple(measures), kept, seed_number(seed))
        self.items = 0  # number of items in the last `compute`, including those left out
        self.add_state("packed", [], dist_reduce_fx="cat")
        self._dtype = torch.float64  # dtype that torchmetrics gathers from a process without rows

    def update(self, *rows: Any, **named: Any) -> None:
        """Add a batch.

        Args:
            rows: (n, d) rows, if there is only one modality.
            named: (n, d) rows of each modality by its name.
        """
        known = self.plan.modalities
        if len(rows) == len(known) == 1 and not named:
            named = {known[0]: rows[0]}
            rows = ()
        if rows or named.keys() != set(known):
            given = f"{len(rows)} unnamed and {listed(named)}" if rows else listed(named)
            raise InputError(f"rows of {given} were given; expected update({', '.join(f'{name}=…' for name in known)})")
        batch = GeometrySums.of(self.plan, named)
        if batch is not None:
            previous = self.sums
            self.packed = [(batch if previous is None else previous + batch).packed()]

    def _reduce_states(self, incoming_state: dict[str, Any]) -> None:
        """Merge the states, since torchmetrics only collects one for each call of the metric."""
        super()._reduce_states(incoming_state)
        total = self.sums
        self.packed = [] if total is None else [total.packed()]

    def compute(self) -> dict[str, Tensor]:
        """Return the numbers of all rows of all processes since the last reset, by name; empty if there are none."""
        sums = self.sums
        self.items = 0 if sums is None else sums.n + sums.invalid
        return {} if sums is None else sums.values()

    @property
    def sums(self) -> "GeometrySums | None":
        """The merged state; None before the first rows."""
        vectors = [self.packed] if isinstance(self.packed, Tensor) else self.packed  # a tensor once gathered
        total = None
        for vector in vectors:
            while len(vector):
                part, vector = GeometrySums.unpacked(self.plan, vector)
                total = part if total is None else total + part
        return total

    def _apply(self, fn: Any, exclude_state: Sequence[str] = "") -> "EmbeddingGeometry":
        """Move the state to another device, but never to another precision: float16 would keep only three digits."""
        super()._apply(lambda tensor: tensor.to(fn(tensor.float()).device), exclude_state)
        self._dtype = torch.float64
        return self

    def _filter_kwargs(self, **kwargs: Any) -> dict[str, Any]:
        """Select the modalities in a MetricCollection, whose other metrics take labels and targets."""
        return {name: kwargs[name] for name in self.plan.modalities if name in kwargs}


@dataclass(frozen=True, eq=False)
class Plan:
    """What to measure. Raises InputError for measures that need more than rows and pairs.

    Args:
        modalities: Names of the modalities, sorted.
        names: Names in `cg.geometry.measures`.
        kept: Number of rows in the sample, for measures that sums do not determine.
        seed: Seed of the sample.
    """

    modalities: tuple[str, ...]
    names: tuple[str, ...]
    kept: int
    seed: int

    def __post_init__(self):
        for name in self.names:
            if measures[name].takes not in TAKES:
                raise InputError(f"{name} takes {measures[name].takes}; a live metric has rows and pairs only")
            if measures[name].inputs.across and not self.couples:
                only = self.modalities[0]
                raise InputError(f"{name} compares two modalities, but there is only one, {only}; leave it out")

    @property
    def couples(self) -> list[tuple[str, ...]]:
        """All combinations of two modalities."""
        return list(combinations(self.modalities, 2))

    @property
    def numbers(self) -> dict[str, tuple[str, tuple[str, ...]]]:
        """Name of each number, `name/modality` or `name/first+second` → its measure and its modalities."""
        numbers = {}
        for name in self.names:
            across = measures[name].inputs.across
            groups = self.couples if across else [(modality,) for modality in self.modalities]
            for modalities in groups:
                key = name if across and len(self.modalities) == 2 else f"{name}/{'+'.join(modalities)}"
                numbers[key] = name, modalities
        return numbers


@dataclass(frozen=True, eq=False)
class GeometrySums:
    """Sums over the aligned unit rows of all modalities, in float64; `+` merges them in any order, across processes.

    Args:
        plan: What to measure.
        n: Number of items: rows of each modality.
        invalid: Number of items left out, because one of their rows is not finite or has no direction.
        moments: Moments of each modality; zeros if there are no rows.
        pairs: (couples,) Σ‖x − y‖² of each couple of modalities.
        sample: (k, 1 + modalities · d) the rows with the lowest keys, as given, each after its key. The key is a hash
            of the row, so the sample depends on all rows together, not on their order or distribution over processes.
    """

    plan: Plan
    n: int
    invalid: int
    moments: tuple[Moments, ...]
    pairs: Float[Tensor, " c"]
    sample: Float[Tensor, "k w"]

    @classmethod
    def of(cls, plan: Plan, rows: Mapping[str, Any]) -> "GeometrySums | None":
        """Return the sums of a batch; None for a batch without rows. Raises InputError if the rows are not pairs."""
        tensors = {name: as_tensor(rows[name], name).detach() for name in plan.modalities}
        if len({x.shape for x in tensors.values()}) > 1:
            shapes = " and ".join(f"{name} has shape {tuple(x.shape)}" for name, x in tensors.items())
            raise InputError(f"{shapes}; expected pairs in one space, row i with row i")
        device = tensors[plan.modalities[0]].device
        stacked = torch.stack([x.to(device, torch.float64) for x in tensors.values()], 1)  # (n, modalities, d)
        if not len(stacked):
            return None
        length = stacked.abs().amax(2)  # squares must stay within float64, and a zero row has no direction
        valid = (length.isfinite() & (length >= SMALLEST) & (length <= 1 / SMALLEST)).all(1)
        stacked = stacked[valid]
        n, _, d = stacked.shape
        invalid = len(valid) - n
        keyed = torch.cat([_keys(stacked, plan.seed), stacked.flatten(1)], 1)
        pairs = stacked.new_zeros(len(plan.couples))
        if not n:
            empty = Moments(0, *(stacked.new_zeros(shape) for shape in ((d,), (d, d), (d,), ())))
            return cls(plan, 0, invalid, (empty,) * len(tensors), pairs, keyed)
        units = {name: unit_rows(stacked[:, k]) for k, name in enumerate(tensors)}
        for k, (a, b) in enumerate(plan.couples):
            pairs[k] = n * alignment(units[a], units[b])
        return cls(plan, n, invalid, tuple(map(Moments.of, units.values())), pairs, _lowest(keyed, plan.kept))

    def __add__(self, other: "GeometrySums") -> "GeometrySums":
        if self.sample.shape[1] != other.sample.shape[1]:
            d = self.moments[0].d
            new_d = other.moments[0].d
            raise InputError(f"rows have dimension {new_d}, but earlier rows had {d}; reset the metric between models")
        invalid = self.invalid + other.invalid
        if not self.n or not other.n:
            return replace(self if self.n else other, invalid=invalid)
        moments = tuple(a + b for a, b in zip(self.moments, other.moments, strict=True))
        sample = _lowest(torch.cat([self.sample, other.sample]), self.plan.kept)
        return GeometrySums(self.plan, self.n + other.n, invalid, moments, self.pairs + other.pairs, sample)

    def packed(self) -> Float[Tensor, " p"]:
        """Return all sums as one vector; torchmetrics concatenates the vectors of several processes."""
        header = self.pairs.new_tensor([self.moments[0].d, self.n, self.invalid, len(self.sample)])
        fields = [field for m in self.moments for field in (m.mean, m.M2.flatten(), m.T, m.Q[None])]
        return torch.cat([header, self.pairs, *fields, self.sample.flatten()])

    @classmethod
    def unpacked(cls, plan: Plan, vector: Float[Tensor, " p"]) -> "tuple[GeometrySums, Float[Tensor, ' q']]":
        """Return the sums at the start of a vector, and the rest of the vector."""
        d, n, invalid, k = map(int, vector[:HEADER].tolist())
        count = len(plan.modalities)
        shapes = [(len(plan.couples),), *[(d,), (d, d), (d,), ()] * count, (k, 1 + count * d)]
        sizes = [math.prod(shape) for shape in shapes]
        _, *fields, rest = vector.split([HEADER, *sizes, len(vector) - HEADER - sum(sizes)])
        pairs, *parts, sample = (field.view(shape) for field, shape in zip(fields, shapes, strict=True))
        moments = tuple(Moments(n, *parts[start : start + 4]) for start in range(0, len(parts), 4))
        return cls(plan, n, invalid, moments, pairs, sample), rest

    def values(self) -> dict[str, Float[Tensor, ""]]:
        """Return every number by name, NaN if undefined, as for rows that are all equal; and `invalid_rows`."""
        numbers: dict[str, Tensor] = {}
        for key, (name, modalities) in self.plan.numbers.items():
            try:
                value = self._value(measures[name], modalities)
            except (InputError, torch.linalg.LinAlgError):  # pyright: ignore[reportPrivateImportUsage]
                value = torch.nan
            numbers[key] = torch.as_tensor(value, dtype=torch.float64, device=self.pairs.device)
        return numbers | {"invalid_rows": self.pairs.new_tensor(float(self.invalid))}

    def _value(self, measure: Measure, modalities: tuple[str, ...]) -> Any:
        """Compute one measure from the accumulated sums if they determine it, otherwise from the sample."""
        columns = [self.plan.modalities.index(modality) for modality in modalities]
        statistic = self._statistic(measure, modalities, [self.moments[k] for k in columns]) if self.n else None
        if self.n < (1 if statistic is None else measure.least_n):
            raise InputError("there are too few rows")
        if statistic is not None:
            return measure.function(statistic, **measure.options)
        rows = self.sample[:, 1:].unflatten(1, (len(self.moments), -1))
        return measure(*(unit_rows(rows[:, k]) for k in columns))

    def _statistic(self, measure: Measure, modalities: tuple[str, ...], moments: list[Moments]) -> Statistic | None:
        """Return the statistic that the measure is a function of, if the sums determine it; otherwise None."""
        if measure.statistic is Moments or measure.function is effective_rank:
            return moments[0]
        units = [UnitSums.known(n=m.n, mean=m.mean, spread=m.M2.trace()) for m in moments]
        if measure.statistic is UnitSums:
            return units[0]
        if measure.statistic is Means:
            squares = tuple(m.M2.trace() / m.n + m.mean.square().sum() for m in moments)
            return Means.known(image=moments[0].mean, text=moments[1].mean, squares=squares)
        if measure.statistic in (PairDistance, UnitPairs):
            apart = self.pairs[self.plan.couples.index(modalities)]
            sums = {} if measure.statistic is PairDistance else {"image": units[0], "text": units[1]}
            return measure.statistic.known(n=self.n, apart=apart, **sums)
        return None


def _keys(stacked: Float[Tensor, "n m d"], seed: int) -> Float[Tensor, "n 1"]:
    """Return a hash in [0, 1) of the bits of each item's rows.

    It is a random linear map modulo 2⁶⁴ between the mixing steps of MurmurHash3, so that the keys are uniform even for
    half-precision rows, whose last bits are zero.
    """
    bits = stacked.flatten(1).view(torch.int64)
    factors = torch.randint(-(2**62), 2**62, (bits.shape[1],), generator=torch.Generator().manual_seed(seed)) * 2 + 1
    mixed = ((bits ^ _shifted(bits, 32)) * factors.to(bits.device)).sum(1)
    mixed = (mixed ^ _shifted(mixed, 33)) * -49064778989728563
    return _shifted(mixed ^ _shifted(mixed, 33), 11)[:, None].double() / 2**53


def _shifted(bits: Tensor, by: int) -> Tensor:
    """Shift bits to the right, filling with zeros instead of the sign."""
    return (bits >> by) & (2 ** (64 - by) - 1)


def _lowest(sample: Float[Tensor, "k w"], kept: int) -> Float[Tensor, "j w"]:
    return sample[sample[:, 0].argsort(stable=True)[:kept]]
