"""The catalog describes each measure once, completely, and without torch."""

import subprocess
import sys

import pytest

from clip_geometry import catalog
from clip_geometry.catalog import GROUPS, INVARIANCES, TAKES, describe, descriptions
from clip_geometry.geometry import Measure, add_measure, measures
from clip_geometry.registry import InputError


@pytest.fixture
def own(monkeypatch):
    """Entries and measures that a test adds are gone after it."""
    monkeypatch.setattr(catalog, "_added", {})
    known = list(measures)
    yield
    for name in set(measures) - set(known):
        del measures._members[name]
    describe.cache_clear()


def test_every_measure_has_an_entry_and_every_entry_is_a_measure():
    assert set(descriptions) == set(measures)
    families = set(catalog.entries()) - set(measures)  # evaluators, whose numbers are the measures
    assert all(any(name.startswith(family) for name in measures) for family in families)
    assert families == {each.evaluator for each in measures.values()} - {None} - set(measures)


@pytest.mark.parametrize("name", descriptions)
def test_an_entry_is_valid(name):
    about = describe(name)
    assert about.group in GROUPS and about.takes in TAKES and set(about.invariances) <= set(INVARIANCES)
    assert len(about.range) == 2 and len(about.brief or about.title) <= 80
    assert about.better in (None, "higher", "lower")


def test_it_is_read_without_torch():
    code = "import sys; from clip_geometry.catalog import describe; describe('isoscore'); print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


def test_a_variant_has_the_fields_of_its_family_unless_it_has_its_own():
    family, variant = describe("modality_gap"), describe("modality_gap[cosine]")
    assert variant.group == family.group and variant.takes == family.takes and variant.range != family.range
    first, mixed = describe("retrieval.image_to_text.r_at_1"), describe("retrieval[mixed].image_to_text.r_at_1")
    assert (first.evaluator, mixed.evaluator) == ("retrieval", "retrieval[mixed]")
    assert first.formula == mixed.formula and first.caveat != mixed.caveat
    assert describe("isoscore[of a user]").title == describe("isoscore").title


def test_a_measure_of_another_package_brings_its_entry(own):
    entry = {"title": "Length", "group": "spread", "takes": "rows", "summary": "How long.", "reading": "Long.",
             "caveat": "None.", "formula": "n", "range": [0, "d"], "direction": "higher is longer",
             "reference": "this test"}  # fmt: skip
    measure = Measure("length_of_a_test", len)
    with pytest.raises(InputError, match="describes no measure 'length_of_a_test'"):
        _ = measure.title
    add_measure(measure, entries={"length_of_a_test": entry})
    assert measure.title == "Length" and measure.range == (0, "d") and measure.needs == ("rows of one scale",)
    assert "length_of_a_test" in descriptions
    with pytest.raises(TypeError, match="directon"):
        catalog.add_entries({"another": entry | {"directon": "typo"}})
        describe("another")


def test_a_measure_has_no_other_attributes():
    assert not hasattr(measures["isoscore"], "titel")
