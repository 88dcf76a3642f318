"""Figures and words of the stability study, out of made-up errors."""

import matplotlib.colors
import pytest

from clip_geometry_experiments.report.gallery import save_drawings
from clip_geometry_experiments.rudman2024.stability.figures import (
    draw_stability,
    errors_figure,
    label_of,
    numbers_of,
    shrinkage_figure,
    tell,
    which_when,
    words,
)

pytestmark = pytest.mark.usefixtures("unrendered")

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


def numbers(name, cloud, n=None, label="plain"):
    """Of one size, or of all."""
    found = NUMBERS[(NUMBERS["cloud"] == cloud) & (NUMBERS["label"] == label)]
    return list(found[name]) if n is None else found.set_index("n")[name][n]


def caption(found, n=64):
    return words("errors", n, **which_when(found, n, (0.2,)))


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
            expected = [truth + numbers("bias", cloud, n, label_of("isoscore_star", zeta)) for zeta in (0.0, 0.2, 1.0)]
            assert list(drawn.get_ydata()) == pytest.approx(expected)
    shades = [matplotlib.colors.to_rgb(line(figure, f"star:round:{n}").get_color()) for n in SIZES]
    assert [sum(shade) for shade in shades] == sorted([sum(shade) for shade in shades], reverse=True)


def test_errors_figure_shows_bias_and_rmse_of_each_estimate():
    figure = errors_figure(NUMBERS, (0.2,))
    assert [axes.get_ylabel() for axes in figure.axes] == ["bias", "RMSE"] * 3
    assert {axes.get_xlabel() for axes in figure.axes[-2:]} == {"rows n"}
    for label in ("plain", "unbiased", "IsoScore* (ζ = 0.2)"):
        for what in ("bias", "rmse"):
            drawn = line(figure, f"{what}:heavy:{label}")
            assert list(drawn.get_xdata()) == list(SIZES)
            assert list(drawn.get_ydata()) == numbers(what, "heavy", label=label)
    assert figure.axes[1].get_yscale() == "log" and figure.axes[0].get_xscale() == "log"
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["plain", "unbiased", "IsoScore* (ζ = 0.2)"]


def test_the_zetas_that_are_asked_for_are_those_that_are_shown(tmp_path):
    zetas, labels = (0.0, 1.0), ["IsoScore* (ζ = 0)", "IsoScore* (ζ = 1)"]
    figure = errors_figure(NUMBERS, zetas)
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["plain", "unbiased", *labels]
    for label, zeta in zip(labels, zetas, strict=True):
        expected = [row["value"] for row in ROWS if row["dataset"] == "long" and row["at"].get("zeta") == zeta]
        assert list(line(figure, f"rmse:long:{label}").get_ydata()) == expected[2::3]
    facts = which_when(NUMBERS, 64, zetas)
    shown = [each["label"] for each in facts["clouds"][0]["estimates"]]
    assert shown == ["plain", "unbiased", *labels]
    best = [{**row, "d": 128, "value": 1e-9} if row["at"].get("zeta") == 1 else {**row, "d": 128} for row in ROWS]
    assert "IsoScore* (ζ = 1)" in tell(best, 64, zetas)[1] and "ζ" not in tell(best, 64, (0.2,))[1]
    _, entry = save_drawings(draw_stability(best, n=64, zetas=zetas), tmp_path, origin="")
    assert "IsoScore* (ζ = 1) at n = 8 to 512" in entry.caption


def test_the_caption_gives_the_numbers_at_one_size():
    said = caption(NUMBERS)
    assert "At n = 64, round: bias −0.016, RMSE 0.016 (plain); bias −0.082, RMSE 0.082 (unbiased, 0.0078 of the" in said
    assert "; bias −0.047, RMSE 0.047 (IsoScore* with the best ζ, 0). long: bias" in said
    assert "smallest RMSE of these estimates: round: plain at n = 8 to 512; long: plain at n = 8 to" in said
    assert "true score of 0.644 have average plain scores of 0.613 (long) and 0.597 (heavy)" in said


def test_the_best_estimate_may_change_with_the_size():
    numbers = numbers_of([row for row in ROWS if row["dataset"] == "round"])
    numbers.loc[(numbers["n"] == 512) & (numbers["label"] == "unbiased"), "rmse"] = 1e-9
    said = caption(numbers)
    assert "round: plain at n = 8 to 64, unbiased at n = 512. " in said
    assert "same true score" not in said


def test_nothing_is_said_of_a_size_that_is_not_there_and_undefined_numbers_are_left_out():
    assert "At n" not in caption(NUMBERS, 99) and "smallest" not in caption(NUMBERS, 99)
    undefined = [{**row, "value": None} if row["at"]["estimator"] == "isoscore[unbiased]" else row for row in ROWS]
    said = caption(numbers_of(undefined))
    assert "(unbiased" not in said and "(plain)" in said and "nan" not in said
    figure = errors_figure(numbers_of(undefined), (0.2,))
    assert len(line(figure, "rmse:round:unbiased").get_xdata()) == 0


def test_figures_are_saved_with_captions(tmp_path):
    entries = save_drawings(
        draw_stability(ROWS, n=64, zetas=(0.2,)), tmp_path, origin="Seed 3.", prefix="01-", group="g"
    )
    assert [entry.name for entry in entries] == ["01-stability_shrinkage", "01-stability_errors"]
    for entry in entries:
        assert entry.svg_path is not None and entry.svg_path.exists() and entry.caption.endswith("Seed 3.")
        assert entry.group == "g"
    assert "At n = 64" in entries[1].caption
    assert save_drawings(draw_stability([], n=64, zetas=(0.2,)), tmp_path, origin="") == []


def test_the_summary_has_biases_the_least_error_and_twins():
    rows = [{**row, "d": 128} for row in ROWS]
    biases, least, twins = tell(rows, 64, (0.2,))
    assert biases.startswith("Of 64 rows in 128 dimensions plain IsoScore is off by up to −0.0469 ± 0.0010 on average")
    assert "for none of 3 clouds the unbiased score's bias is within two standard errors of 0" in biases
    assert least.startswith("The smallest root mean square error at this size has plain for all 3 clouds.")
    scores = [0.644 + numbers("bias", cloud, 64) for cloud in ("long", "heavy")]
    assert f"plain scores of {scores[0]:.4f} ± 0.0010 (long) and {scores[1]:.4f} ± 0.0010 (heavy)." in twins
    wide = [{**row, "standard_error": 1.0} for row in rows]
    biases, least, twins = tell(wide, 64, (0.2,))
    assert "for 3 of 3 clouds" in biases and "(a tie) for all 3 clouds." in least
    assert twins.endswith("equal within two standard errors.")
    assert tell([], 64, (0.2,)) == []
