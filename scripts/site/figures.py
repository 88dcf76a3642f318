"""The figures of hand-written pages, drawn when the site is built: `<!-- figure: NAME -->` is their place."""

import re
from functools import cache

import svg

import clip_geometry as cg


def placed(markdown: str) -> str:
    """The page with its figures."""
    return re.sub(r"<!-- figure: (\w+) -->", lambda found: FIGURES[found[1]](), markdown)


@cache
def null() -> str:
    """IsoScore of isotropic noise by the number of rows."""
    sizes, d = (64, 128, 256, 512, 1024, 2048, 4096), 512
    values = [cg.null_value("isoscore", n, d) for n in sizes]
    at = [(60 + 280 * k / (len(sizes) - 1), 150 - 110 * value) for k, value in enumerate(values)]
    inside = [
        svg.line(60, 40, 340, 40, "axis"),
        svg.label(52, 44, "1", anchor="end", kind="quiet"),
        svg.label(52, 154, "0", anchor="end", kind="quiet"),
        f'<polyline class="line" points="{" ".join(f"{x:.1f},{y:.1f}" for x, y in at)}"/>',
        *(svg.dot(x, y, "image") for x, y in at),
        *(svg.label(x, y + 18, f"{value:.2f}", anchor="middle") for (x, y), value in zip(at, values, strict=True)),
        *(svg.label(x, 186, str(n), anchor="middle", kind="quiet") for (x, _), n in zip(at, sizes, strict=True)),
        svg.label(200, 202, "rows n", anchor="middle", kind="quiet"),
    ]
    said = "; ".join(f"{value:.2f} at n = {n}" for n, value in zip(sizes, values, strict=True))
    title = f"isoscore of isotropic noise, d = {d}"
    return svg.panels([svg.panel(208, title, inside, said=f"{title}: {said}")])


FIGURES = {"null": null}
