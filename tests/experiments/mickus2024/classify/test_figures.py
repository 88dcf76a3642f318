"""Curves and relations are drawn as recorded, with their spread, and captions say what they show."""

import numpy as np
import pytest

from clip_geometry_experiments.mickus2024.classify.figures import (
    Relation,
    curves_figure,
    draw_classify,
    draw_tasks,
    first_relation,
    hidden_curves,
    learning_figure,
    legend_columns,
    relation_figure,
    tasks_curves,
    unseen_figure,
)
from clip_geometry_experiments.report.gallery import save_drawings

pytestmark = pytest.mark.usefixtures("unrendered")

UPDATES = np.array([0, 5, 10, 12])
SILHOUETTE = np.array([[0.0, 0.1, 0.3, 0.4], [0.0, 0.2, 0.4, 0.5]])
ISOSCORE = np.array([[0.3, 0.2, 0.05, 0.01], [0.3, 0.1, 0.04, 0.02]])
CURVES = {
    ("silhouette", "trained", "input"): SILHOUETTE,
    ("silhouette[cosine]", "trained", "input"): SILHOUETTE + 0.1,
    ("isoscore", "trained", "input"): ISOSCORE,
    ("classify.loss", "trained", "output"): 1 - SILHOUETTE,
    ("classify.accuracy", "trained", "output"): 0.5 + SILHOUETTE,
}
UNSEEN = {("classify.accuracy", "held out", "output"): 0.4 + SILHOUETTE}
HIDDEN = {("silhouette", "trained", "hidden"): SILHOUETTE - 0.2}


def drawn(figure, gid):
    (found,) = (line for axes in figure.axes for line in axes.lines if line.get_gid() == gid)
    return found


def test_curves_are_means_over_seeds_with_a_band_of_one_deviation():
    figure = curves_figure({**CURVES, **HIDDEN}, UPDATES)
    above, below = figure.axes
    assert (above.get_ylabel(), below.get_ylabel(), below.get_xlabel()) == ("silhouette", "IsoScore", "update")
    assert below.get_yscale() == "log" and above.get_yscale() == "linear"
    line = drawn(figure, "silhouette:trained:input")
    assert list(line.get_xdata()) == list(UPDATES) and line.get_ydata() == pytest.approx(SILHOUETTE.mean(0))
    band = below.collections[0].get_paths()[0].vertices
    at_end = sorted(y for x, y in band if x == 12)
    mean, deviation = ISOSCORE[:, -1].mean(), ISOSCORE[:, -1].std(ddof=1)
    assert (at_end[0], at_end[-1]) == pytest.approx((mean - deviation, mean + deviation))
    texts = [text.get_text() for text in above.get_legend().get_texts()]
    assert texts == ["Euclidean", "cosine", "Euclidean, hidden layer"]
    looks = {(line.get_color(), str(line.get_linestyle())) for line in above.lines}
    assert len(looks) == 3 and below.get_legend() is None


def test_held_out_examples_stand_beside_the_trained_ones_of_the_hidden_layer(tmp_path):
    hidden = {
        (measure, examples, "hidden"): values * share
        for measure, values in (("silhouette", SILHOUETTE), ("isoscore", ISOSCORE))
        for examples, share in (("trained", 1), ("held out", 0.1))
    }
    assert hidden_curves({**CURVES, **HIDDEN}) == {}
    found = hidden_curves({**CURVES, **hidden})
    assert set(found) == set(hidden)
    figure = unseen_figure(found, UPDATES)
    trained, held_out = (drawn(figure, f"isoscore:{name}:hidden") for name in ("trained", "held out"))
    assert held_out.get_ydata() == pytest.approx(trained.get_ydata() * 0.1)
    assert trained.get_linestyle() == "-" != held_out.get_linestyle()
    entries = save_drawings(draw_classify({**CURVES, **hidden}, UPDATES), tmp_path, origin="")
    (entry,) = (each for each in entries if each.name == "classify_unseen")
    assert "silhouette of trained examples goes from 0 to 0.4500" in entry.caption.lower()
    assert "isoscore of held-out examples goes from 0.0300 to 0.0015" in entry.caption.lower()


def test_a_single_seed_has_no_band_and_a_score_below_zero_no_logarithm():
    figure = curves_figure({("isoscore", "trained", "input"): np.array([[0.2, -0.1]])}, np.array([0, 1]))
    (axes,) = figure.axes
    assert axes.get_yscale() == "linear"
    assert np.ptp(axes.collections[0].get_paths()[0].vertices[:, 1]) == pytest.approx(0.3)


def test_the_relation_runs_through_all_states_from_the_first():
    figure = relation_figure({"wnli": Relation(SILHOUETTE, ISOSCORE), "rte": Relation(SILHOUETTE, ISOSCORE / 2)})
    (axes,) = figure.axes
    line, first = drawn(figure, "relation:wnli"), drawn(figure, "first:wnli")
    assert line.get_xdata() == pytest.approx(ISOSCORE.mean(0)) and line.get_ydata() == pytest.approx(SILHOUETTE.mean(0))
    assert first.get_xdata() == pytest.approx([0.3]) and first.get_ydata() == pytest.approx([0.0])
    assert axes.get_xscale() == "log" and line.get_color() != drawn(figure, "relation:rte").get_color()
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["wnli", "rte", "before the first update"]
    (bar,) = [container for container in axes.containers if container.has_xerr][:1]
    horizontal, _ = bar[2]
    ends = horizontal.get_segments()[-1][:, 0]
    assert ends == pytest.approx(ISOSCORE[:, -1].mean() + np.array([-1, 1]) * ISOSCORE[:, -1].std(ddof=1))


def test_held_out_examples_are_dashed_beside_the_trained_ones():
    figure = learning_figure({**CURVES, **UNSEEN}, UPDATES)
    assert [axes.get_ylabel() for axes in figure.axes] == ["loss", "accuracy"]
    trained, unseen = (drawn(figure, f"classify.accuracy:{name}:output") for name in ("trained", "held out"))
    assert trained.get_linestyle() == "-" and unseen.get_linestyle() == "--"
    assert unseen.get_ydata() == pytest.approx((0.4 + SILHOUETTE).mean(0))
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["trained", "held-out"]
    assert not learning_figure(CURVES, UPDATES).legends


def test_a_caption_of_held_out_examples_gives_their_accuracy(tmp_path):
    hidden = {("silhouette", name, "hidden"): SILHOUETTE for name in ("trained", "held out")}
    caption = next(
        entry.caption
        for entry in save_drawings(draw_classify({**CURVES, **UNSEEN, **hidden}, UPDATES), tmp_path, origin="")
        if entry.name == "classify_unseen"
    )
    assert "accuracy on held-out examples is 0.8500; if this is chance level" in caption


def test_figures_are_saved_and_captions_give_the_numbers(tmp_path):
    entries = save_drawings(
        draw_classify({**CURVES, **UNSEEN}, UPDATES),
        tmp_path,
        origin="wnli; a model; seeds 0, 1.",
        prefix="01-",
        group="a run",
    )
    assert [entry.name for entry in entries] == ["01-classify_curves", "01-classify_relation", "01-classify_learning"]
    for entry in entries:
        assert entry.caption.endswith("wnli; a model; seeds 0, 1.") and entry.group == "a run"
        assert entry.svg_path.exists() and entry.png_path.exists()
    curves, relation, learning = (entry.caption for entry in entries)
    assert curves.startswith("Silhouette goes from 0 to 0.4500, IsoScore goes from 0.3000 to 0.0150.")
    r = np.corrcoef(SILHOUETTE.ravel(), ISOSCORE.ravel())[0, 1]
    r_log = np.corrcoef(SILHOUETTE.ravel(), np.log(ISOSCORE.ravel()))[0, 1]
    assert f"silhouette is −{-r:.4f} with IsoScore and −{-r_log:.4f} with its logarithm, over 4 states" in relation
    assert "accuracy on trained examples is 0.9500. The final accuracy on held-out examples is 0.8500" in learning


def test_what_was_not_recorded_is_not_drawn(tmp_path):
    only_loss = {place: values for place, values in CURVES.items() if place[0] == "classify.loss"}
    assert first_relation(only_loss) is None
    entries = save_drawings(draw_classify(only_loss, UPDATES), tmp_path, origin="x.")
    assert [entry.name for entry in entries] == ["classify_learning"]
    assert save_drawings(draw_classify({}, UPDATES), tmp_path, origin="x.") == []


def test_several_tasks_are_drawn_in_one_figure_each(tmp_path):
    relation = Relation(SILHOUETTE, ISOSCORE)
    tasks = {"wnli": (UPDATES, relation), "rte": (2 * UPDATES, Relation(SILHOUETTE + 0.1, ISOSCORE / 2))}
    figure = tasks_curves(tasks)
    line = drawn(figure, "isoscore:rte")
    assert list(line.get_xdata()) == [0, 10, 20, 24] and line.get_ydata() == pytest.approx(ISOSCORE.mean(0) / 2)
    assert line.get_color() == drawn(figure, "silhouette:rte").get_color() != drawn(figure, "isoscore:wnli").get_color()
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["wnli", "rte"]
    entries = save_drawings(draw_tasks(tasks), tmp_path, origin="lr 0.001.")
    assert [entry.name for entry in entries] == ["tasks_curves", "tasks_relation"]
    assert all(entry.svg_path.exists() and entry.caption.endswith("2 seeds, with one standard deviation. lr 0.001.")
               for entry in entries)  # fmt: skip


@pytest.mark.parametrize(
    ("labels", "columns"),
    [
        (["labels", "shuffled labels", "before the first update"], 3),
        ([*(f"random_classes {k}" for k in (2, 5, 10, 20, 40, 80)), "before the first update"], 2),
        (["a" * 50, "b" * 50], 1),
        ([], 3),
    ],
)
def test_a_legend_has_the_columns_that_fit(labels, columns):
    assert legend_columns(labels) == columns
