"""Maps and repairs are fitted on the one set and applied to the other; classes that the one set lacks are held out."""

import numpy as np
import pytest

import clip_geometry as cg
from clip_geometry import Pipeline
from clip_geometry.evaluate import retrieval, zero_shot
from clip_geometry.geometry import modality_gap
from clip_geometry.results import Results
from clip_geometry_experiments.maps import SEARCHES
from clip_geometry_experiments.run.runner import RunFolder, plan

CENTERED = ["normalize", "center[each]", "normalize"]
WAYS = ("image_to_text", "text_to_image")
ROLES = ("pairs", "scored")
VALUES = {
    "name": "c",
    "experiment": "maps",
    "model": "scenes-clip/fresh",
    "scored": {"name": "scenes", "split": "test", "size": 40},
    "pairs": {"name": "scenes", "split": "train", "classes": "seen", "size": 24},
    "prompt": "A picture of a {}.",
    "maps": [
        {"row": "plain"},
        {"row": "centered", "pipeline": CENTERED, "fit_on": "pairs"},
        {"row": "cosine", "repair": "none", "fit_on": "pairs"},
        {"row": "centered cosine", "pipeline": CENTERED, "repair": "none", "fit_on": "pairs"},
        {"row": "calibrated", "repair": "posterior", "fit_on": "pairs"},
    ],
    "blocks": 0,
    "batch_size": 40,
}


@pytest.fixture(scope="module")
def experiment(tmp_path_factory):
    ((kind, config),) = plan(VALUES, "c")
    folder = tmp_path_factory.mktemp("runs") / "c"
    folder.mkdir()
    found = kind(config, RunFolder(folder))
    results = Results(folder / "results.jsonl")
    for cell in found.cells():
        results.append(cell.key, cell.compute())
    return found


def value(experiment, row, measure, **at):
    (found,) = [
        each["value"]
        for each in experiment.finished_rows()
        if each["measure"] == measure and {"row": row, **at}.items() <= each["at"].items()
    ]
    return found


def embedded(experiment, role):
    sets = experiment.sets(role)
    return {name: np.asarray(side.vectors, np.float64) for name, side in sets.items()}


@pytest.mark.parametrize(("map_", "repair"), [("plain", "cosine"), ("centered", "centered cosine")])
def test_the_repair_that_changes_nothing_finds_what_the_rows_find(experiment, map_, repair):
    """Scores of the cosine are searched and classified by as `retrieval` and `zero_shot` do with the rows."""
    for measure in SEARCHES:
        assert value(experiment, repair, measure) == pytest.approx(value(experiment, map_, measure), abs=1e-12)
    for classes in ("seen", "held out"):
        accuracies = [value(experiment, row, "zero_shot.top_1", classes=classes) for row in (map_, repair)]
        assert accuracies[0] == pytest.approx(accuracies[1], abs=1e-12)
    measured = {row["measure"] for row in experiment.finished_rows() if row["at"]["row"] == repair}
    assert measured == {*SEARCHES, "zero_shot.top_1"}  # its rows have no geometry of their own


def test_the_repair_is_fitted_on_other_pairs(experiment):
    pairs, scored = (cg.Pipeline("normalize").fit(s).transform(s) for s in map(embedded, (experiment,) * 2, ROLES))
    relevance = cg.search.Relevance.of_labels(image=range(24), text=range(24), within=False)
    fitted = cg.search.make_repair("posterior").fit(cg.search.Known(pairs, relevance))
    scores = fitted.mixed("text", scored["text"], scored, np.arange(40))
    best = np.diag(scores["image"])[:, None]
    ahead = (scores["image"] >= best).sum(1) - 1 + (scores["text"] >= best).sum(1)
    assert value(experiment, "calibrated", "retrieval[mixed].text_to_image.r_at_1") == np.mean(ahead == 0)
    for way in WAYS:  # the order within a modality of items stays
        measure = f"retrieval.{way}.r_at_1"
        assert value(experiment, "calibrated", measure) == value(experiment, "plain", measure)
    (fitted_on,) = {row["fitted_on"] for row in experiment.finished_rows() if row["at"]["row"] == "calibrated"}
    assert fitted_on == "scenes/train"


def test_the_map_is_fitted_on_other_pairs(experiment):
    """The gap after centering on others is that of a hand-made map, and not the 0 of centering on the very rows."""
    fitted = Pipeline(CENTERED).fit(embedded(experiment, "pairs"))
    moved = fitted.transform(embedded(experiment, "scored"))
    gap = value(experiment, "centered", "modality_gap")
    assert gap == pytest.approx(float(modality_gap(moved["image"], moved["text"])), abs=1e-12)
    assert gap > 1e-3
    share = retrieval(moved["image"], moved["text"], k=10, index="mixed")["image.same_modality_at_10"]
    assert value(experiment, "centered", "retrieval[mixed].image.same_modality_at_10") == pytest.approx(
        share, abs=1e-12
    )
    (fitted_on,) = {row["fitted_on"] for row in experiment.finished_rows() if row["at"]["row"] == "centered"}
    assert fitted_on == "scenes/train:each"


def test_zero_shot_is_taken_among_all_classes_apart_for_those_that_the_pairs_lack(experiment):
    sets = experiment.sets("scored")
    prompts = experiment.embeddings(experiment.config.model, experiment.config.prompted, only="text")["text"]
    labels, seen = np.asarray(sets["image"].labels), np.asarray(experiment.sets("pairs")["image"].labels)
    known = np.isin(labels, seen)
    assert 1 < known.sum() < len(labels) - 1
    classes = np.asarray(prompts.vectors)[np.argsort(prompts.labels)]
    for name, chosen in (("seen", known), ("held out", ~known)):
        expected = zero_shot(np.asarray(sets["image"].vectors)[chosen], labels[chosen], classes)["top_1"]
        assert value(experiment, "plain", "zero_shot.top_1", classes=name) == pytest.approx(expected)
    rows = [row for row in experiment.finished_rows() if row["measure"] == "zero_shot.top_1"]
    assert {row["null_value"] for row in rows} == {1 / 80} and {row["n"] for row in rows} == {
        known.sum(),
        (~known).sum(),
    }


def test_a_new_map_leaves_the_others_finished(experiment):
    more = {**VALUES, "maps": [*VALUES["maps"], {"row": "scaled", "pipeline": ["normalize", "scale(2)"]}]}
    ((kind, config),) = plan(more, "c")
    keys = {cell.key for cell in kind(config, experiment.workspace).cells()}
    assert len(keys - {cell.key for cell in experiment.cells()}) == 1 and len(keys) == 6
