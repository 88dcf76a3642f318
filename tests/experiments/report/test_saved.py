"""Files of figures: not blank, valid, the same bytes every time, whole or absent."""

from xml.etree import ElementTree

import numpy as np
from PIL import Image

from clip_geometry.display import style
from clip_geometry_experiments.report.figures import save_figure, singular_directions


def rows(n, d=6, seed=0):
    return np.random.default_rng(seed).standard_normal((n, d)) + 1


def test_png_is_drawn_at_the_size_of_the_figure_and_svg_is_xml_without_outside_links(tmp_path):
    png, svg = save_figure(
        singular_directions({"image": rows(30), "text": rows(30, seed=1)}), tmp_path / "new", "plane"
    )
    assert (png, svg) == (tmp_path / "new/plane.png", tmp_path / "new/plane.svg")
    with Image.open(png) as picture:
        pixels = np.asarray(picture.convert("RGB"))
        assert picture.size == (round(7 * style.DPI), round(2.9 * style.DPI))
    for color in (style.IMAGE, style.TEXT):
        wanted = [int(color[k : k + 2], 16) for k in (1, 3, 5)]
        assert (np.abs(pixels.astype(int) - wanted).max(axis=-1) < 8).sum() > 50
    tree = ElementTree.parse(svg)
    references = [value for node in tree.iter() for key, value in node.attrib.items() if key.endswith("href")]
    assert references and all(value.startswith(("#", "data:")) for value in references)
    assert sorted(path.name for path in png.parent.iterdir()) == ["plane.png", "plane.svg"]


def test_the_same_figure_gives_the_same_bytes(tmp_path):
    pairs = (np.arange(700), np.arange(700))
    first, second = (
        save_figure(
            singular_directions({"image": rows(700), "text": rows(700, seed=1)}, pairs, seed=3),
            tmp_path / name,
            "plane",
        )
        for name in ("a", "b")
    )
    for one, other in zip(first, second, strict=True):
        assert one.read_bytes() == other.read_bytes()
