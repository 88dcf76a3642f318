"""A config of parts is as many whole configs: what is shared reaches those that know it, nothing is lost unsaid."""

import pytest
import yaml

from clip_geometry.registry import InputError
from clip_geometry_experiments.geometry import Geometry
from clip_geometry_experiments.kit.base import experiments
from clip_geometry_experiments.run.parts import change, spread
from clip_geometry_experiments.run.runner import plan, plan_parts, resolve, run

CONFIG = """
name: two
title: Of the page
description: What both parts show.
seed: 3
model: scenes-clip/fresh
batch_size: 8
parts:
  - experiment: geometry
    title: First
    description: Of the first part.
    pairs: {name: scenes, split: test, size: 12}
    measures: [average_cosine, modality_gap]
    figures: [singular_directions]
    sweep:
      pipeline: [[normalize], [normalize, "center[each]"]]
  - experiment: multilingual
    title: Second
    captions: {name: scenes, split: test, size: 12}
    languages: [en, de]
    figures: [ratios]
    seed: 4
smoke:
  parts.0.pairs.size: 6
  batch_size: 4
"""


def shared(**values):
    """Two parts, of which only the first has pairs."""
    first = {"experiment": "geometry", "pairs": {"name": "scenes", "size": 8}}
    second = {"experiment": "multilingual", "captions": {"name": "scenes"}, "languages": ["en", "de"]}
    return {"name": "c", "model": "scenes-clip/fresh", "parts": [first, second], **values}


@pytest.fixture
def config(tmp_path):
    path = tmp_path / "two.yaml"
    path.write_text(CONFIG)
    return path


def test_a_shared_key_reaches_the_parts_whose_experiment_has_it():
    first, second = spread(shared(seed=5, pipeline=["center"], languages=["en", "ru"]), "c")["parts"]
    assert first["model"] == second["model"] == "scenes-clip/fresh" and first["name"] == second["name"] == "c"
    assert first["seed"] == second["seed"] == 5
    assert "languages" not in first and second["languages"] == ["en", "de"]  # what a part says itself stands
    assert first["pipeline"] == second["pipeline"] == ["center"]


def test_every_point_of_every_part_is_planned(config):
    values = resolve(config, {}, smoke=False)
    kinds = [[kind for kind, _ in part] for part in plan_parts(values, "c")]
    assert kinds == [[Geometry, Geometry], [experiments["multilingual"]]]
    assert [settings.seed for _, settings in plan(values, "c")] == [3, 3, 4]


def test_a_change_is_of_one_part_or_of_all_that_have_it(config):
    def planned(changes, *, smoke=False):
        return [settings for _, settings in plan(resolve(config, changes, smoke=smoke), "c")]

    *first, second = planned({"parts.1.seed": 9, "batch_size": 16})
    assert [each.seed for each in first] == [3, 3] and second.seed == 9
    assert {each.batch_size for each in (*first, second)} == {16}
    assert [each.seed for each in planned({"seed": 7})] == [7, 7, 7]  # over what a part says, too
    *first, second = planned({"pairs.size": 10})
    assert first[0].pairs.size == 10 and second.captions.size == 12
    *first, second = planned({}, smoke=True)
    assert first[0].pairs.size == 6 and second.captions.size == 12
    assert {each.batch_size for each in (*first, second)} == {4}
    assert planned({"title": "Another"})[0].title == "First"
    assert {each.name for each in planned({"name": "other"})} == {"other"}


def test_a_key_that_is_set_is_not_swept_in_its_part(config):
    values = resolve(config, {"parts.0.pipeline": ["center"]}, smoke=False)
    assert [len(part) for part in plan_parts(values, "c")] == [1, 1]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (shared(parts=[]), "c: 'parts' is \\[\\]; expected a list of sections"),
        (shared(parts={"experiment": "geometry"}), "expected a list of sections"),
        (shared(parts=["geometry"]), "expected a list of sections"),
        (
            shared(parts=[{"pairs": "scenes"}]),
            "c: part 0 has no key 'experiment'; clip-geometry list experiments names all",
        ),
        (shared(parts=[{"experiment": "geometri"}]), "geometri.*did you mean 'geometry'"),
        (shared(piplines=["center"]), "c: no part has the key 'piplines'; did you mean 'pipeline'"),
        (shared(sweep={"seed": [0, 1]}), "c: no part has the key 'sweep'"),
        (shared(experiment="geometry"), "c: no part has the key 'experiment'"),
    ],
)
def test_what_is_no_list_of_parts_is_one_sentence(values, message):
    with pytest.raises(InputError, match=message):
        spread(values, "c")


@pytest.mark.parametrize(
    ("key", "message"),
    [
        ("parts.2.seed", "c: 'parts.2.seed' is not a key of a part; expected parts.0.… to parts.1.…"),
        ("parts.first.seed", "is not a key of a part"),
        ("parts.0", "is not a key of a part"),
        ("parts", "is not a key of a part"),
        ("pipelin", "c: no part has the key 'pipelin'; did you mean 'pipeline'"),
        ("sweep.seed", "c: no part has the key 'sweep'"),
        ("experiment", "no part has the key 'experiment'"),
        ("limit.size", "c: no part sets 'limit', so 'limit.size' has no section to be set in"),
    ],
)
def test_a_change_of_nothing_is_one_sentence(key, message):
    with pytest.raises(InputError, match=message):
        change(spread(shared(), "c"), {key: 1}, "c")


@pytest.mark.parametrize("changes", [{"parts": "abc"}, {"seed": 1, "parts.0.seed": 3}])
def test_a_config_without_parts_gets_none_by_a_change(changes):
    """Found by fuzzing: a smoke section with `parts`."""
    with pytest.raises(InputError, match="expected a list of sections"):
        plan(change({"name": "a", "experiment": "geometry"}, changes, "c"), "c")


def test_a_wrong_key_inside_a_part_is_named():
    values = shared()
    values["parts"][1]["langages"] = ["en"]
    with pytest.raises(InputError, match="unknown key 'langages'; did you mean 'languages'"):
        plan(values, "c")


@pytest.mark.usefixtures("unrendered")
def test_a_run_of_parts_is_one_page_with_a_section_each_and_goes_on(config, tmp_path, monkeypatch):
    report = run(config, {}, smoke=True, runs=tmp_path / "runs")
    folder, html = report.parent, report.read_text()
    assert folder.name.startswith("two-smoke-")
    document = yaml.safe_load((folder / "config.yaml").read_text())
    assert document["title"] == "Of the page" and len(document["parts"][0]["grid"]) == 2
    assert document["parts"][1]["experiment"] == "multilingual"
    for text in ("<title>Of the page</title>", "What both parts show.", "First", "Of the first part.", "Second"):
        assert text in html
    assert html.index('id="part-1"') < html.index('id="part-2"') < html.index('id="reproduce"')
    assert {path.name for path in (folder / "figures").iterdir()} == {"part-1", "part-2"}
    before = (folder / "results.jsonl").read_bytes()
    monkeypatch.setattr(Geometry, "_rows", lambda *_: pytest.fail("a finished cell was computed again"))
    assert run(config, {}, smoke=True, runs=tmp_path / "runs") == report
    assert (folder / "results.jsonl").read_bytes() == before
