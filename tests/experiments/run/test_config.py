import pytest

from clip_geometry.registry import InputError
from clip_geometry_experiments.run.config import expand_sweep, override


def test_override_reaches_into_sections_and_leaves_the_original():
    values = {"a": {"b": 1, "c": 2}}
    assert override(values, {"a.b": 3, "d.e": 4}) == {"a": {"b": 3, "c": 2}, "d": {"e": 4}}
    assert values == {"a": {"b": 1, "c": 2}}
    with pytest.raises(InputError, match="'b' is 1, not a section"):
        override(values, {"a.b.c": 1})


def test_sweep_is_the_grid():
    points = expand_sweep({"k": 0, "s": {"t": 0}, "sweep": {"k": [1, 2], "s.t": [3, 4, 5]}})
    assert [(p["k"], p["s"]["t"]) for p in points] == [(k, t) for k in (1, 2) for t in (3, 4, 5)]
    assert expand_sweep({"k": 0}) == [{"k": 0}]
    points = [{"k": 1}, {"k": 2, "s.t": 3}, {"k": 1}]
    assert expand_sweep({"k": 0, "s": {"t": 0}, "sweep": points}) == [
        {"k": 1, "s": {"t": 0}},
        {"k": 2, "s": {"t": 3}},
    ]
    together = expand_sweep({"sweep": {"k, s.t": [[1, 3], [2, None]], "l": [0, 1]}})
    assert together == [{"k": k, "s": {"t": t}, "l": i} for k, t in ((1, 3), (2, None)) for i in (0, 1)]
    for value in (1, [1], [1, 2, 3]):
        with pytest.raises(InputError, match=r"the sweep over 'k, s\.t' has .*; expected a list of 2 values"):
            expand_sweep({"sweep": {"k, s.t": [value]}})
    for sweep in ({"k": 1}, {"k": []}, [1]):
        with pytest.raises(
            InputError, match="'sweep' has another form; expected a mapping of dotted keys to non-empty lists"
        ):
            expand_sweep({"sweep": sweep})
