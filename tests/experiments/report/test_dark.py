"""Colors of figures on dark screens: all can be seen, papers are dark, and light files keep what they were."""

import re

import pytest
from matplotlib.figure import Figure

from clip_geometry.display.couples import AS_DRAWN
from clip_geometry.display.style import COLOR, COLORS
from clip_geometry_experiments.kit.figures import SERIES, SIGNS
from clip_geometry_experiments.report.dark import CONTRAST, INK, PAPER, contrast, dark_color, with_dark_mode
from clip_geometry_experiments.report.gallery import save_figure

ALL = sorted({*COLOR.values(), *COLORS, *SERIES, *(color for color, _ in SIGNS)})


@pytest.mark.parametrize("color", [color.lower() for color in ALL])
def test_every_color_of_the_house_is_seen_on_dark_paper(color):
    grey = max(int(color[k : k + 2], 16) for k in (1, 3, 5)) - min(int(color[k : k + 2], 16) for k in (1, 3, 5)) < 31
    assert contrast(dark_color(color)) >= (2.9 if grey else CONTRAST)


def test_black_and_white_change_places_and_bright_colors_stay():
    assert dark_color("#ffffff") == PAPER and contrast(dark_color("#000000")) > 12
    assert dark_color("#e69f00") == "#e69f00"
    assert contrast("#ffffff", "#000000") == pytest.approx(21)


def test_modalities_keep_their_hues():
    for color, highest in (("#0072b2", 2), ("#d55e00", 0)):
        parts = [int(dark_color(color)[k : k + 2], 16) for k in (1, 3, 5)]
        assert max(parts) == parts[highest] and max(parts) - min(parts) > 80


def test_the_vector_file_has_both_and_the_bitmap_is_white(tmp_path):
    figure = Figure(figsize=(2, 1))
    axes = figure.add_subplot()
    axes.plot([0, 1], color="#0072B2")
    axes.text(0, 0, "on a color", color="#24292F", gid=f"{AS_DRAWN}:0")
    _, svg = save_figure(figure, tmp_path, "one")
    text = svg.read_text(encoding="utf-8")
    sheet = re.search(r"<style>@media screen and \(prefers-color-scheme:dark\)\{.*?</style>", text)[0]
    assert f"svg{{fill:{INK}}}" in sheet
    assert f'[style*="stroke: #0072b2"]:not([id^="{AS_DRAWN}"] *){{stroke:{dark_color("#0072b2")}!important}}' in sheet
    assert f'id="{AS_DRAWN}:0"' in text
    assert "stroke: #0072b2" in text.replace(sheet, "")  # as before on a light screen


def test_colors_that_become_the_same_share_a_rule():
    paint = "".join(f'<path style="fill: {color}"/>' for color in ("#fefefe", "#ffffff", "#ffffff"))
    sheet = with_dark_mode(f"<svg><defs></defs>{paint}</svg>")
    assert sheet.count("{fill:") == len({dark_color("#fefefe"), dark_color("#ffffff")}) + 1
    assert with_dark_mode("<svg/>") == "<svg/>"
