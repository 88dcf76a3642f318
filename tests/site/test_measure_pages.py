"""The index of measures, and the call on the page of each."""

from inspect import unwrap

import numpy as np

import clip_geometry
import clip_geometry.geometry
from clip_geometry.geometry import measures
from support.generated import generated_page, site_module

by_page, place = site_module("measure_pages").by_page, site_module("measure_pages").place


def test_every_measure_is_in_the_index():
    """Its caveat, formula and source are on its page of the site, see test_site.py."""
    page, index = generated_page("measures.md"), by_page()
    assert {measure.name for members in index.values() for measure in members} == set(measures)
    for name, members in index.items():
        assert f"| [`{name}`](measures/{name}.md) |" in page
        assert members[0].evaluator or members[0].summary in page


def test_the_call_of_a_measure():
    assert place(measures["isoscore[unbiased]"]) == "clip_geometry.geometry.isoscore(x, unbiased=True)"
    assert place(measures["isotropy_i1"]).endswith("isotropy.partition_by_sign(x).invariant.i1")
    assert place(measures["zero_shot[dot].top_5"]) == (
        "clip_geometry.evaluate.zero_shot(image, labels, class_text, logits='dot')[\"top_5\"]"
    )
    assert "silhouette(x, labels, metric='cosine')" in place(measures["silhouette[cosine]"])


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
