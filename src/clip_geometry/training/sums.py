"""What batches of embeddings leave behind: moments, sums over pairs and a sample of the rows, which merge exactly."""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import chain, combinations
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from clip_geometry.geometry import Measure, Moments, alignment, measures
from clip_geometry.geometry.spectrum import effective_rank
from clip_geometry.geometry.statistics import Means, PairDistance, Statistic, UnitPairs, UnitSums
from clip_geometry.registry import InputError, listed
from clip_geometry.rows.arguments import SMALLEST, as_tensor
from clip_geometry.rows.matrix import unit_rows

HEADER = 4  # d, pairs, pairs left out, rows kept

Place = tuple[str, ...]  # one modality, or the two of a couple


@dataclass(frozen=True, eq=False)
class Plan:
    """What is measured. Raises InputError for measures that need more than rows and pairs.

    Args:
        modalities: Their names, sorted as everywhere in the package.
        names: Names in `measures`.
        kept: Rows of the sample, for measures that sums do not give.
        seed: Of the sample.
    """

    modalities: tuple[str, ...]
    names: tuple[str, ...]
    kept: int
    seed: int

    def __post_init__(self):
        for name in self.names:
            takes = measures[name].takes
            if takes not in ("rows", "two sets", "pairs", "distinct pairs", "matched sets"):
                raise InputError(f"{name} takes {takes}; a live metric has rows and pairs only")
            if measures[name].inputs.across and not self.couples:
                there = listed(self.modalities)
                raise InputError(f"{name} compares two modalities, and there is one, {there}; leave it out")

    @property
    def couples(self) -> list[Place]:
        return list(combinations(self.modalities, 2))

    @property
    def numbers(self) -> dict[str, tuple[str, Place]]:
        """Name of each number, `name/modality` or `name/first+second` → its measure and what that is taken of."""
        found = {}
        for name in self.names:
            across = measures[name].inputs.across
            for place in self.couples if across else [(each,) for each in self.modalities]:
                found[name if across and len(self.modalities) == 2 else f"{name}/{'+'.join(place)}"] = name, place
        return found


@dataclass(frozen=True, eq=False)
class GeometrySums:
    """The sums of aligned unit rows of all modalities, float64; `+` merges them, in any order and from any process.

    Args:
        plan: What is measured.
        n: Items: rows of each modality.
        invalid: Items left out, since one of their rows is not finite or has no direction.
        moments: Of each modality.
        pairs: (couples,) Σ‖x − y‖² of each couple.
        sample: (k, 1 + modalities · d) a key and the rows as given, ordered by key. It keeps the rows with the lowest
            keys. A key is a hash of the rows, so that the sample depends on all rows together, neither on their order
            nor on how they are dealt to processes.
    """

    plan: Plan
    n: int
    invalid: int
    moments: tuple[Moments, ...]
    pairs: Float[Tensor, " c"]
    sample: Float[Tensor, "k w"]

    @classmethod
    def of(cls, plan: Plan, rows: Mapping[str, Any]) -> "GeometrySums | None":
        """The sums of a batch; None for a batch without rows. Raises InputError if the rows are no pairs."""
        given = [as_tensor(rows[name], name).detach() for name in plan.modalities]
        for name, each in zip(plan.modalities[1:], given[1:], strict=True):
            if each.shape != given[0].shape:
                shapes = f"{plan.modalities[0]} has shape {tuple(given[0].shape)} and {name} has {tuple(each.shape)}"
                raise InputError(f"{shapes}; expected pairs in one space, row i with row i")
        stacked = torch.stack([each.to(given[0].device, torch.float64) for each in given], 1)  # (n, modalities, d)
        if not len(stacked):
            return None
        length = stacked.abs().amax(2)  # squares must stay in float64; of a zero row there is no direction
        valid = (length.isfinite() & (length >= SMALLEST) & (length <= 1 / SMALLEST)).all(1)
        invalid = len(valid) - int(valid.sum())
        stacked = stacked[valid] if invalid else stacked
        n, several, d = stacked.shape
        zeros = stacked.new_zeros
        if not n:
            nothing = (Moments(0, zeros(d), zeros(d, d), zeros(d), zeros(())),) * several
            return cls(plan, 0, invalid, nothing, zeros(len(plan.couples)), zeros(0, 1 + several * d))
        units = {name: unit_rows(stacked[:, k]) for k, name in enumerate(plan.modalities)}
        squares = [float(n) * alignment(units[a], units[b]) for a, b in plan.couples]
        pairs = torch.stack(squares) if squares else zeros(0)
        sample = _lowest(torch.cat([_keys(stacked, plan.seed), stacked.flatten(1)], 1), plan.kept)
        return cls(plan, n, invalid, tuple(map(Moments.of, units.values())), pairs, sample)

    def __add__(self, other: "GeometrySums") -> "GeometrySums":
        if self.sample.shape[1] != other.sample.shape[1]:
            d, wrong = (each.moments[0].d for each in (self, other))
            raise InputError(f"rows have dimension {wrong}, those before had {d}; reset the metric between models")
        if not self.n or not other.n:
            full, empty = (self, other) if self.n else (other, self)
            return GeometrySums(**{**vars(full), "invalid": full.invalid + empty.invalid})
        moments = tuple(a + b for a, b in zip(self.moments, other.moments, strict=True))
        sample = _lowest(torch.cat([self.sample, other.sample]), self.plan.kept)
        n, invalid = self.n + other.n, self.invalid + other.invalid
        return GeometrySums(self.plan, n, invalid, moments, self.pairs + other.pairs, sample)

    # --- as one vector, which torchmetrics gathers and saves

    def packed(self) -> Float[Tensor, " p"]:
        """All of it in one vector, of which several can be concatenated."""
        header = self.pairs.new_tensor([self.moments[0].d, self.n, self.invalid, len(self.sample)])
        fields = [(each.mean, each.M2.flatten(), each.T, each.Q[None]) for each in self.moments]
        return torch.cat([header, self.pairs, *chain(*fields), self.sample.flatten()])

    @classmethod
    def unpacked(cls, plan: Plan, vector: Float[Tensor, " p"]) -> "list[GeometrySums]":
        """Those whose vectors were concatenated."""
        found, m, c = [], len(plan.modalities), len(plan.couples)
        while len(vector):
            d, n, invalid, k = (int(each) for each in vector[:HEADER].tolist())
            sizes = [HEADER, c, *[d, d * d, d, 1] * m, k * (1 + m * d)]
            _, pairs, *fields, sample = vector[: sum(sizes)].split(sizes)
            moments = tuple(
                Moments(n, mean, m2.view(d, d), t, q[0])
                for mean, m2, t, q in zip(*(fields[start::4] for start in range(4)), strict=True)
            )
            found.append(cls(plan, n, invalid, moments, pairs, sample.view(k, 1 + m * d)))
            vector = vector[sum(sizes) :]
        return found

    # --- what is measured

    def values(self) -> dict[str, Float[Tensor, ""]]:
        """Every number by its name, `name/modality` for one modality and `name/first+second` if there are more than two
        modalities; NaN where it is undefined, as for rows that are all equal. And `invalid_rows`."""
        found: dict[str, Tensor] = {}
        calls: dict[Any, Any] = {}  # several numbers are read from one call
        for key, (name, place) in self.plan.numbers.items():
            try:
                value = self._value(name, place, calls)
            except (InputError, torch.linalg.LinAlgError):  # pyright: ignore[reportPrivateImportUsage]
                value = torch.nan
            found[key] = torch.as_tensor(value, dtype=torch.float64, device=self.pairs.device)
        return found | {"invalid_rows": self.pairs.new_tensor(float(self.invalid))}

    def _value(self, name: str, place: Place, calls: dict[Any, Any]) -> Any:
        if not self.n:
            raise InputError("there are no rows")
        measure: Measure = measures[name]
        statistic = self._statistic(measure, place)
        if statistic is not None:
            if self.n < measure.least_n:
                raise InputError("there are too few rows")
            return measure.function(statistic, **measure.options)
        call = (measure.function, repr(measure.options), place)
        if call not in calls:
            rows = self.sample[:, 1:].unflatten(1, (len(self.plan.modalities), -1))
            try:
                sets = (unit_rows(rows[:, self.plan.modalities.index(each)]) for each in place)
                calls[call] = measure.function(*sets, **measure.options)
            except InputError as error:
                calls[call] = error
        if isinstance(calls[call], InputError):
            raise calls[call]
        return measure.pick(calls[call])

    def _statistic(self, measure: Measure, place: Place) -> Statistic | None:
        """What the measure is a function of, if the sums tell it."""
        moments = [self.moments[self.plan.modalities.index(each)] for each in place]
        if measure.statistic is Moments or measure.function is effective_rank:
            return moments[0]
        if measure.statistic is Means:
            squares = tuple(each.M2.trace() / each.n + each.mean.square().sum() for each in moments)
            return Means.known(image=moments[0].mean, text=moments[1].mean, squares=squares)
        sums = [UnitSums.known(n=each.n, mean=each.mean, spread=each.M2.trace()) for each in moments]
        if measure.statistic is UnitSums:
            return sums[0]
        if measure.statistic in (UnitPairs, PairDistance):
            apart = self.pairs[self.plan.couples.index(place)]
            if measure.statistic is PairDistance:
                return PairDistance.known(n=self.n, apart=apart)
            return UnitPairs.known(n=self.n, image=sums[0], text=sums[1], apart=apart)
        return None


def _keys(stacked: Float[Tensor, "n m d"], seed: int) -> Float[Tensor, "n 1"]:
    """A hash of each row's bits in [0, 1): a random linear map modulo 2⁶⁴ between the mixing steps of MurmurHash3, so
    that the keys of half-precision rows, whose last bits are zero, are uniform, too."""
    bits = stacked.flatten(1).view(torch.int64)
    factors = torch.randint(-(2**62), 2**62, (bits.shape[1],), generator=torch.Generator().manual_seed(seed)) * 2 + 1
    mixed = ((bits ^ _shifted(bits, 32)) * factors.to(bits.device)).sum(1)
    mixed = (mixed ^ _shifted(mixed, 33)) * -49064778989728563
    return _shifted(mixed ^ _shifted(mixed, 33), 11)[:, None].double() / 2**53


def _shifted(bits: Tensor, by: int) -> Tensor:
    """To the right, filled with zeros, not with the sign."""
    return (bits >> by) & (2 ** (64 - by) - 1)


def _lowest(sample: Float[Tensor, "k w"], kept: int) -> Float[Tensor, "j w"]:
    return sample[sample[:, 0].argsort(stable=True)[:kept]]
