from pathlib import Path
from types import SimpleNamespace

from clip_geometry.geometry import by_group, measures
from clip_geometry.report.explained import facts, measures_page, place

ROOT = Path(__file__).parents[2]


def test_the_page_in_docs_is_the_registry():
    """After a change of the registry: python scripts/build_docs.py."""
    assert (ROOT / "docs/measures.md").read_text(encoding="utf-8") == measures_page()


def test_every_measure_is_on_the_page_with_its_trap_and_its_function():
    page = measures_page()
    for measure in by_group(all=True):
        for words in (measure.name, measure.trap, measure.formula, facts(measure), place(measure), measure.reference):
            assert words in page


def test_facts_and_place():
    assert place(measures["isoscore[unbiased]"]) == "clip_geometry.geometry.isoscore.isoscore(x, unbiased=True)"
    assert place(measures["isotropy_i1"]).endswith("partition.partition_by_sign(x).invariant.i1")
    assert "silhouette(x, labels, metric='cosine')" in place(measures["silhouette[cosine]"])
    assert "no standard error" in facts(measures["min_pairwise_cosine"])
    assert "time grows with n²" in facts(measures["silhouette"])
    assert facts(measures["isoscore"]) == (
        "range 0 … 1; higher is more isotropic; 1 on an isotropic Gaussian as n grows; "
        "invariant to rotation, translation, scale; needs nothing but rows; n ≥ 2, d ≥ 2"
    )


def test_of_what_is_no_measure_range_and_direction_are_known():
    own = SimpleNamespace(range=(0, "d"), direction="higher is more", unit="dimensions")
    assert facts(own) == "range 0 … d dimensions; higher is more"
