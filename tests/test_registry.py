import importlib
import sys

import pytest

from clip_geometry.registry import MOST, InputError, Registry, did_you_mean, import_all, shown


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
    with pytest.raises(ValueError, match="shape 'circle' is registered twice"):
        shapes.add("circle", 2)
    assert (shapes.get("circle"), shapes.get("square"), shapes.get("square", 5)) == (shapes["circle"], None, 5)


def test_unknown_names_say_what_is_near_or_known(shapes):
    with pytest.raises(InputError, match="unknown shape 'circel'; did you mean 'circle'"):
        shapes["circel"]
    with pytest.raises(InputError, match="unknown shape 'xyz'; known are Triangle, circle"):
        shapes["xyz"]


def test_names_that_hold_what_was_given_are_near():
    known = ["modality_gap", "relative_modality_gap", "cone", "isoscore[a]", "isoscore[b]", "isoscore", "gapless[c]"]
    assert did_you_mean("gap", known, listed_by="list").startswith(
        "; did you mean 'modality_gap' or 'relative_modality_gap' or 'gapless[c]'?"
    )
    assert did_you_mean("isoscor", known, listed_by="list").count(" or ") == 2
    assert did_you_mean("ga", known) == "" and did_you_mean("CONE", known) == "; did you mean 'cone'?"


@pytest.mark.parametrize("ask", [lambda each: "late" in each, list, len, lambda each: each["late"]])
def test_more_members_are_imported_when_they_are_asked_for(tmp_path, monkeypatch, ask):
    (tmp_path / "early.py").write_text(
        "from clip_geometry.registry import Registry\nkinds = Registry('kind', more=['late'])\n"
    )
    (tmp_path / "late.py").write_text("from early import kinds\nkinds.add('late', len(kinds))\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    for name in ("early", "late"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    kinds = importlib.import_module("early").kinds
    kinds.add("here", 1)
    assert kinds["here"] == 1 and "here" in kinds and "late" not in sys.modules
    ask(kinds)
    assert "late" in sys.modules and dict(kinds) == {"here": 1, "late": 1}


def test_a_file_in_the_folder_is_all_that_a_new_member_needs(tmp_path, monkeypatch):
    package = tmp_path / "shapes_of_test"
    package.mkdir()
    (package / "__init__.py").write_text("from clip_geometry.registry import import_all\nimport_all(__name__)\n")
    (package / "base.py").write_text("from clip_geometry.registry import Registry\nshapes = Registry('shape')\n")
    (package / "disc.py").write_text("from shapes_of_test.base import shapes\nshapes.add('disc', 1)\n")
    (package / "solid").mkdir()
    (package / "solid/__init__.py").write_text("from shapes_of_test.base import shapes\nshapes.add('solid', 3)\n")
    monkeypatch.syspath_prepend(tmp_path)
    from shapes_of_test.base import shapes  # pyright: ignore[reportMissingImports]

    assert dict(shapes) == {"disc": 1, "solid": 3}
    import_all("shapes_of_test")  # again is no second registration
    for name in [name for name in sys.modules if name.startswith("shapes_of_test")]:
        monkeypatch.delitem(sys.modules, name)


def test_a_message_is_one_printable_line_of_bounded_length():
    for quoted in ("x" * 999, "\x1b[31m\n" * 200, "é\u202e" * 300):
        message = str(InputError(f"{quoted} is unknown; do this"))
        assert message.isprintable() and len(message) == MOST and message.endswith(" is unknown; do this")
        assert len(shown(quoted)) == 80
    assert str(InputError("two\nlines")) == "two\\nlines"
    assert shown("x" * 78) == f"'{'x' * 78}'" and "at 0x" not in shown(object())


def test_a_name_with_a_home_is_imported_when_it_is_asked_for(tmp_path, monkeypatch):
    for name, text in {
        "shape": "from kinds import known\nclass Shape: pass\nknown.add('shape', Shape)",
        "empty": "",
    }.items():
        (tmp_path / "slices" / "paper" / name).mkdir(parents=True)
        (tmp_path / "slices" / "paper" / name / "__init__.py").write_text(text)
    for folder in ("slices", "slices/paper", "slices/kit"):
        (tmp_path / folder).mkdir(exist_ok=True)
        (tmp_path / folder / "__init__.py").write_text("")
    (tmp_path / "kinds.py").write_text(
        "from clip_geometry.registry import Registry\n"
        "known = Registry('slice', homes={name: f'slices.paper.{name}' for name in ('empty', 'shape')})"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    known = importlib.import_module("kinds").known
    assert list(known) == ["empty", "shape"] and len(known) == 2 and "shape" in known
    assert "slices.paper.shape" not in sys.modules
    assert known["shape"].__name__ == "Shape" and "slices.paper.shape" in sys.modules
    with pytest.raises(ValueError, match=r"slices\.paper\.empty does not register the slice 'empty'"):
        known["empty"]
    with pytest.raises(InputError, match=r"unknown slice 'shap'; did you mean 'shape'"):
        known["shap"]
