"""The site's hook for mkdocs: adds the pages and figures that are made at build time and never committed."""

import shutil
import tempfile
from pathlib import Path

import api
import claims
import figures
import findings
import measure_pages
import torch
from mkdocs.structure.files import File

ROOT = Path(__file__).parents[2]
MADE: dict[str, str] = {}  # path of a page below docs/ → its markdown


def on_config(config):
    """Make the pages, and replace the folders of `nav` by their pages."""
    torch.set_num_threads(1)  # many small computations: threads only wait for each other
    MADE.clear()
    MADE.update(measure_pages.pages())
    MADE.update(api.pages())
    config.nav = [_expanded(entry) for entry in config.nav]
    return config


def _expanded(entry):
    """A section of `nav`, with each name that ends in / replaced by the pages of this folder."""
    if not isinstance(entry, dict):
        return entry
    ((title, inside),) = entry.items()
    if isinstance(inside, str):
        return {title: _pages_in(inside)} if inside.endswith("/") else entry
    found = []
    for each in inside:
        found += _pages_in(each) if isinstance(each, str) and each.endswith("/") else [_expanded(each)]
    return {title: found}


def _pages_in(folder):
    if folder == "measures/":
        return measure_pages.nav()
    on_disk = sorted(path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs" / folder).glob("*.md"))
    found = [path for path in MADE if path.startswith(folder)] or on_disk
    return sorted(found, key=lambda path: (not path.endswith("index.md"), found.index(path)))


def on_files(files, config):
    """Add the pages, and the figures of the findings."""
    for path, text in MADE.items():
        files.append(File.generated(config, path, content=text))
    with tempfile.TemporaryDirectory() as folder:
        findings.draw_all(Path(folder))
        claims.draw_all(Path(folder))
        for path in sorted(Path(folder).glob("*.svg")):
            files.append(File.generated(config, f"figures/findings/{path.name}", content=path.read_bytes()))
    return files


def on_page_markdown(markdown, page, config, files):
    """Put figures in place of `<!-- figure: NAME -->`, and links to their pages into the index of measures."""
    if page.file.src_uri == "index.md":
        page.meta["hide"] = ["navigation", "toc"]
    if page.file.src_uri == "measures.md":
        markdown = measure_pages.linked(markdown)
    return figures.placed(markdown)


def on_post_page(output, page, config):
    """Name the search dialog, which the theme leaves without a name, for screen readers."""
    dialog = 'data-md-component="search" role="dialog"'
    return output.replace(dialog, f'{dialog} aria-label="Search"')


def on_post_build(config):
    """Leave nothing behind that a reader does not open."""
    shutil.rmtree(Path(config.site_dir) / "notebooks", ignore_errors=True)
