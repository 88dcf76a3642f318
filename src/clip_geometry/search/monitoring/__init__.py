"""Baselines: whether an index is still what it was, and if not, what changed."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from importlib.metadata import version
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from clip_geometry.config import Config
from clip_geometry.display.numbers import percent
from clip_geometry.embeddings import Embeddings
from clip_geometry.files import read_saved, write_json
from clip_geometry.measuring.given import given_sets
from clip_geometry.memory import give_back
from clip_geometry.registry import InputError, instance, listed
from clip_geometry.rows.arguments import real_number, seed_number, whole_number
from clip_geometry.search.checks import Context
from clip_geometry.search.mixed_index import require_one_space
from clip_geometry.search.monitoring.decision import Difference, Kind, SetComparison, cause, is_int8
from clip_geometry.search.monitoring.known import keys_by_content, known_rows, neighbors_kept
from clip_geometry.search.monitoring.profile import Observed, Profile, foreign_share, observe, profile_of, unit_rows

if TYPE_CHECKING:
    from clip_geometry.display.table import Table

FORMAT = 1
SENTENCES: dict[Kind, str] = {
    "same": "same",
    "data": "same model, different data",
    "preprocessing": "same model, different preprocessing",
    "model": "different model",
    "mixed": "mixed: some rows are from another model",
    "quantized": "quantized, or stored in another number format",
    "poisoned": "poisoned: some rows attract too many queries",
    "queries": "the queries are from another model than the index",
    "ids": "rows belong to the wrong ids",
    "text_length": "rows are ordered by text length",
}


class _File(Config):
    format: int
    version: str
    checks: int
    error_rate: float
    sets: dict[str, Profile]


class GateCheck:
    """Result of `Baseline.check`: whether an index has changed since its baseline, and how.

    Attributes:
        kind: The kind of change: "same" (none), "data" (same model, different data), "preprocessing" (same model,
            different preprocessing), "model" (different model), "mixed" (some rows from another model), "quantized"
            (other number format), "poisoned" (some rows attract too many queries), "queries" (queries from another
            model than the index), "ids" (rows belong to the wrong ids) or "text_length" (rows are ordered by the length
            of their text).
        cause: The difference that explains the other differences, as a `Difference`; None if nothing differs.
        changed: Whether the gate fails. Drift within the tolerance, up to 5% of edited or of missing rows, and new rows
            are listed in `differences`, but the gate passes.
        differences: All differences found, as a `Difference` each, with evidence and row numbers.
        shapes: Modality → (n, d) of the checked set.
        kept: Modality → share of the ten nearest rows of 64 stored sample rows (canaries) that the same searches still
            find. Sets that no longer contain their canaries are left out.

    Example:
        >>> import numpy as np, clip_geometry as cg
        >>> x = np.random.default_rng(0).normal(size=(300, 16))
        >>> result = cg.gate({"image": x}).check({"image": x})
        >>> result.kind, result.changed
        ('same', False)
    """

    def __init__(
        self,
        differences: Sequence[Difference],
        shapes: Mapping[str, tuple[int, int]],
        kept: Mapping[str, float] | None = None,
    ):
        instance(differences, list | tuple, "differences", "a list of Difference")
        self.differences = tuple(instance(each, Difference, "a difference", "a Difference") for each in differences)
        self.shapes = dict(instance(shapes, Mapping, "shapes", "modality → (n, d)"))
        self.kept = dict(instance(kept, Mapping | None, "kept", "modality → share") or {})
        self.cause = cause(self.differences)
        self.kind: Kind = "same" if self.cause is None else self.cause.kind
        self.changed = any(each.changed for each in self.differences)

    @property
    def verdict(self) -> str:
        """The answer in one sentence."""
        worst = self.cause
        if worst is None:
            return "Same: the index is what it was."
        text = SENTENCES[worst.kind]
        detail = f" ({worst.detail})" if worst.detail else ""
        alike = [each.modality for each in self.differences if (each.kind, each.changed) == (worst.kind, worst.changed)]
        where = f" in {listed(dict.fromkeys(alike))}" if worst.modality else ""
        tolerated = "" if self.changed else "; this is within the tolerance"
        return f"{text[0].upper()}{text[1:]}{detail}{where}{tolerated}."

    @property
    def frame(self) -> pd.DataFrame:
        """The differences as a table with the columns set, kind, detail, changed, rows and evidence."""
        columns = ["set", "kind", "detail", "changed", "rows", "evidence"]
        lines = [
            (each.modality, each.kind, each.detail, each.changed, list(each.rows), each.evidence)
            for each in self.differences
        ]
        return pd.DataFrame(lines, columns=columns)

    def to_json(self) -> str:
        """Return the result as JSON."""
        facts = {name: getattr(self, name) for name in ("kind", "changed", "verdict", "shapes", "kept")}
        facts["differences"] = [asdict(each) for each in self.differences]
        return json.dumps(facts, ensure_ascii=False, indent=1)

    def table(self) -> "Table":
        """Return the differences of each set as a table, with the verdict."""
        from clip_geometry.display.table import Table, TableColumn

        lines = [
            [each.kind, each.detail or "–", "changed" if each.changed else "tolerated", listed(each.rows, 3)]
            for each in self.differences
        ]
        groups: dict[str, list[list[str]]] = {}
        for change, line in zip(self.differences, lines, strict=True):
            groups.setdefault(change.modality, []).append(line)
        sizes = [f"{n:,} {name} rows × {d}{self._searched(name)}" for name, (n, d) in self.shapes.items()]
        return Table(
            [TableColumn(name) for name in ("what", "detail", "gate", "rows")] if groups else [],
            groups,
            verdict=[self.verdict],
            named_groups=True,
            heading=sizes,
            legend=[str(change) for change in self.differences],
        )

    def _searched(self, modality: str) -> str:
        if modality not in self.kept:
            return ""
        kept = percent(self.kept[modality])
        return f"; rows of the baseline still find {kept} of the rows that were nearest to them"

    def __str__(self) -> str:
        return str(self.table())


class Baseline(Mapping[str, Profile]):
    """Result of `gate`: a compact record of an index, with which later versions of the index are compared.

    It is a mapping of modality → statistics of that set. `check` compares an index with it, `save` writes it to a file,
    and `read_gate` reads the file.

    Attributes:
        profiles: Modality → statistics of the set.
        checks: Number of calls of `check` for which the baseline is planned; `error_rate` holds for all of them
            together.
        error_rate: Probability that at least one of these checks reports a change although nothing has changed.

    Example:
        >>> import numpy as np, clip_geometry as cg
        >>> rng = np.random.default_rng(0)
        >>> x = rng.normal(size=(300, 16)) + np.arange(16)
        >>> cg.gate({"image": x}).save("baseline.json")
        >>> baseline = cg.read_gate("baseline.json")
        >>> baseline.check({"image": x}).kind
        'same'
        >>> rotation = np.linalg.qr(rng.normal(size=(16, 16)))[0]
        >>> baseline.check({"image": x @ rotation}).kind
        'model'
    """

    def __init__(self, profiles: Mapping[str, Profile], checks: int, error_rate: float):
        instance(profiles, Mapping, "profiles", "modality → Profile")
        self.profiles = {name: instance(each, Profile, "a profile", "a Profile") for name, each in profiles.items()}
        self.checks, self.error_rate = checks, error_rate

    def __getitem__(self, modality: str) -> Profile:
        return self.profiles[modality]

    def __iter__(self) -> Iterator[str]:
        return iter(self.profiles)

    def __len__(self) -> int:
        return len(self.profiles)

    def save(self, path: str | Path) -> None:
        """Write the baseline to a JSON file.

        Raises:
            InputError: The file cannot be written.
        """
        sets = {name: profile.model_dump(mode="json") for name, profile in self.profiles.items()}
        facts = {"checks": self.checks, "error_rate": self.error_rate}
        write_json(Path(path), {"format": FORMAT, "version": version("clip-geometry"), **facts, "sets": sets})

    def check(
        self, image: Any, text: Any = None, *more: Any, ids: Any = None, queries: Any = None, seed: int = 0
    ) -> GateCheck:
        """Compare an index with the baseline, and say whether and how it has changed.

        Args:
            image: The first set, or all sets; `image`, `text`, `more` and `ids` are given as in `measure`.
            text: The second set.
            more: Further sets.
            ids: The item of each row.
            queries: Rows of recent queries, given as `image`. They are compared with the set of their modality.
            seed: Seed of the samples.

        Returns:
            A `GateCheck` with the kind of change and its evidence.

        Raises:
            InputError: The sets are not as described, or are not those of the baseline.
        """
        sets = given_sets(image, text, *more, ids=ids)
        require_one_space(sets, "one index")
        self._require_same_sets(sets)
        error = self.error_rate / self.checks / len(sets)
        context = Context(sets, seed=seed_number(seed))
        differences = []
        seen: dict[str, Observed] = {}
        for modality, embeddings in sets.items():
            if embeddings.dim != self[modality].d:
                text = f"The rows have {embeddings.dim} columns, and those of the baseline {self[modality].d}."
                differences.append(Difference("model", modality, "", text, True))
                continue
            profile = self[modality]
            seen[modality] = observe(
                context, modality, profile.axes.values, profile.canaries.values, profile.directions()
            )
            give_back()
        keys = {modality: self._keys(modality, observed) for modality, observed in seen.items()}
        kept: dict[str, float] = {}
        comparisons = []
        for modality, observed in seen.items():
            profile = self[modality]
            known = known_rows(profile, observed, keys[modality], is_int8(profile, observed))
            if len(known.canaries):
                kept[modality] = neighbors_kept(profile, observed, keys[modality], known)
            unit = unit_rows(context, modality, known.canary_rows)
            comparisons.append(SetComparison(modality, profile, observed, known, unit, error))
        asking = [each.modality for each in comparisons if each.asks_as_before]
        for each in comparisons:
            differences += each.differences(asking)
        differences += _disagreeing(self.profiles, seen, keys)
        differences += self._foreign_queries(queries) if queries is not None else []
        return GateCheck(differences, {name: embeddings.vectors.shape for name, embeddings in sets.items()}, kept)

    def _require_same_sets(self, sets: Mapping[str, Embeddings]) -> None:
        """Raise InputError if the sets have other names than those of the baseline, or other ids than it expects."""
        if sets.keys() != self.profiles.keys():
            raise InputError(
                f"the sets are {listed(sets)}, and those of the baseline {listed(self.profiles)}; give "
                "the same sets, or make a new baseline"
            )
        for name, embeddings in sets.items():
            if self[name].keyed != (embeddings.item_id is not None):
                had, has = ("have", "no") if self[name].keyed else ("have no", "")
                raise InputError(
                    f"the {name} rows of the baseline {had} ids, and these have {has or 'some'}; give the same ids, or "
                    "make a new baseline"
                )

    def _keys(self, modality: str, observed: Observed) -> np.ndarray:
        return observed.keys if self[modality].keyed else keys_by_content(self[modality], observed)

    def _foreign_queries(self, queries: Any) -> list[Difference]:
        """Report modalities in which most queries come from another model than the baseline."""
        differences = []
        for modality, rows in given_sets(queries).items():
            if modality not in self.profiles:
                raise InputError(
                    f"the queries are {modality} rows, and the baseline has {listed(self.profiles)}; make the "
                    f"baseline with a log of {modality} queries as one of its sets"
                )
            share = foreign_share(self[modality], rows)
            if share > 0.5:
                text = f"{share:.0%} of them lie outside the principal axes of the {modality} rows of the baseline."
                differences.append(Difference("queries", modality, "", text, True))
        return differences


def _disagreeing(
    profiles: Mapping[str, Profile], seen: Mapping[str, Observed], keys: Mapping[str, np.ndarray]
) -> list[Difference]:
    """Report sets that pair by position and whose rows have moved to different positions."""
    differences = []
    for one, other in combinations([name for name in seen if not profiles[name].keyed], 2):
        if profiles[one].n != profiles[other].n:
            continue
        common, positions, others = np.intersect1d(keys[one], keys[other], return_indices=True)
        known = common < profiles[one].n
        apart = np.flatnonzero(known & (positions != others))
        if len(apart) >= 2 and known.sum() > len(profiles[one].keys.values) / 2:
            text = f"{len(apart):,} of {known.sum():,} known pairs are no longer at the same position in both sets."
            differences.append(
                Difference("ids", other, f"{len(apart):,} rows", text, True, tuple(others[apart].tolist()))
            )
    return differences


def gate(
    image: Any,
    text: Any = None,
    *more: Any,
    labels: Any = None,
    ids: Any = None,
    checks: int = 365,
    error_rate: float = 0.05,
    seed: int = 0,
) -> Baseline:
    """Record a baseline of an index, with which later versions can be checked for changes.

    A baseline has a fixed size below 1 MB. For each set it holds the mean, the principal axes, compressed copies of up
    to 10,000 rows, the full vectors and nearest neighbors of 64 of them (canaries), and the rows that searches return
    most often. Rows are identified by their ids, or by their positions if they have none.

    Most of what `check` compares should be identical, so chance plays no part. Only the drift of new data is a matter
    of chance: the gate fails if the whole interval of the drift lies above 0.25 standard deviations of the rows. The
    intervals are wide enough for all planned `checks` together (Bonferroni correction), so the baseline can be checked
    every day.

    Args:
        image: The first set, or all sets; `image`, `labels` and `ids` are given as in `measure`.
        text: The second set.
        more: Further sets.
        labels: One label per row.
        ids: The item of each row.
        checks: Number of checks for which the baseline is planned.
        error_rate: Probability that any of these checks reports a drift beyond the tolerance that does not exist,
            between 0 and 1.
        seed: Seed of the random samples and of the compressed copies.

    Returns:
        A `Baseline`, whose `check` compares an index with it.

    Raises:
        InputError: The sets are not as described, or a set has fewer than 100 valid rows.

    Example:
        >>> import numpy as np, clip_geometry as cg
        >>> rng = np.random.default_rng(0)
        >>> x = rng.normal(size=(300, 16)) + np.arange(16)
        >>> baseline = cg.gate({"image": x})
        >>> rotation = np.linalg.qr(rng.normal(size=(16, 16)))[0]
        >>> print(baseline.check({"image": x @ rotation}).verdict)
        Different model in image.
    """
    checks = whole_number(checks, "checks", least=1)
    error_rate = real_number(error_rate, "error_rate", lambda x: 0 < x < 1, "a probability between 0 and 1")
    sets = given_sets(image, text, *more, labels=labels, ids=ids)
    require_one_space(sets, "one index")
    context = Context(sets, seed=seed_number(seed))
    profiles = {}
    for modality in sets:
        profiles[modality] = profile_of(context, modality)
        give_back()
    return Baseline(profiles, checks, error_rate)


def read_gate(path: str | Path) -> Baseline:
    """Read a baseline that `Baseline.save` wrote.

    Args:
        path: The JSON file.

    Returns:
        The `Baseline`.

    Raises:
        InputError: The file is missing or damaged, or is not a baseline of a known version.

    Example:
        >>> import numpy as np, clip_geometry as cg
        >>> x = np.random.default_rng(0).normal(size=(300, 16))
        >>> cg.gate({"image": x}).save("baseline.json")
        >>> list(cg.read_gate("baseline.json"))
        ['image']
    """
    stored = read_saved(path, _File, format=FORMAT, what="a baseline", writer="Baseline.save")
    return Baseline(stored.sets, stored.checks, stored.error_rate)
