"""Thirteen faults that are planted in clean rows, each with the rule that says where it can be seen at all.

The rules are computed from the clean rows, before any check runs on what was planted.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

Rows = dict[str, np.ndarray]


@dataclass
class Source:
    """Clean unit rows. modalities: aligned rows (float32). strangers: rows of other models of the same dimension, by
    modality. facts: what a manifest says of the encoder. own_format: of the values, where it is coarser than float32.
    labels: of the rows, where there are any.
    """

    name: str
    modalities: Rows
    strangers: Mapping[str, list[np.ndarray]] = field(default_factory=dict)
    facts: Mapping[str, Any] = field(default_factory=dict)
    own_format: str = "float32"
    labels: np.ndarray | None = None

    def __len__(self) -> int:
        return len(next(iter(self.modalities.values())))


@dataclass
class Folder:
    """Rows of a folder, as faults change them.

    other: a split of other rows. store: whether it is written as a store with a manifest; model and encoder are then
    what it says, truncated and texts what it says of the texts. labels: of the rows, given beside them. native:
    modality → mask of the rows of the source's own model. scale: modality → length of each row, applied last. planted:
    fault → what was done.
    """

    source: Source
    sets: Rows
    other: Rows | None
    store: bool
    model: str = ""
    encoder: dict[str, Any] = field(default_factory=dict)
    truncated: int = 0
    texts: list[str] | None = None
    labels: np.ndarray | None = None
    native: dict[str, np.ndarray] = field(default_factory=dict)
    scale: dict[str, np.ndarray] = field(default_factory=dict)
    planted: dict[str, dict[str, Any]] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(next(iter(self.sets.values())))


def unit(x: np.ndarray) -> np.ndarray:
    x = np.asarray(x, dtype=np.float64)
    return (x / np.linalg.norm(x, axis=1, keepdims=True)).astype(np.float32)


# --- what the clean rows tell, before anything is planted


def pairs_match(sets: Rows) -> bool:
    """Whether pairs can be seen to be wrong: at most 5% of the clean ones rank in the farther half of all rows."""
    if len(sets) < 2:
        return False
    a, b = (x - x.mean(0) for x in list(sets.values())[:2])
    cosines = a[:1000] @ b.T
    ahead = (cosines > np.einsum("nd,nd->n", a[:1000], b[:1000])[:, None]).mean(1)
    return bool((ahead > 0.5).mean() <= 0.05)


def middle_is_a_hub(x: np.ndarray, k: int = 10) -> bool:
    """Whether the mean direction would be among the k nearest rows of three times as many as the most frequent row."""
    if len(x) > 2000:
        x = x[:2000]
    cosines = x @ x.T
    np.fill_diagonal(cosines, -2)
    tenth = -np.partition(-cosines, k - 1, axis=1)[:, k - 1]
    counts = (cosines >= tenth[:, None]).sum(0)
    mean = x.mean(0) / np.linalg.norm(x.mean(0))
    return bool((x @ mean > tenth).sum() >= 3 * counts.max())


def gap_between(sets: Rows) -> bool:
    """Whether every row is nearer to the mean of its modality than to that of the other, by a third of the gap."""
    if len(sets) < 2:
        return False
    a, b = list(sets.values())[:2]
    means = [x.mean(0, dtype=np.float64) for x in (a, b)]
    direction, middle = means[0] - means[1], (means[0] + means[1]) / 2
    gap = direction @ direction
    return bool(min(((a - middle) @ direction).min(), ((middle - b) @ direction).min()) > gap / 6)


def togetherness(x: np.ndarray) -> float:
    """The median row's average of d⟨u, v⟩² over other rows v: 1 for random rows."""
    squares = np.square(x[:600] @ x[:600].T)
    return float(np.median((squares.sum(1) - 1) / (len(squares) - 1)) * x.shape[1])


def first_for(rows: np.ndarray, queries: np.ndarray) -> np.ndarray:
    """For which share of the queries each row is the first result."""
    return np.bincount((queries @ rows.T).argmax(1), minlength=len(rows)) / len(queries)


def own_rank(x: np.ndarray) -> int:
    """Number of directions along which unit rows vary by more than float32 rounding; few where a tower is narrow."""
    centered = x.astype(np.float64) - x.mean(0, dtype=np.float64)
    return int((np.linalg.eigvalsh(centered.T @ centered / len(x)) > 2e-14).sum())


def typical_distance(x: np.ndarray, generator: np.random.Generator) -> float:
    """Median distance to the nearest row that is not equal."""
    cosines = x[generator.permutation(len(x))[:300]] @ x.T
    cosines[cosines > 1 - 1e-6] = -2  # itself and its copies
    return float(np.median(np.sqrt(np.maximum(2 - 2 * cosines.max(1), 0))))


# --- the faults: each changes a folder and says what it did


def mixed_models(folder: Folder, generator: np.random.Generator) -> dict[str, Any]:
    """5 to 50% of the rows (at least 20), in one block or at random places, come from another model, or are rotated
    at random, like rows of the same model with another seed."""
    n = len(folder)
    count = max(20, int(generator.uniform(0.05, 0.5) * n))
    rows = _some(n, count, generator, block=bool(generator.integers(2)))
    names = list(folder.sets)
    names = names if len(names) == 1 or generator.integers(2) else [names[generator.integers(len(names))]]
    d = folder.sets[names[0]].shape[1]
    rotation = np.linalg.qr(generator.normal(size=(d, d)))[0]
    done = {}
    for name in names:
        strangers = [x for x in folder.source.strangers.get(name, ()) if len(x) >= count]
        if strangers and generator.integers(2):
            stranger = strangers[generator.integers(len(strangers))]
            folder.sets[name][rows] = stranger[generator.permutation(len(stranger))[:count]]
            done[name] = "another model"
        else:
            folder.sets[name][rows] = unit(folder.sets[name][rows] @ rotation)
            done[name] = "rotation"
        folder.native[name][rows] = False
    return {"rows": rows.tolist(), "by": done}


def shuffled_pairs(folder: Folder, generator: np.random.Generator) -> dict[str, Any]:
    """8 to 100% of the pairs (at least 16) exchange their partners; at most half of them if there is also a shift."""
    n = len(folder)
    whole = "shifted_pairs" not in folder.planted and generator.integers(4) == 0
    count = n if whole else max(16, int(generator.uniform(0.08, 0.5) * n))
    rows = _some(n, count, generator)
    text = list(folder.sets)[1]
    order = np.roll(generator.permutation(rows), 1)
    before = np.sort(order)
    by_row = dict(zip(order, np.roll(order, 1), strict=True))  # a cycle: nobody keeps its partner
    source = np.array([by_row[row] for row in before])
    for array in (folder.sets[text], folder.native[text]):
        array[before] = array[source]
    return {"share": count / n}


def shifted_pairs(folder: Folder, generator: np.random.Generator) -> dict[str, Any]:
    """All texts are shifted by s rows, cyclically; or the texts after a row (at least 60, and a tenth of all) are
    shifted because one is missing; or the texts of a segment (10 to 30%, at least 50) are shifted by one to three
    rows."""
    n = len(folder)
    text = list(folder.sets)[1]
    kind = ("all", "tail", "segment")[generator.integers(3)]
    shift = int(generator.integers(1, n // 2)) * int(generator.choice([-1, 1]))
    start, stop = 0, n
    if kind == "tail":
        shift = -int(generator.integers(1, 4))
        start = int(generator.integers(n // 10, n - max(60, n // 10)))
    elif kind == "segment":
        shift = int(generator.choice([-3, -2, -1, 1, 2, 3]))
        size = max(50, int(generator.uniform(0.1, 0.3) * n))
        start = int(generator.integers(3, n - size - 3))
        stop = start + size
    for array in (folder.sets[text], folder.native[text]):
        if kind == "segment":
            array[start:stop] = array[start - shift : stop - shift].copy()
        else:
            array[start:] = np.roll(array[start:], shift, axis=0)
    return {"kind": kind, "shift": shift, "first": start, "last": stop - 1}


def exact_duplicates(folder: Folder, generator: np.random.Generator) -> dict[str, Any]:
    """1 to 20% of the items (at least 3) are replaced by copies of others."""
    copies, originals = _two_groups(folder, generator, 0.01, 0.2, 3)
    for name in folder.sets:
        folder.sets[name][copies] = folder.sets[name][originals]
    return {"count": len(copies)}


def near_duplicates(folder: Folder, generator: np.random.Generator) -> dict[str, Any]:
    """1 to 10% of the items (at least 5) are replaced by near copies of others, at 0.5 to 5% of the median distance
    to the nearest row."""
    copies, originals = _two_groups(folder, generator, 0.01, 0.1, 5)
    size = float(np.exp(generator.uniform(np.log(0.005), np.log(0.05))))
    for name, x in folder.sets.items():
        x[copies] = _moved(x[originals], size * typical_distance(x[folder.native[name]], generator), generator)
    return {"count": len(copies), "size": size}


def hubs(folder: Folder, generator: np.random.Generator) -> dict[str, Any] | None:
    """One to three rows are moved close to the mean of all rows, or one row to the mean of a class of at least 40
    rows, if the mean is a hub there (`middle_is_a_hub`). Or one row is moved towards the mean of the other
    modality, until it is first for a tenth of the queries and for four times as many as any clean row."""
    kinds = [kind for kind in ("all", "class", "across") if kind != "class" or folder.source.labels is not None]
    for kind in generator.permutation([kind for kind in kinds if kind != "across" or len(folder.sets) > 1]):
        done = {"all": _in_the_middle, "class": _in_a_class, "across": _across}[str(kind)](folder, generator)
        if done is not None:
            return {"kind": str(kind), **done}
    return None


def _across(folder: Folder, generator: np.random.Generator) -> dict[str, Any] | None:
    names = list(folder.sets)[:2]
    name, other = names if generator.integers(2) else names[::-1]
    rows, queries = folder.sets[name], folder.sets[other][folder.native[other]]
    row = int(generator.choice(np.flatnonzero(folder.native[name])))
    mean = queries.mean(0, dtype=np.float64)
    usual = first_for(rows, queries).max()
    strength = float(generator.uniform(0.15, 0.5))
    while strength <= 1.5:
        moved = rows.copy()
        moved[row] = unit((rows[row] + strength * mean)[None])[0]
        if first_for(moved, queries)[row] >= max(0.1, 4 * usual):
            folder.sets[name][row] = moved[row]
            return {"modality": name, "rows": [row], "strength": strength}
        strength *= 1.25
    return None


def _in_a_class(folder: Folder, generator: np.random.Generator) -> dict[str, Any] | None:
    labels = folder.labels
    name = list(folder.sets)[generator.integers(len(folder.sets))]
    if labels is None:
        return None
    for label in generator.permutation(np.unique(labels)):
        members = np.flatnonzero((labels == label) & folder.native[name])
        if len(members) >= 41 and middle_is_a_hub(folder.sets[name][members], max(1, min(10, len(members) // 20))):
            row = int(generator.choice(members))
            mean = folder.sets[name][members].mean(0, dtype=np.float64)
            folder.sets[name][row] = _moved((mean / np.linalg.norm(mean))[None], 0.1, generator)[0]
            return {"modality": name, "rows": [row]}
    return None


def _in_the_middle(folder: Folder, generator: np.random.Generator) -> dict[str, Any] | None:
    able = [name for name, x in folder.sets.items() if middle_is_a_hub(x[folder.native[name]])]
    if not able:
        return None
    name = able[generator.integers(len(able))]
    native = np.flatnonzero(folder.native[name])
    rows = native[generator.permutation(len(native))[: generator.integers(1, 4)]]
    mean = folder.sets[name][native].mean(0, dtype=np.float64)
    mean = np.repeat(mean[None] / np.linalg.norm(mean), len(rows), axis=0)
    folder.sets[name][rows] = _moved(mean, 0.1, generator)
    return {"modality": name, "rows": rows.tolist()}


def misplaced_rows(folder: Folder, generator: np.random.Generator) -> dict[str, Any]:
    """One to three rows of one modality are replaced by rows of the other that are not their partners, if there is
    a gap (`gap_between`)."""
    names = list(folder.sets)[:2]
    name, other = names if generator.integers(2) else names[::-1]
    native = np.flatnonzero(folder.native[name] & folder.native[other])
    rows, of = np.split(generator.permutation(native)[: 2 * int(generator.integers(1, 4))], 2)
    folder.sets[name][rows] = folder.sets[other][of]
    return {"modality": name, "rows": rows.tolist()}


def dead_dimensions(folder: Folder, generator: np.random.Generator) -> dict[str, Any]:
    """2 to 20% of the coordinates are zero or constant, or the rows are projected on the leading 10 to 50% of their
    directions."""
    kind = ("zero", "constant", "rank")[generator.integers(2 if "low_precision" in folder.planted else 3)]
    name = list(folder.sets)[generator.integers(len(folder.sets))]
    splits = [folder.sets] if folder.other is None else [folder.sets, folder.other]
    d = folder.sets[name].shape[1]
    dead = generator.permutation(d)[: max(2, int(generator.uniform(0.02, 0.2) * d))]
    values = generator.normal(size=len(dead)) * 0.02
    rank = int(generator.uniform(0.1, 0.5) * own_rank(folder.sets[name]))
    basis = np.linalg.svd(folder.sets[name], full_matrices=False)[2][:rank].T.astype(np.float64)  # as PCA leaves them
    for split in splits:
        x = split[name].astype(np.float64)
        if kind == "rank":
            split[name] = unit(x @ basis @ basis.T)
            continue
        x[:, dead] = 0
        x = x / np.linalg.norm(x, axis=1, keepdims=True)
        if kind == "constant":
            x *= np.sqrt(1 - np.square(values).sum())
            x[:, dead] = values
        split[name] = x.astype(np.float32)
    return {"modality": name, "kind": kind, "count": rank if kind == "rank" else len(dead)}


def low_precision(folder: Folder, generator: np.random.Generator) -> dict[str, Any]:
    """The values of one modality are rounded to float16, bfloat16, int8 (scaled by tensor or by row) or int8 by
    dimension (FAISS's QT_8bit); half of the time the rows are then scaled to length 1 again. The format is coarser
    than that of the source."""
    formats = ["float16", "bfloat16", "int8", "int8 by dimension"]
    formats = [name for name in formats if name != folder.source.own_format]
    kind = formats[generator.integers(len(formats))]
    name = list(folder.sets)[generator.integers(len(folder.sets))]
    again = bool(generator.integers(2)) and "dead_dimensions" not in folder.planted
    by_row = bool(generator.integers(2))
    for split in [folder.sets] if folder.other is None else [folder.sets, folder.other]:
        x = rounded(split[name], kind, by_row)
        split[name] = unit(x) if again else x
    return {"modality": name, "kind": kind, "format": kind, "scaled": again}


def rounded(x: np.ndarray, kind: str, by_row: bool) -> np.ndarray:
    if kind == "float16":
        return x.astype(np.float16).astype(np.float32)
    if kind == "bfloat16":
        bits = x.view(np.uint32)
        return ((bits + 0x7FFF + ((bits >> 16) & 1)) & 0xFFFF0000).astype(np.uint32).view(np.float32)
    if kind == "int8 by dimension":
        import faiss

        quantizer = faiss.ScalarQuantizer(x.shape[1], faiss.ScalarQuantizer.QT_8bit)
        quantizer.train(x)
        return quantizer.decode(quantizer.compute_codes(x))
    step = np.abs(x).max(1, keepdims=True) / 127 if by_row else np.abs(x).max() / 127
    return (np.round(x / step) * step).astype(np.float32)


def not_unit(folder: Folder, generator: np.random.Generator) -> dict[str, Any]:
    """All rows of one modality, or 5 to 50% of them, get lengths that vary by 5 to 50% (log-normal). Stores are
    left out, since they hold raw rows by design."""
    name = list(folder.sets)[generator.integers(len(folder.sets))]
    n = len(folder)
    spread = generator.uniform(0.05, 0.5)
    lengths = 10 * np.exp(spread * generator.normal(size=n))
    partly = bool(generator.integers(2))
    rows = _some(n, max(5, int(generator.uniform(0.05, 0.5) * n)), generator, block=True) if partly else np.arange(n)
    folder.scale[name] = np.ones(n)
    folder.scale[name][rows] = lengths[rows]
    return {"modality": name, "partly": partly, "count": len(rows)}


def leakage(folder: Folder, generator: np.random.Generator) -> dict[str, Any]:
    """2 to 20% of the items (at least 5) are also in the other split, as exact or near copies."""
    assert folder.other is not None
    native = np.logical_and.reduce(list(folder.native.values()))
    numbers = np.flatnonzero(native)
    limit = min(len(numbers), len(next(iter(folder.other.values()))))
    count = min(limit, max(5, int(generator.uniform(0.02, 0.2) * len(folder))))
    rows = generator.permutation(numbers)[:count]
    other_rows = generator.permutation(len(next(iter(folder.other.values()))))[:count]
    near = bool(generator.integers(2)) and "low_precision" not in folder.planted
    size = float(np.exp(generator.uniform(np.log(0.005), np.log(0.05))))
    for name, x in folder.sets.items():
        copied = x[rows]
        if near:
            copied = _moved(copied, size * typical_distance(x[native], generator), generator)
        folder.other[name][other_rows] = copied
    return {"count": count, "near": near}


def wrong_activation(folder: Folder, generator: np.random.Generator) -> dict[str, Any]:
    """The manifest names OpenAI's weights, by tag, checksum or repository, and GELU."""
    way = ("tag", "checksum", "repository")[generator.integers(3)]
    folder.encoder["activation"] = "gelu" if way == "repository" else "GELU"
    name = folder.source.facts["architecture"]
    folder.model = {
        "tag": f"open_clip:{name}/openai",
        "checksum": f"open_clip:{name}@/models/{name}.pt",
        "repository": f"hf-clip:openai/clip-{name.lower().replace('vit-b-', 'vit-base-patch')}",
    }[way]
    folder.encoder["weights"] = (
        {"name": f"{name}.pt", "sha256": folder.source.facts["sha256"]} if way == "checksum" else {}
    )
    return {"way": way}


def truncated_captions(folder: Folder, generator: np.random.Generator) -> dict[str, Any]:
    """The manifest counts 2 to 30% truncated texts, or as many texts have more words than the context has tokens."""
    count = max(3, int(generator.uniform(0.02, 0.3) * len(folder)))
    counted = bool(generator.integers(2))
    if counted:
        folder.truncated = count
    else:
        texts = [f"caption number {k}" for k in range(len(folder))]
        for k in generator.permutation(len(folder))[:count]:
            texts[k] = " ".join(f"word{m}" for m in range(int(generator.integers(80, 200)))) + f" {k}"
        folder.texts = texts
    return {"count": count, "counted": counted}


# in this order they are planted, so that one leaves the other as it is
FAULTS: dict[str, Callable[[Folder, np.random.Generator], dict[str, Any] | None]] = {
    "mixed_models": mixed_models,
    "shifted_pairs": shifted_pairs,
    "shuffled_pairs": shuffled_pairs,
    "hubs": hubs,
    "misplaced_rows": misplaced_rows,
    "exact_duplicates": exact_duplicates,
    "near_duplicates": near_duplicates,
    "dead_dimensions": dead_dimensions,
    "low_precision": low_precision,
    "leakage": leakage,
    "not_unit": not_unit,
    "wrong_activation": wrong_activation,
    "truncated_captions": truncated_captions,
}
IN_STORES = {"wrong_activation", "truncated_captions"}
# of two faults, those that undo each other: rounding fills lost directions and erases differences below a step
APART = [
    {"low_precision", "near_duplicates"},
    *({"not_unit", each} for each in IN_STORES),
]


def can_have(fault: str, sets: Rows, source: Source) -> bool:
    """The stated rules: where a fault can be seen in principle."""
    if fault in ("shifted_pairs", "shuffled_pairs"):
        return pairs_match(sets)
    if fault == "mixed_models":
        return min(map(togetherness, sets.values())) >= 10
    if fault == "misplaced_rows":
        return gap_between(sets)
    if fault == "wrong_activation":
        return "sha256" in source.facts
    return fault != "truncated_captions" or len(sets) > 1


def _some(n: int, count: int, generator: np.random.Generator, block: bool = False) -> np.ndarray:
    if block:
        start = int(generator.integers(0, n - count + 1))
        return np.arange(start, start + count)
    return np.sort(generator.permutation(n)[:count])


def _two_groups(
    folder: Folder, generator: np.random.Generator, low: float, high: float, least: int
) -> tuple[np.ndarray, np.ndarray]:
    """Items to be replaced and as many others, of the source's own model, apart from planted hubs."""
    taken = np.array(
        [row for fault in ("hubs", "misplaced_rows") for row in (folder.planted.get(fault) or {}).get("rows", [])]
    )
    numbers = np.setdiff1d(np.flatnonzero(np.logical_and.reduce(list(folder.native.values()))), taken)
    count = min(len(numbers) // 2, max(least, int(generator.uniform(low, high) * len(folder))))
    numbers = generator.permutation(numbers)
    return numbers[:count], numbers[count : 2 * count]


def _moved(x: np.ndarray, distance: float, generator: np.random.Generator) -> np.ndarray:
    """Unit rows at about this distance from the rows."""
    noise = generator.normal(size=x.shape)
    return unit(x + distance * noise / np.linalg.norm(noise, axis=1, keepdims=True))
