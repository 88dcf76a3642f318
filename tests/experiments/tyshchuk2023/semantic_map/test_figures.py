"""Images stand at their points and cover none of the others; colors join the two maps."""

import numpy as np
import pytest
from matplotlib.colors import to_hex, to_rgb
from PIL import Image

from clip_geometry.display.style import NEUTRAL
from clip_geometry_experiments.tyshchuk2023.semantic_map.figures import (
    PIXELS,
    PlaneOfRows,
    draw_map,
    draw_semantic_map,
    shades_of,
    tell,
)
from clip_geometry_experiments.tyshchuk2023.semantic_map.planes import superpose

POINTS = np.random.default_rng(3).normal(size=(200, 2)) * [3, 2]


def flat(row):
    """A picture in a grey of its own, wider than high."""
    if row % 7 == 3:
        raise OSError("no picture")
    return Image.new("RGB", (60, 40), (row, row, row))


def pictures(figure):
    return {int(each.get_gid().partition(":")[2]): each for each in figure.axes[0].images}


def test_images_stand_at_their_points_inside_the_panel_without_overlap():
    figure, sentence = draw_map(POINTS, "image", flat)
    found = pictures(figure)
    assert sentence == f"{len(found)} of 200 images are drawn at their points, the others as dots." and len(found) > 30
    (left, right), (bottom, top) = figure.axes[0].get_xlim(), figure.axes[0].get_ylim()
    extents = {row: np.array(each.get_extent()).reshape(2, 2) for row, each in found.items()}
    for row, extent in extents.items():
        assert extent.mean(1) == pytest.approx(POINTS[row], abs=1e-12)
        assert left - 1e-9 <= extent[0, 0] < extent[0, 1] <= right + 1e-9
        assert bottom - 1e-9 <= extent[1, 0] < extent[1, 1] <= top + 1e-9
        side = extent[0, 1] - extent[0, 0]
        apart = (np.abs(POINTS[row] - POINTS[other]).max() for other in extents if other != row)
        assert min(apart) >= side - 1e-9
    left_out = [row for row in set(range(200)) - set(found) if row % 7 != 3]
    for row in left_out:  # nothing is left out without a reason
        assert min(np.abs(POINTS[row] - POINTS[other]).max() for other in found) < side
    assert not any(row % 7 == 3 for row in found)  # those that cannot be read


def test_an_image_has_the_color_of_its_row_around_its_central_square():
    shades = [to_hex((0.2, 0.4, row / 200)) for row in range(200)]
    figure, _ = draw_map(POINTS, "image", flat, shades=shades)
    for row, each in pictures(figure).items():
        pixels = np.asarray(each.get_array())
        assert pixels.shape == (PIXELS, PIXELS, 3) and (pixels[PIXELS // 2, PIXELS // 2] == row).all()
        assert pixels[0, 0] / 255 == pytest.approx(to_rgb(shades[row]), abs=1 / 255)


def test_squares_look_square():
    figure, _ = draw_map(POINTS, "text", flat)
    panel = figure.axes[0].get_position()
    width, height = figure.get_size_inches() * [panel.width, panel.height]
    (left, right), (bottom, top) = figure.axes[0].get_xlim(), figure.axes[0].get_ylim()
    assert width / height == pytest.approx((right - left) / (top - bottom), rel=1e-6)


def test_equal_points_and_no_images_are_points():
    figure, sentence = draw_map(np.zeros((5, 2)), "image", None)
    assert sentence == "Drawn as points, since no images are available." and not pictures(figure)


def test_both_maps_are_drawn_in_one_frame_with_one_color_for_an_item():
    i, j = np.arange(180), np.random.default_rng(0).permutation(180)
    together = superpose(POINTS, POINTS + 0.1, (i, j))
    shades = shades_of(together)
    assert [shades["text"][text] for text in j] == [shades["image"][image] for image in i]
    assert set(shades["text"][180:]) == {NEUTRAL}  # of no image
    planes = {name: PlaneOfRows(POINTS, perplexity, flat) for name, perplexity in (("image", 5), ("text", 50))}
    drawn = draw_semantic_map(planes, together)
    assert list(drawn) == ["semantic_images", "semantic_images_aligned", "semantic_texts_aligned"]
    aligned = [drawn[name].figure.axes[0] for name in list(drawn)[1:]]
    assert aligned[0].get_xlim() == aligned[1].get_xlim() and aligned[0].get_ylim() == aligned[1].get_ylim()


def numbers(disparity, shuffled):
    at = {"modality": "both"}
    return [
        {"measure": "semantic_map.disparity", "value": disparity, "standard_error": 0.01, "at": at},
        {"measure": "semantic_map.disparity_shuffled", "value": shuffled, "standard_error": 0.01, "at": at},
        {"measure": "semantic_map.trustworthiness", "value": 0.95, "at": {"modality": "image"}},
        {"measure": "semantic_map.trustworthiness", "value": 0.9, "at": {"modality": "text"}},
    ]


def test_maps_agree_only_beyond_what_shuffled_pairs_give():
    agreement, _ = tell(numbers(0.5, 0.98))
    assert "agree beyond chance: their disparity is 0.500 ± 0.010, with shuffled pairs 0.980 ± 0.010" in agreement
    for disparity in (0.97, 0.99, 1.0):  # within two standard errors, or beyond it in the other direction
        assert "agree no more than with shuffled pairs" in tell(numbers(disparity, 0.98))[0]
