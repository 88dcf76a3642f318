"""The catalogs describe what the registries have: once, completely, and without torch."""

import subprocess
import sys
from typing import get_args, get_type_hints

import pytest

from clip_geometry import catalog
from clip_geometry.catalog import GROUPS, INVARIANCES, PACKAGE, TAKES, describe, descriptions
from clip_geometry.cli.maps import ship
from clip_geometry.cli.options import MODEL_NAMES
from clip_geometry.data import datasets
from clip_geometry.encoders import encoders
from clip_geometry.encoders.hub import MODELS
from clip_geometry.geometry import Measure, add_measure, measures
from clip_geometry.io.sources import formats
from clip_geometry.registry import InputError
from clip_geometry.search.checks import checks
from clip_geometry.search.repairs import InnerProduct, repairs
from clip_geometry.search.shipping import targets
from clip_geometry.steps import transforms, usage


@pytest.fixture
def own(monkeypatch):
    """Entries and measures that a test adds are gone after it."""
    monkeypatch.setattr(catalog, "_entries", dict(catalog._entries))
    known = list(measures)
    yield
    for name in set(measures) - set(known):
        del measures._members[name]
        descriptions.pop(name, None)
    describe.cache_clear()


def test_every_measure_has_an_entry_and_every_entry_is_a_measure():
    assert set(descriptions) == set(measures)
    families = set(catalog.read(PACKAGE / "geometry")) - set(measures)  # evaluators, whose numbers are the measures
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
    with pytest.raises(InputError, match="does not describe the measure 'length_of_a_test'"):
        _ = measure.title
    add_measure(measure, entries={"length_of_a_test": entry})
    assert measure.title == "Length" and measure.range == (0, "d") and measure.needs == ("rows of one scale",)
    assert "length_of_a_test" in descriptions
    with pytest.raises(TypeError, match="directon"):
        catalog.add_entries({"another": entry | {"directon": "typo"}})
        describe("another")


def test_a_measure_has_no_other_attributes():
    assert not hasattr(measures["isoscore"], "titel")


# --- the others


def ours(members):
    """The members of this package: others may have registered some, too."""
    return {name: each for name, each in members.items() if each.config.__module__.startswith("clip_geometry.")}


def test_every_transform_has_an_entry_with_its_parameters():
    about = catalog.read(PACKAGE / "transforms")
    assert set(about) == set(transforms)
    fitted = {}
    for name, kind in transforms.items():
        assert about[name]["summary"] and about[name]["formula"]
        assert usage(name) == (f"{name}({about[name]['parameters']})" if "parameters" in about[name] else name)
        fitted.setdefault((kind.fits, kind.onto, kind.paired, kind.joint), set()).add(about[name]["fitted"])
    assert all(len(sentences) == 1 for sentences in fitted.values()) and len(set.union(*fitted.values())) == len(fitted)


def test_every_data_set_has_an_entry_with_its_options():
    about = catalog.read(PACKAGE / "data")
    assert set(about) == set(ours(datasets))
    for name, each in ours(datasets).items():
        options = ", ".join(key for key in each.config.model_fields if key != "name")
        assert about[name]["summary"] and about[name]["options"] == options


def test_every_format_repair_and_check_has_an_entry():
    assert set(catalog.read(PACKAGE / "io")) == set(formats())
    for each in repairs.values():
        assert each.baseline or each.reranker != issubclass(each.kind, InnerProduct)
    assert all(check.title and check.threshold for check in checks.values())


def test_the_names_on_the_command_line_are_those_of_the_registries():
    families = {f"{name}:" for name in ours(encoders) if name != "scenes-clip"}
    assert set(MODEL_NAMES) == {*MODELS, "scenes-clip/fresh", *families}
    assert {*get_args(get_type_hints(ship)["to"])} == {*targets}
