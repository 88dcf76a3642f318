"""The registered relation, and the relations that were examined after it."""

import json
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import rankdata, spearmanr

from clip_geometry_experiments.studies.repair_table.figures import tell
from clip_geometry_experiments.studies.repair_table.measuring import MEASURES
from clip_geometry_experiments.studies.repair_table.table import examined, from_compact, registered
from support.generated import generated

DOCS = Path(__file__).parents[4] / "docs"
RECORDS = DOCS / "findings" / "records" / "repairs.jsonl"


def table(changes, sets="ab"):
    """A table of the same changes on all sets: repair → measure → value."""
    lines = [
        {"set": of, "repair": name, "n": 100, "d": 8, "splits": 10, "control": False,
         "values": {measure: (found.get(measure, 0.0), 0.1, 0.0, 0.1, "tie") for measure in MEASURES}}
        for of in sets for name, found in {"none": {}, **changes}.items()
    ]  # fmt: skip
    return from_compact(lines)


def test_the_registered_rule_finds_the_first_result_in_the_records_and_it_comes_first():
    """The rule of commit 63977b5, written again from the raw records: per set, the mean of the ranks by the measures of
    a group, those ranked over all repairs, averaged over the sets, and Spearman's ρ of both groups over the maps."""
    lines = [json.loads(line) for line in RECORDS.read_text(encoding="utf-8").splitlines()]
    lines = [line for line in lines if not line["control"] and line["repair"] not in ("noise", "truth")]
    mean_ranks = {}
    for group in ("geometry", "retrieval"):
        measures = [name for name, each in MEASURES.items() if each.group == group]
        of_set = {}
        for line in lines:
            cells = {m: line["values"][m][0] * MEASURES[m].better for m in measures if m in line["values"]}
            of_set.setdefault(line["set"], {})[line["repair"]] = cells
        complete = set.intersection(
            *({name for name, cells in each.items() if cells.keys() == each["none"].keys()} for each in of_set.values())
        )
        totals = dict.fromkeys(complete, 0.0)
        for each in of_set.values():
            names = sorted(complete)
            ranks = [rankdata([-each[name][m] for name in names]) for m in each["none"]]
            row = rankdata(np.round(np.mean(ranks, axis=0), 9))  # mean ranks are sums of halves over a few measures
            totals = {name: totals[name] + rank for name, rank in zip(names, row, strict=True)}
        mean_ranks[group] = totals
    maps = sorted(mean_ranks["geometry"].keys() & mean_ranks["retrieval"].keys())
    expected = spearmanr(*([mean_ranks[group][name] for name in maps] for group in ("geometry", "retrieval")))

    of = from_compact([json.loads(line) for line in RECORDS.read_text(encoding="utf-8").splitlines()])
    found = registered(of)
    assert found is not None and found.maps == len(maps) == 27
    # ranks are halves, so that their sums are exact in any order
    assert (found.rho, found.p) == pytest.approx((expected.statistic, expected.pvalue), abs=1e-12)
    said = f"rank correlation of {found.rho:.2f}".replace("-", "−")
    title, claim = generated("findings/")["findings/repair-table.md"].split("\n\n")[:2]
    assert (
        title.startswith("# The registered test leaves open whether")
        and said in " ".join(claim.split())
        and f"p = {found.p:.2f}" in claim
    )
    first = tell(of)[0]
    assert (
        first.startswith("The main test was fixed before any repair was evaluated: it shows no relation")
        and said in first
    )


def test_no_relation_is_registered_of_three_rows():
    assert registered(table({"pca(1)": {"gap": 1}, "pca(2)": {"gap": 2}})) is None


def test_holm_counts_every_measure_of_retrieval_and_the_registered_relation():
    """63 relations of the records and the registered one: the smallest p is multiplied by 64."""
    of = from_compact([json.loads(line) for line in RECORDS.read_text(encoding="utf-8").splitlines()])
    found = examined(of)
    kinds = [each.group for each in MEASURES.values()]
    assert len(found) == (kinds.count("geometry") + kinds.count("mixing")) * kinds.count("retrieval") == 63
    first = min(found, key=lambda each: each.p)
    ranks = [dict(zip(names, -scores.mean(0), strict=True)) for names, scores in
             (of.scores([measure]) for measure in (first.measure, first.target))]  # fmt: skip
    maps = sorted((ranks[0].keys() & ranks[1].keys()) - {"none"})
    alone = spearmanr(*([each[name] for name in maps] for each in ranks))
    assert first.rho == pytest.approx(alone.statistic) and alone.pvalue < 1e-5
    assert first.p == pytest.approx(64 / 50_001, rel=1e-9)  # no shuffle of 50,000 is as large


def test_fewer_than_five_maps_are_not_related():
    assert examined(table({f"pca({k})": {"gap": k, "r_at_1": -k} for k in range(4)})) == []
