"""Sets of rows beside each other: two models in one, rows of one among another, a modality gap."""

from itertools import combinations

import numpy as np

from clip_geometry.embeddings import Embeddings, in_order
from clip_geometry.search.checks import Findings, add_check, finding, spaces
from clip_geometry.search.checks.context import BLOCK, NEIGHBORS, Context


@add_check
def mixed_models(context: Context) -> Findings:
    for modality in context.sets:
        found = context.foreign(modality)
        if found is None:
            if len(context.sample(modality)) < 4 * spaces.LEAST:
                context.skip("mixed_models", f"fewer than {4 * spaces.LEAST} rows", modality)
            continue
        sample, rows = context.sample(modality), context.foreign_numbers(modality)
        first, last = int(rows[0]), int(rows[-1])
        block = len(sample[(sample >= first) & (sample <= last)]) < 1.1 * len(rows)
        values = {"count": len(rows), "n": len(sample), "sampled": len(sample) < context.valid(modality).sum()}
        values |= {"block": block, "first": first, "last": last, "span": last - first + 1}
        values |= {"overlap": found.overlap.value, "mean_cosine": found.mean_cosine, "rows": rows.tolist()}
        yield finding("mixed_models", "error", modality, kind="geometry", **values)
    for one, other in context.couples:
        differing = _differing(context.sets[one], context.sets[other])
        matching = context.matching(one, other)
        if differing and matching is not None:
            share = float((matching.corrected > 0.5).mean() * 2)
            severity = "error" if share > 0.5 else "note"
            yield finding("mixed_models", severity, one, other, kind="manifest", differing=differing, at_chance=share)


def _differing(one: Embeddings, other: Embeddings) -> dict[str, list[str]]:
    """What two manifests say otherwise of their models: field → both values."""
    fields: dict[str, list[str]] = {}
    for name in ("model", "features", "precision", "seed"):
        both = [each.provenance.get(name) for each in (one, other)]
        if None not in both and both[0] != both[1]:
            fields[name] = list(map(str, both))
    weights = [_facts(each).get("weights") for each in (one, other)]
    if None not in weights and weights[0] != weights[1]:
        fields["weights"] = [str(each.get("sha256", each)) if isinstance(each, dict) else str(each) for each in weights]
    image_model = [_facts(each).get("image_model") for each in (one, other)]
    if any(image_model):  # a text tower that was trained to meet another model's images
        fields = {name: both for name, both in fields.items() if name not in ("model", "weights")}
    return fields


def _facts(each: Embeddings) -> dict:
    facts = each.provenance.get("encoder")
    return facts if isinstance(facts, dict) else {}


LEAST = 50  # rows of each modality
FIT = 5000  # rows of each modality that the direction is fitted on
AWAY = 6.0  # standard deviations from the own modality; of clean rows, one in thousands is
AMONG = 4.0  # of the other modality
MOST = 0.1  # of the rows: more are another fault


@add_check
def misplaced_rows(context: Context) -> Findings:
    if len(context.sets) < 2:
        context.skip("misplaced_rows", "one modality only")
    for one, other in combinations(context.sets, 2):
        if context.sets[one].dim != context.sets[other].dim:
            context.skip("misplaced_rows", "of different dimensions", one, other)
            continue
        numbers = [context.sample(name)[context.own(name)] for name in (one, other)]
        if min(map(len, numbers)) < LEAST:
            context.skip("misplaced_rows", f"fewer than {LEAST} rows of both", one, other)
            continue
        rows = [context.own_rows(name) for name in (one, other)]
        scores = _scores(rows, [np.zeros(len(x), dtype=bool) for x in rows], context.seed)
        # again without the rows that are out of place: they turn the direction
        scores = _scores(rows, [scores[0] < 0, scores[1] > 0], context.seed)
        astray = [scores[0] < 0, scores[1] > 0]
        middles, spreads = zip(*map(_middle_and_spread, scores), strict=True)
        if middles[0] - middles[1] < AWAY * max(spreads):
            context.skip("misplaced_rows", "no gap between the modalities", one, other)
            continue
        for side, (name, beside) in enumerate(((one, other), (other, one))):
            away, among = (np.abs(scores[side] - middles[k]) / spreads[k] for k in (side, 1 - side))
            found = np.flatnonzero(astray[side] & (away > AWAY) & (among < AMONG))
            if 0 < len(found) <= MOST * len(numbers[side]):
                values = {"count": len(found), "n": len(numbers[side]), "usual": float(np.delete(away, found).max())}
                values |= {"away": float(away[found].min()), "among": float(among[found].max())}
                rows_found = numbers[side][found].tolist()
                yield finding("misplaced_rows", "error", name, beside, **values, rows=rows_found)


def _scores(rows: list[np.ndarray], astray: list[np.ndarray], seed: int) -> list[np.ndarray]:
    """Places of both modalities along the discriminant that was fitted on the other half of the rows, 0 in between."""
    generator = np.random.default_rng(seed)
    half = [generator.permutation(len(x)) % 2 == 0 for x in rows]
    scores = [np.empty(len(x)) for x in rows]
    for part in (True, False):
        numbers = [np.flatnonzero((h == part) & ~a)[:FIT] for h, a in zip(half, astray, strict=True)]
        fit = [x[each].astype(np.float64) for x, each in zip(rows, numbers, strict=True)]
        means = [x.mean(0) for x in fit]
        first, second = ((x - mean).T @ (x - mean) / len(x) for x, mean in zip(fit, means, strict=True))
        scatter = first + second
        scatter[np.diag_indices_from(scatter)] += np.trace(scatter) / len(scatter)
        direction = np.linalg.solve(scatter, means[0] - means[1])
        middle = (means[0] + means[1]) @ direction / 2
        for x, h, score in zip(rows, half, scores, strict=True):
            for start in range(0, len(x), BLOCK):
                block = slice(start, start + BLOCK)
                score[block] = np.where(h[block] != part, x[block] @ direction - middle, score[block])
    return scores


def _middle_and_spread(scores: np.ndarray) -> tuple[float, float]:
    """Median, and standard deviation by the median absolute deviation."""
    middle = float(np.median(scores))
    return middle, max(1.4826 * float(np.median(np.abs(scores - middle))), 1e-12)


QUERIES, INDEX = 1000, 5000
BROKEN = 0.9  # share of the own modality in the top ten: at most one place is left for the other
NOTABLE = 0.1  # above chance
SURE = 4.0  # standard errors


@add_check
def modality_gap(context: Context) -> Findings:
    if len(context.sets) < 2:
        context.skip("modality_gap", "one modality only")
    for one, other in combinations(in_order(context.sets), 2):  # pairs are not needed
        generator = np.random.default_rng(context.seed)
        rows = {}
        for modality in (one, other):
            unit = context.unit(modality)
            rows[modality] = unit[generator.permutation(len(unit))[:INDEX]]
        if min(map(len, rows.values())) <= NEIGHBORS:
            context.skip("modality_gap", f"no more than {NEIGHBORS} rows of both", one, other)
            continue
        index = np.concatenate(list(rows.values()))
        shares = {}
        for modality, first in ((one, 0), (other, len(rows[one]))):
            queries = rows[modality][:QUERIES]
            cosines = queries @ index.T
            cosines[np.arange(len(queries)), first + np.arange(len(queries))] = -np.inf
            top = np.argpartition(-cosines, NEIGHBORS - 1, axis=1)[:, :NEIGHBORS]
            own = ((top >= first) & (top < first + len(rows[modality]))).mean(1)
            chance = (len(rows[modality]) - 1) / (len(index) - 1)
            error = float(own.std(ddof=1) / np.sqrt(len(own)))
            shares[modality] = {"share": float(own.mean()), "error": error, "chance": chance}
        gap = float(np.linalg.norm(rows[one].mean(0) - rows[other].mean(0)))
        broken = [name for name, each in shares.items() if each["share"] > BROKEN]
        above = [
            name for name, each in shares.items() if each["share"] - each["chance"] > max(NOTABLE, SURE * each["error"])
        ]
        if broken or above:
            severity = "warning" if broken else "note"
            values = {"shares": shares, "gap": gap, "broken": broken, "n": len(index)}
            yield finding("modality_gap", severity, one, other, **values)
