"""Pictures and captions stand at their points and cover none of the others; colors join the two maps."""

import numpy as np
import pytest
from PIL import Image

from clip_geometry_experiments.tyshchuk2023.semantic_map.figures import (
    tell,
)
from clip_geometry_experiments.tyshchuk2023.semantic_map.marks import (
    picture_grid,
    picture_map,
)

POINTS = np.random.default_rng(3).normal(size=(200, 2)) * [3, 2]


def flat(row):
    """A picture in a grey of its own, wider than high."""
    return Image.new("RGB", (60, 40), (row, row, row))


def pictures(figure):
    return {int(each.get_gid().partition(":")[2]): each for each in figure.axes[0].images}


# --- thinning


# --- pictures


def test_pictures_stand_at_their_points_inside_the_panel_without_overlap():
    figure, count = picture_map(POINTS, flat)
    found = pictures(figure)
    assert count == len(found) > 30
    (left, right), (bottom, top) = figure.axes[0].get_xlim(), figure.axes[0].get_ylim()
    extents = {row: np.array(each.get_extent()).reshape(2, 2) for row, each in found.items()}
    for row, extent in extents.items():
        assert extent.mean(1) == pytest.approx(POINTS[row], abs=1e-12)
        assert extent[0, 0] >= left - 1e-9 and extent[0, 1] <= right + 1e-9
        assert extent[1, 0] >= bottom - 1e-9 and extent[1, 1] <= top + 1e-9
        sides = extent[:, 1] - extent[:, 0]
        assert sides[0] == pytest.approx(sides[1])
        apart = (np.abs(POINTS[row] - POINTS[other]).max() for other in extents if other != row)
        assert min(apart) >= sides[0] - 1e-9
    panel = figure.axes[0].get_position()
    width, height = figure.get_size_inches() * [panel.width, panel.height]
    assert width / height == pytest.approx((right - left) / (top - bottom), rel=1e-6)  # squares look square


# --- the grid


@pytest.mark.parametrize("n", [1, 2, 3, 5, 8, 64, 199, 200])
def test_the_grid_has_no_empty_cell_and_no_image_twice(n):
    """Nearly all images have a cell: at most about as many are left out as a side has."""
    figure, count = picture_grid(POINTS[:n], flat)
    axes, found = figure.axes[0], pictures(figure)
    columns, lines = (round(axes.viewLim.width), round(axes.viewLim.height))
    assert count == len(found) == columns * lines > n - 2 * n**0.5 and columns <= 1.5 * lines + 2
    centres = {tuple(np.array(each.get_extent()).reshape(2, 2).mean(1)) for each in found.values()}
    assert centres == {(x + 0.5, y + 0.5) for x in range(columns) for y in range(lines)}
    assert not axes.collections  # no dots


# --- captions


# --- points


# --- both maps in one frame


# --- the entries


def numbers(disparity, shuffled):
    at = {"modality": "both"}
    return [
        {"measure": "semantic_map.disparity", "value": disparity, "standard_error": 0.01, "at": at},
        {"measure": "semantic_map.disparity_shuffled", "value": shuffled, "standard_error": 0.01, "at": at},
        {"measure": "semantic_map.trustworthiness", "value": 0.95, "at": {"modality": "image"}},
        {"measure": "semantic_map.mutual_knn", "value": 0.2, "standard_error": 0.01, "at": at},
        {"measure": "mutual_knn", "value": 0.4, "null_value": 0.1, "at": at},
    ]


def test_maps_agree_only_beyond_what_shuffled_pairs_give():
    agreement, faithful, shared = tell(numbers(0.5, 0.98))
    assert "agree beyond chance: their disparity is 0.500 ± 0.010, with shuffled pairs 0.980 ± 0.010" in agreement
    assert faithful == "The maps keep 0.9500 of the neighborhoods of the images (trustworthiness, 1 is all)."
    assert shared.endswith(
        "share 0.200 ± 0.010 of their neighbors on the maps, 0.4000 in the embeddings (null value 0.1000)."
    )
    for disparity in (0.97, 0.99, 1.0):  # within two standard errors, or beyond it in the other direction
        assert "agree no more than with shuffled pairs" in tell(numbers(disparity, 0.98))[0]
    assert tell([{**row, "value": None} for row in numbers(0.5, 0.98)]) == []
