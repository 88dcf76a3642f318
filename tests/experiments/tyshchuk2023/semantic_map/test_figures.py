"""Pictures and captions stand at their points and cover none of the others; colors join the two maps."""

import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_hex, to_rgb
from matplotlib.image import AxesImage
from PIL import Image

from clip_geometry.display.style import COLOR, COLORS, NEUTRAL, WIDTH
from clip_geometry_experiments.report.gallery import save_drawings, save_figure
from clip_geometry_experiments.tyshchuk2023.semantic_map.figures import (
    OneFrame,
    PlaneItems,
    draw_semantic_map,
    shades_of,
    tell,
)
from clip_geometry_experiments.tyshchuk2023.semantic_map.marks import (
    EDGE,
    LETTERS,
    MARGIN,
    MOST,
    PIXELS,
    caption_map,
    filled,
    picture_grid,
    picture_map,
    point_map,
    shortened,
    thinned,
    window_of,
)
from clip_geometry_experiments.tyshchuk2023.semantic_map.planes import superpose

POINTS = np.random.default_rng(3).normal(size=(200, 2)) * [3, 2]
CELL = np.array([0.5, 0.5])


def flat(row):
    """A picture in a grey of its own, wider than high."""
    return Image.new("RGB", (60, 40), (row, row, row))


def missing(row):
    raise OSError("no picture")


def pictures(figure):
    return {int(each.get_gid().partition(":")[2]): each for each in figure.axes[0].images}


def boxes(figure):
    """row → extent of each caption with its slip, in pixels, once the figure was drawn."""
    FigureCanvasAgg(figure).draw()
    labels = figure.axes[0].texts
    return {int(each.get_gid().partition(":")[2]): each.get_bbox_patch().get_window_extent() for each in labels}


def overlap(a, b):
    return a.x0 < b.x1 and b.x0 < a.x1 and a.y0 < b.y1 and b.y0 < a.y1


# --- thinning


@pytest.mark.parametrize("size", [0.1, 0.25, 0.6])
def test_thinned_boxes_never_overlap_and_no_cell_has_two(size):
    half = np.array([size, size / 2])
    chosen = thinned(POINTS, lambda row: half, CELL)
    for a in chosen:
        for b in chosen:
            assert a == b or (np.abs(POINTS[a] - POINTS[b]) >= 2 * half).any()
    cells = [tuple(np.floor(POINTS[row] / CELL)) for row in chosen]
    assert len(cells) == len(set(cells)) > 10
    left = set(range(len(POINTS))) - set(chosen)
    for row in left:  # nothing is left out without a reason
        own = np.floor(POINTS[row] / CELL)
        blocked = any((np.abs(POINTS[row] - POINTS[other]) < 2 * half).all() for other in chosen)
        assert blocked or tuple(own) in cells


def test_the_nearest_to_the_centre_of_a_cell_is_drawn():
    points = np.array([[0.1, 0.1], [0.45, 0.55], [0.9, 0.9], [1.5, 0.5]])
    assert sorted(thinned(points, lambda row: np.full(2, 0.01), np.ones(2))) == [1, 3]


def test_the_next_nearest_is_drawn_where_the_nearest_does_not_fit():
    points = np.array([[0.5, 0.5], [1.3, 0.5], [1.1, 0.9]])
    assert sorted(thinned(points, lambda row: np.array([0.45, 0.1]), np.ones(2))) == [0, 2]
    assert thinned(points, lambda row: None if row == 0 else np.full(2, 0.01), np.ones(2)) == [1]


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


def test_the_picture_of_a_row_has_a_white_border_and_a_frame():
    figure, _ = picture_map(POINTS, flat)
    shades = [to_hex((0.2, 0.4, row / 200)) for row in range(200)]
    shaded, _ = picture_map(POINTS, flat, shades=shades)
    for each, colors in ((figure, [EDGE] * 200), (shaded, shades)):
        row, image = next(iter(pictures(each).items()))
        bitmap = np.asarray(image.get_array())
        assert bitmap.shape == (PIXELS, PIXELS, 3)
        assert (bitmap[PIXELS // 2, PIXELS // 2] == row).all()
        assert bitmap[0, 0] / 255 == pytest.approx(to_rgb(colors[row]), abs=1e-6)
        middle = bitmap[PIXELS // 2, : PIXELS // 2]
        assert (middle == 255).all(1).sum() in (4, 6) and (middle == row).all(1).sum() > PIXELS / 3


def test_every_picture_where_asked_for():
    figure, count = picture_map(POINTS, flat, everything=True)
    assert count == 200 and list(pictures(figure)) == list(range(200))


def test_a_picture_that_cannot_be_read_stays_a_dot():
    drawn = picture_map(POINTS, flat)[1]
    first = next(iter(pictures(picture_map(POINTS, flat)[0])))
    figure, count = picture_map(POINTS, lambda row: missing(row) if row == first else flat(row))
    assert count == drawn - 1 and first not in pictures(figure)
    (dots,) = figure.axes[0].collections
    assert np.array_equal(np.asarray(dots.get_offsets()), POINTS)


def test_the_middle_of_a_picture_is_drawn():
    def halves(row):
        picture = Image.new("RGB", (300, 100), "red")
        picture.paste("blue", (100, 0, 200, 100))
        return picture

    (image, *_) = pictures(picture_map(POINTS, halves)[0]).values()
    assert not (np.asarray(image.get_array()) == [255, 0, 0]).all(-1).any()


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


def test_points_that_are_a_grid_keep_their_places():
    across, up = np.meshgrid(np.arange(6), np.arange(5))
    points = np.column_stack([across.ravel(), up.ravel()])
    order = np.random.default_rng(1).permutation(30)
    size, chosen = filled(points[order] * [3.0, 0.1])
    assert size == (6, 5) and points[order][chosen].tolist() == points.tolist()


def test_the_grid_holds_neighbors_together_and_ends():
    size, chosen = filled(np.random.default_rng(0).normal(size=(1000, 2)))
    assert size[0] * size[1] == len(set(chosen.tolist())) == MOST
    (columns, lines), chosen = filled(POINTS)
    across, up = POINTS[chosen].T.reshape(2, lines, columns)
    assert (np.diff(across.mean(0)) > 0).all() and (np.diff(up.mean(1)) > 0).all()


def test_an_image_that_cannot_be_read_leaves_no_hole():
    figure, count = picture_grid(POINTS[:30], lambda row: missing(row) if row in (3, 17) else flat(row))
    assert count == 28 and set(pictures(figure)) == set(range(30)) - {3, 17}
    assert picture_grid(POINTS[:30], missing) == (None, 0)


# --- captions


def test_captions_stand_at_their_points_inside_the_panel_without_overlap():
    texts = [f"{k} {'a picture of something with many more words in it ' * (k % 3)}" for k in range(200)]
    figure, count = caption_map(POINTS, texts)
    found = boxes(figure)
    assert count == len(found) > 8
    panel = figure.axes[0].get_window_extent()
    places = figure.axes[0].transData.transform(POINTS)
    for row, box in found.items():
        assert ((box.x0 + box.x1) / 2, (box.y0 + box.y1) / 2) == pytest.approx(places[row], abs=4)
        assert panel.x0 <= box.x0 and box.x1 <= panel.x1 and panel.y0 <= box.y0 and box.y1 <= panel.y1
        assert not any(overlap(box, other) for k, other in found.items() if k != row)
    for label in figure.axes[0].texts:
        row = int(label.get_gid().partition(":")[2])
        assert label.get_text().replace("\n", " ") == shortened(texts[row])


def test_captions_are_no_mathematics_and_have_the_color_of_their_row():
    shades = [COLORS[k % 10] for k in range(200)]
    figure, _ = caption_map(POINTS, ["$5 a$ at _ 10^"] * 200, shades=shades)
    for label in figure.axes[0].texts:
        assert label.get_text() == "$5 a$ at _ 10^"
        edge = label.get_bbox_patch().get_edgecolor()
        assert to_hex(edge).upper() == shades[int(label.get_gid().partition(":")[2])]


def test_texts_are_cut_between_words_where_there_are_any():
    assert shortened("two  words ") == "two words"
    long = "a large blue heart at the bottom on a light grey background, and a star"
    assert shortened(long) == "a large blue heart at the bottom on a light…"
    assert shortened("x" * 100) == "x" * (LETTERS - 1) + "…"
    assert all(len(shortened("word " * k)) <= LETTERS for k in range(1, 40))


# --- points


def test_points_alone_have_the_color_of_their_modality():
    for modality in ("image", "text"):
        (dots,) = point_map(POINTS, modality).axes[0].collections
        assert to_hex(dots.get_facecolor()[0]).upper() == COLOR[modality] and not dots.get_rasterized()
    (many,) = point_map(np.tile(POINTS, (4, 1)), "text").axes[0].collections
    assert many.get_rasterized()


def test_windows_hold_all_points_and_are_no_strips():
    centre, reach = window_of(np.array([[0.0, 1.0], [10.0, 1.5]]))
    assert centre.tolist() == [5, 1.25] and reach.tolist() == [5, 2.5]
    centre, reach = window_of(POINTS, centre=np.zeros(2))
    assert reach.tolist() == np.abs(POINTS).max(0).tolist()
    assert (window_of(np.ones((3, 2)))[1] > 0).all()
    panel = point_map(POINTS, "image")
    assert panel.get_size_inches()[0] == pytest.approx(WIDTH)
    assert panel.axes[0].get_position().x0 == pytest.approx(MARGIN / WIDTH)
    assert not panel.axes[0].get_xticks().size and not panel.axes[0].get_yticks().size


# --- both maps in one frame


def together(seed=0, n=40):
    points = np.random.default_rng(seed).normal(size=(n, 2))
    every = np.arange(n)
    found = superpose(points, points + 0.2, (every, every))
    return OneFrame(found.moved, found.kept, (every, every), found.disparity)


def test_colors_run_from_left_to_right_and_join_the_pairs():
    found = together()
    shades = shades_of(found)
    assert shades["image"] == shades["text"]
    order = found.image[:, 0].argsort()
    green = [to_rgb(shades["image"][row])[1] for row in order]  # of viridis it grows throughout
    assert green == sorted(green) and green[-1] > green[0] + 0.5


def test_a_text_of_two_images_lies_between_and_one_of_none_is_grey():
    moved = np.array([[0.0, 0], [1, 0], [2, 0]])
    found = OneFrame(moved, np.zeros((3, 2)), (np.array([0, 2, 1]), np.array([0, 0, 1])), 0.5)
    shades = shades_of(found)
    assert shades["text"] == [shades["image"][1], shades["image"][1], NEUTRAL]


# --- the entries


def items(**options):
    return PlaneItems(POINTS[:40], 5, **options)


def test_figures_are_saved_and_captions_say_what_is_drawn(tmp_path, unrendered):
    found = together()
    image, text = items(picture=flat), PlaneItems(POINTS[40:80], 50, texts=["some words"] * 40)
    both = {"image": image, "text": text}
    entries = save_drawings(
        draw_semantic_map(both, found), tmp_path, origin="a model; seed 0.", prefix="01-", group="g"
    )
    names = [f"01-semantic_{name}" for name in ("images", "images_aligned", "texts_aligned")]
    assert [entry.name for entry in entries] == names
    for entry in entries:
        assert entry.svg_path == tmp_path / f"{entry.name}.svg" and entry.svg_path.exists()
        assert entry.png_path is not None and entry.png_path.exists() and entry.group == "g"
        assert entry.caption.endswith("a model; seed 0.")
    alone, images, texts = (entry.caption for entry in entries)
    assert "t-SNE of the 40 image rows (perplexity 5, Euclidean). All images fill a grid, each in a cell" in alone
    assert [entry.wide for entry in entries] == [True, False, False]
    assert images.startswith("Disparity of the two maps 0: 0 where") and "through 40 pairs" in images
    assert (
        "the 40 texts (perplexity 50)" in texts
        and "of 40 texts are drawn as their images, the others as dots." in texts
    )


def test_all_pictures_are_told(tmp_path, unrendered):
    (entry,) = save_drawings(
        draw_semantic_map({"image": items(picture=flat)}, None, all_images=True), tmp_path, origin="x"
    )
    assert "All images are drawn at their points." in entry.caption


def test_texts_that_pair_with_nothing_have_a_map_of_their_own(tmp_path, unrendered):
    both = {"image": items(), "text": items(texts=["words"] * 40)}
    entries = save_drawings(draw_semantic_map(both, None), tmp_path, origin="x")
    assert [entry.name for entry in entries] == ["semantic_images", "semantic_texts"]
    assert "Drawn as points, since no images are available." in entries[0].caption


@pytest.mark.parametrize("picture", [None, missing])
def test_without_pictures_points_are_drawn(tmp_path, unrendered, picture):
    (entry,) = save_drawings(draw_semantic_map({"image": items(picture=picture)}, None), tmp_path, origin="x")
    assert "Drawn as points, since no images are available." in entry.caption


def test_both_maps_show_the_same_frame(tmp_path, monkeypatch):
    from clip_geometry_experiments.report import gallery

    figures = []
    monkeypatch.setattr(gallery, "save_figure", lambda figure, *_: figures.append(figure) or (None, None))
    found = together()
    save_drawings(draw_semantic_map({"image": items(), "text": items()}, found), tmp_path, origin="x")
    (one, two) = (figure.axes[0] for figure in figures[1:])
    assert one.get_xlim() == two.get_xlim() and one.get_ylim() == two.get_ylim()
    assert np.array_equal(np.asarray(one.collections[0].get_offsets()), found.image)
    assert np.array_equal(np.asarray(two.collections[0].get_offsets()), found.text)


def test_the_second_map_has_each_image_at_the_point_of_its_text(tmp_path, monkeypatch):
    """Text 3 has the images 1 and 5, of which the first stands for it; text 7 has none."""
    from clip_geometry_experiments.report import gallery

    figures = []
    monkeypatch.setattr(gallery, "save_figure", lambda figure, *_: figures.append(figure) or (None, None))
    every = np.arange(40)
    j = np.where(every == 5, 3, np.where(every == 7, 2, np.where(every == 1, 3, np.where(every == 3, 1, every))))
    points = np.random.default_rng(0).normal(size=(2, 40, 2))
    moved = superpose(points[0], points[1], (every, j))
    found = OneFrame(moved.moved, moved.kept, (every, j), moved.disparity)
    both = {"image": items(picture=flat), "text": PlaneItems(points[1], 50, texts=["words"] * 40)}
    save_drawings(draw_semantic_map(both, found, all_images=True), tmp_path, origin="x")
    axes = figures[2].axes[0]
    assert np.array_equal(np.asarray(axes.collections[0].get_offsets()), found.text)
    at = pictures(figures[2])
    assert set(at) == set(j.tolist()) and len(at) == 38 and not axes.texts
    for text, image in at.items():
        assert np.array(image.get_extent()).reshape(2, 2).mean(1) == pytest.approx(found.text[text], abs=1e-12)
        shown = image.get_array()[PIXELS // 2, PIXELS // 2, 0]
        assert shown == min(every[j == text])


def test_captions_are_drawn_where_there_are_no_images(tmp_path, unrendered):
    both = {"image": items(), "text": items(texts=["some words"] * 40)}
    caption = save_drawings(draw_semantic_map(both, together()), tmp_path, origin="x")[2].caption
    assert "of 40 captions are drawn at their points" in caption


def test_the_files_depend_on_the_rows_only(tmp_path):
    found = together()
    both = {"image": items(picture=flat), "text": items(texts=["some words"] * 40)}
    for folder in ("a", "b"):
        save_drawings(draw_semantic_map(both, found), tmp_path / folder, origin="x")
    for path in (tmp_path / "a").iterdir():
        assert path.read_bytes() == (tmp_path / "b" / path.name).read_bytes()


def test_pictures_become_one_bitmap_in_the_vector_file(tmp_path):
    figure, count = picture_map(POINTS, flat)
    assert all(isinstance(each, AxesImage) for each in figure.axes[0].images) and count > 30
    _, svg = save_figure(figure, tmp_path, "map")
    assert svg.read_text().count("<image") == 1


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
