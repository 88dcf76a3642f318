import pytest

from clip_geometry.registry import InputError, Registry, did_you_mean


@pytest.fixture
def shapes():
    registry = Registry("shape")
    registry.add("circle", 1)
    registry.add("Triangle", 3)
    return registry


def test_is_a_mapping(shapes):
    assert dict(shapes) == {"circle": 1, "Triangle": 3}
    assert "circle" in shapes and "square" not in shapes
    assert len(shapes) == 2


def test_unknown_names_say_what_is_near_or_known(shapes):
    with pytest.raises(InputError, match="unknown shape 'circel'; did you mean 'circle'"):
        shapes["circel"]
    with pytest.raises(InputError, match="unknown shape 'xyz'; known are Triangle, circle"):
        shapes["xyz"]


def test_a_name_is_given_once(shapes):
    with pytest.raises(ValueError, match="shape 'circle' is registered twice"):
        shapes.add("circle", 2)


def test_near_names_ignore_case():
    assert did_you_mean("ISOSCORE", ["isoscore", "cone"]) == "; did you mean 'isoscore'?"
    assert did_you_mean("zzz", ["isoscore", "cone"]) == ""
