"""An old public name works, and warns at the line that used it."""

import pytest

import clip_geometry as cg
from clip_geometry.deprecation import DEPRECATED, Deprecated


def test_a_renamed_name_warns_and_is_the_new_one(monkeypatch):
    monkeypatch.setitem(DEPRECATED, "gap", Deprecated("clip_geometry.geometry.modality_gap", "0.3"))
    with pytest.warns(
        DeprecationWarning, match=r"clip_geometry\.gap is deprecated .* in 0\.3; use .*modality_gap"
    ) as seen:
        found = cg.gap
    assert found is cg.geometry.modality_gap and seen[0].filename == __file__
    assert "gap" not in dir(cg)


def test_replacements_exist():
    for old, entry in DEPRECATED.items():
        with pytest.warns(DeprecationWarning):
            assert getattr(cg, old) is not None, entry
