"""The site's hook for mkdocs: adds the generated pages and figures."""

import shutil
import sys
from pathlib import Path

import generated
import measure_pages
import torch
from mkdocs.structure.files import File

ROOT = Path(__file__).parents[2]
SITE = str(Path(__file__).parent)


def on_config(config):
    """Replace the folders of `nav` by their pages."""
    if SITE not in sys.path:  # mkdocs has it there only while it imports this module
        sys.path.append(SITE)
    torch.set_num_threads(1)  # many small computations: threads only wait for each other
    generated.pages.cache_clear()  # `mkdocs serve` builds again after a change
    config.nav = [_expanded(entry) for entry in config.nav]
    return config


def _expanded(entry):
    """A section of `nav`, with each name that ends in / replaced by the pages of this folder."""
    if not isinstance(entry, dict):
        return entry
    ((title, inside),) = entry.items()
    if isinstance(inside, str):
        return {title: _pages_in(inside)} if inside.endswith("/") else entry
    entries = []
    for part in inside:
        entries += _pages_in(part) if isinstance(part, str) and part.endswith("/") else [_expanded(part)]
    return {title: entries}


def _pages_in(folder):
    """The pages of a folder, generated or committed, the index first."""
    if folder == "measures/":
        return measure_pages.nav()
    if folder in generated.SOURCES:
        paths = list(generated.pages(folder))
    else:
        paths = sorted(path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs" / folder).glob("*.md"))
    return sorted(paths, key=lambda path: not path.endswith("index.md"))


def on_files(files, config):
    """Add what is generated."""
    for source in generated.SOURCES:
        for path, text in generated.pages(source).items():
            files.append(File.generated(config, path, content=text))
    for path, svg in generated.figures():
        files.append(File.generated(config, path, content=svg))
    return files


def on_page_markdown(markdown, page, config, files):
    """Give the first page the whole width."""
    if page.file.src_uri == "index.md":
        page.meta["hide"] = ["navigation", "toc"]
    return markdown


def on_post_page(output, page, config):
    """Name the search dialog, which the theme leaves without a name, for screen readers."""
    dialog = 'data-md-component="search" role="dialog"'
    return output.replace(dialog, f'{dialog} aria-label="Search"')


def on_post_build(config):
    """Remove notebooks, which the site does not show."""
    shutil.rmtree(Path(config.site_dir) / "notebooks", ignore_errors=True)
