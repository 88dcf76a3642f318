"""Figures and words of the stability study, out of made-up errors."""

import matplotlib.colors
import pytest

from clip_geometry.experiments.rudman2024.stability.report import (
    draw_stability,
    errors_figure,
    numbers_of,
    shrinkage_figure,
)
from clip_geometry.experiments.rudman2024.stability.words import which_when

ESTIMATES = [("isoscore", None), ("isoscore[unbiased]", None), *(("isoscore_star", z) for z in (0.0, 0.2, 1.0))]
SIZES = (8, 64, 512)
TRUTHS = {"round": 1.0, "long": 0.644, "heavy": 0.644}


def made_up():
    """Errors that tell cloud, size and estimate apart."""
    for c, (cloud, truth) in enumerate(TRUTHS.items()):
        for n in SIZES:
            for e, (estimator, zeta) in enumerate(ESTIMATES):
                at = {"estimator": estimator} if zeta is None else {"estimator": estimator, "zeta": zeta}
                shared = {"dataset": cloud, "n": n, "truth": truth, "at": at, "standard_error": 0.001}
                size = (e + 1) * (c + 1) / n if estimator != "isoscore[unbiased]" else 1.5 / n**0.7
                for name, value in (("bias", -size), ("standard_deviation", size / 10), ("rmse", 1.01 * size)):
                    yield {**shared, "measure": f"stability.{name}", "value": value}
            at = {"estimator": "isoscore[unbiased]"}
            yield {**shared, "at": at, "measure": "stability.ratio_bias", "value": 0.5 / n}


ROWS = list(made_up())
NUMBERS = numbers_of(ROWS)


def line(figure, gid):
    (found,) = [each for axes in figure.axes for each in axes.lines if each.get_gid() == gid]
    return found


def test_shrinkage_figure_shows_the_mean_against_zeta_and_the_truth():
    figure = shrinkage_figure(NUMBERS)
    assert [axes.get_ylabel() for axes in figure.axes] == ["IsoScore*"] * 3
    assert "ζ" in figure.axes[-1].get_xlabel()
    for cloud, truth in TRUTHS.items():
        assert list(line(figure, f"truth:{cloud}").get_ydata()) == [truth, truth]
        for n in SIZES:
            drawn = line(figure, f"star:{cloud}:{n}")
            assert list(drawn.get_xdata()) == [0, 0.2, 1]
            expected = [truth + NUMBERS[cloud, n, "isoscore_star", zeta]["bias"] for zeta in (0.0, 0.2, 1.0)]
            assert list(drawn.get_ydata()) == pytest.approx(expected)
    shades = [matplotlib.colors.to_rgb(line(figure, f"star:round:{n}").get_color()) for n in SIZES]
    assert [sum(shade) for shade in shades] == sorted([sum(shade) for shade in shades], reverse=True)


def test_errors_figure_shows_bias_and_rmse_of_each_estimate():
    figure = errors_figure(NUMBERS, (0.2,))
    assert [axes.get_ylabel() for axes in figure.axes] == ["bias", "RMSE"] * 3
    assert {axes.get_xlabel() for axes in figure.axes[-2:]} == {"rows n"}
    labels = {"plain": ("isoscore", None), "unbiased": ("isoscore[unbiased]", None)}
    for label, of in (labels | {"IsoScore* (ζ = 0.2)": ("isoscore_star", 0.2)}).items():
        for what in ("bias", "rmse"):
            drawn = line(figure, f"{what}:heavy:{label}")
            assert list(drawn.get_xdata()) == list(SIZES)
            assert list(drawn.get_ydata()) == [NUMBERS["heavy", n, *of][what] for n in SIZES]
    assert figure.axes[1].get_yscale() == "log" and figure.axes[0].get_xscale() == "log"
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["plain", "unbiased", "IsoScore* (ζ = 0.2)"]


def test_words_are_drawn_from_the_numbers():
    told = which_when(NUMBERS, 64, (0.2,))
    assert told.startswith("At n = 64: round: plain bias −0.016 (RMSE 0.016), unbiased bias −0.082, of which the")
    assert "division of its parts makes 0.0078 (RMSE 0.082)" in told
    assert "and with the best of all ζ, 0, −0.047 (0.047)" in told
    assert "Smallest" not in told and "smallest RMSE among these: round: plain at n = 8 to 512" in told
    assert "Two clouds of the same true score 0.644 have plain scores of 0.613 (long) and 0.597 (heavy)" in told


def test_words_where_another_estimate_is_nearest_for_more_rows():
    numbers = numbers_of([row for row in ROWS if row["dataset"] == "round"])
    numbers["round", 512, "isoscore[unbiased]", None]["rmse"] = 1e-9
    told = which_when(numbers, 64, (0.2,))
    assert "round: plain at n = 8 to 64, unbiased at n = 512." in told
    assert "same true score" not in told


def test_nothing_is_said_of_a_size_that_is_not_there_and_undefined_numbers_are_left_out():
    assert which_when(NUMBERS, 99, (0.2,)) == ""
    undefined = [{**row, "value": None} if row["at"]["estimator"] == "isoscore[unbiased]" else row for row in ROWS]
    told = which_when(numbers_of(undefined), 64, (0.2,))
    assert "unbiased bias" not in told and "plain bias" in told
    figure = errors_figure(numbers_of(undefined), (0.2,))
    assert len(line(figure, "rmse:round:unbiased").get_xdata()) == 0


def test_figures_are_saved_with_captions(tmp_path):
    entries = draw_stability(ROWS, n=64, zetas=(0.2,), origin="Seed 3.", folder=tmp_path, prefix="01-", group="g")
    assert [entry.name for entry in entries] == ["01-stability_shrinkage", "01-stability_errors"]
    for entry in entries:
        assert entry.svg_path is not None and entry.svg_path.exists() and entry.caption.endswith("Seed 3.")
        assert entry.group == "g"
    assert "At n = 64" in entries[1].caption
    assert draw_stability([], n=64, zetas=(0.2,), origin="", folder=tmp_path) == []
