"""Figures and words of the stability study, out of made-up errors."""

import pytest

from clip_geometry_experiments.rudman2024.stability.figures import errors_figure, numbers_of, tell

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


ROWS = list(made_up())
NUMBERS = numbers_of(ROWS)


def test_the_summary_has_biases_and_the_least_error():
    rows = [{**row, "d": 128} for row in ROWS]
    biases, least = tell(rows, 64, (0.2,))
    assert biases.startswith("For 64 rows in 128 dimensions, the largest bias of plain IsoScore is −0.0469 ± 0.0010")
    assert "for none of 3 clouds the unbiased score's bias is within two standard errors of 0" in biases
    assert least.startswith("The smallest root mean square error at this size has plain for all 3 clouds.")
    wide = [{**row, "standard_error": 1.0} for row in rows]
    biases, least = tell(wide, 64, (0.2,))
    assert "for 3 of 3 clouds" in biases and "(a tie) for all 3 clouds." in least
    assert tell([], 64, (0.2,)) == []


def test_the_zetas_that_are_asked_for_are_those_that_are_shown():
    zetas, labels = (0.0, 1.0), ["IsoScore* (ζ = 0)", "IsoScore* (ζ = 1)"]
    figure = errors_figure(NUMBERS, zetas)
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["plain", "unbiased", *labels]
    lines = {line.get_gid(): line for axes in figure.axes for line in axes.lines}
    for label, zeta in zip(labels, zetas, strict=True):
        expected = [row["value"] for row in ROWS if row["dataset"] == "long" and row["at"].get("zeta") == zeta]
        assert list(lines[f"rmse:long:{label}"].get_ydata()) == expected[2::3]
    best = [{**row, "d": 128, "value": 1e-9} if row["at"].get("zeta") == 1 else {**row, "d": 128} for row in ROWS]
    assert "IsoScore* (ζ = 1)" in tell(best, 64, zetas)[1] and "ζ" not in tell(best, 64, (0.2,))[1]
