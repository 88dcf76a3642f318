"""A modality gap that breaks search in one index of both modalities."""

from collections.abc import Iterator
from itertools import combinations

import numpy as np

from clip_geometry.diagnosis.checks import add_check
from clip_geometry.diagnosis.context import NEIGHBORS, Context
from clip_geometry.diagnosis.finding import Finding, finding
from clip_geometry.embeddings import in_order

QUERIES, INDEX = 1000, 5000
BROKEN = 0.9  # share of the own modality in the top ten: at most one place is left for the other
NOTABLE = 0.1  # above chance
SURE = 4.0  # standard errors


@add_check
def modality_gap(context: Context) -> Iterator[Finding]:
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
