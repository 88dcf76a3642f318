from types import SimpleNamespace

from clip_geometry.catalog import descriptions
from clip_geometry.display.explained import facts


def test_facts_of_a_measure():
    assert "no standard error" in facts(descriptions["min_pairwise_cosine"])
    assert "time grows with n²" in facts(descriptions["silhouette"])
    assert facts(descriptions["isoscore"]) == (
        "range 0 … 1; higher is more isotropic; 1 on an isotropic Gaussian as n grows; "
        "invariant to rotation, translation, scale; needs nothing but rows; n ≥ 2, d ≥ 2"
    )


def test_of_what_is_no_measure_range_and_direction_are_known():
    texts = dict.fromkeys(("name", "title", "summary", "reading", "caveat", "formula", "reference"), "")
    own = SimpleNamespace(**texts, range=(0, "d"), direction="higher is more", unit="dimensions")
    assert facts(own) == "range 0 … d dimensions; higher is more"
