from inspect import unwrap
from pathlib import Path
from types import SimpleNamespace

import numpy as np

import clip_geometry
import clip_geometry.geometry
from clip_geometry.geometry import measures
from clip_geometry.report.explained import by_page, facts, measures_page, place

ROOT = Path(__file__).parents[2]


def test_the_page_in_docs_is_the_registry():
    """After a change of the registry: python scripts/build_docs.py."""
    assert (ROOT / "docs/measures.md").read_text(encoding="utf-8") == measures_page()


def test_every_measure_is_in_the_index():
    """Its caveat, formula and source are on its page of the site, see tests/site/test_site.py."""
    page, index = measures_page(), by_page()
    assert {measure.name for members in index.values() for measure in members} == set(measures)
    for name, members in index.items():
        assert f"| `{name}` |" in page
        assert members[0].evaluator or members[0].summary in page


def test_facts_and_place():
    assert place(measures["isoscore[unbiased]"]) == "clip_geometry.isoscore(x, unbiased=True)"
    assert place(measures["isotropy_i1"]).endswith("partition.partition_by_sign(x).invariant.i1")
    assert place(measures["zero_shot[dot].top_5"]) == (
        "clip_geometry.zero_shot(image, labels, class_text, logits='dot')[\"top_5\"]"
    )
    assert place(measures["class_generalization.new"]) == (
        'clip_geometry.class_generalization(transform, fit_x, fit_labels, image, labels, class_text)["new"]'
    )
    assert place(measures["language_silhouette[cosine]"]) == "clip_geometry.silhouette(x, languages, metric='cosine')"
    assert "silhouette(x, labels, metric='cosine')" in place(measures["silhouette[cosine]"])
    assert "no standard error" in facts(measures["min_pairwise_cosine"])
    assert "time grows with n²" in facts(measures["silhouette"])
    assert facts(measures["isoscore"]) == (
        "range 0 … 1; higher is more isotropic; 1 on an isotropic Gaussian as n grows; "
        "invariant to rotation, translation, scale; needs nothing but rows; n ≥ 2, d ≥ 2"
    )


def test_every_call_on_the_page_finds_its_function():
    """As typed after `import clip_geometry`: modules that a function of their package hides are not on the way."""
    for measure in measures.values():
        found = eval(place(measure).partition("(")[0], {"clip_geometry": clip_geometry})
        assert unwrap(found) is unwrap(measure.function), measure.name


def test_a_call_of_an_evaluator_is_the_number():
    rng = np.random.default_rng(0)
    image, class_text, labels = rng.normal(size=(30, 4)), rng.normal(size=(7, 4)), np.arange(30) % 7
    measure = measures["zero_shot[neg_distance].top_5"]
    names = {"clip_geometry": clip_geometry, "image": image, "labels": labels, "class_text": class_text}
    assert eval(place(measure), names) == float(measure(image, labels, class_text))


def test_of_what_is_no_measure_range_and_direction_are_known():
    own = SimpleNamespace(range=(0, "d"), direction="higher is more", unit="dimensions")
    assert facts(own) == "range 0 … d dimensions; higher is more"
