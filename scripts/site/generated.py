"""The pages and figures that are generated when the site is built, by their paths below docs/. None is committed."""

from collections.abc import Iterator
from functools import cache
from pkgutil import resolve_name
from tempfile import TemporaryDirectory

from clip_geometry_experiments.report.figures import save_figure

# a page, or a folder of pages, whose name ends in / → the function that renders it
SOURCES = {
    "measures.md": "measure_pages:index",
    "measures/": "measure_pages:pages",
    "formats.md": "format_page:page",
    "api/": "api:pages",
    "claims.md": "claims:page",
    "findings/": "findings:pages",
}
FIGURES = ("findings:figures", "claims:figures")  # functions that yield (name, figure)


@cache
def pages(source: str) -> dict[str, str]:
    """Path → Markdown of the page, or of all pages of the folder."""
    rendered = resolve_name(SOURCES[source])()
    if isinstance(rendered, str):
        return {source: rendered}
    return {f"{source}{name}": text for name, text in rendered.items()}


def figures() -> Iterator[tuple[str, bytes]]:
    """Path and SVG of every figure."""
    with TemporaryDirectory() as folder:
        for source in FIGURES:
            for name, figure in resolve_name(source)():
                _, svg = save_figure(figure, folder, name)
                yield f"figures/findings/{name}.svg", svg.read_bytes()
