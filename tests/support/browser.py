"""A page in headless Chromium, and what is wrong with it: text that is clipped, spills, breaks or is too small, errors
of scripts, requests to a network, and what axe-core calls serious."""

import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
WIDTHS = (1400, 1040, 390)  # a wide screen, half of one, a phone
SMALLEST_TEXT = 11  # px
SERIOUS = ("serious", "critical")
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
         "--disable-component-update", "--disable-sync"]  # fmt: skip

FAULTS = Path(__file__).with_name("browser_faults.js").read_text(encoding="utf-8")


@contextmanager
def chromium() -> Iterator[Any]:
    """A browser of playwright, which starts Debian's Chromium; skips where there is none."""
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    if CHROMIUM is None:
        pytest.skip("no Chromium on this machine")
    with playwright.sync_playwright() as driver:
        started = driver.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        try:
            yield started
        finally:
            started.close()


@contextmanager
def opened(browser: Any, address: Path | str, *, width: int = 1400, height: int = 900, dark: bool = False):
    """The page of a file (or an address), loaded; its `errors` are those of scripts and requests to a network."""
    context = browser.new_context(
        viewport={"width": width, "height": height}, color_scheme="dark" if dark else "light", reduced_motion="reduce"
    )
    page = context.new_page()
    page.errors = []
    page.on("console", lambda said: page.errors.append(f"console: {said.text}") if said.type == "error" else None)
    page.on("pageerror", lambda error: page.errors.append(f"script: {error}"))
    page.on("request", lambda asked: page.errors.append(f"request: {asked.url[:120]}") if _outside(asked.url) else None)
    try:
        page.goto(address if isinstance(address, str) else address.resolve().as_uri())
        yield page
    finally:
        context.close()


def _outside(url: str) -> bool:
    return not url.startswith(("file:", "data:", "blob:", "about:", "http://127.0.0.1", "http://localhost"))


def faults_of(page: Any, *, axe: bool = True) -> list[str]:
    """What is wrong with an opened page, a line each; empty where nothing is."""
    found = [*page.errors, *page.evaluate(FAULTS, SMALLEST_TEXT)]
    if axe:
        from axe_playwright_python.sync_playwright import Axe

        seen = Axe().run(page, options={"resultTypes": ["violations"]})  # a third of the time of all results
        for violation in seen.response["violations"]:
            if violation["impact"] in SERIOUS:
                places = [" ".join(map(str, node["target"])) for node in violation["nodes"]]
                found.append(f"axe: {violation['id']}, {violation['help']}: {len(places)} × {places[0]}")
    return found


def faults_at_every_width(browser: Any, address: Path | str, *, axe_at: tuple[int, ...] = WIDTHS) -> list[str]:
    """The faults of a page on each screen, light and dark."""
    found = []
    for width in WIDTHS:
        for dark in (False, True):
            with opened(browser, address, width=width, dark=dark) as page:
                seen = faults_of(page, axe=width in axe_at)
                found += [f"{width} px {'dark' if dark else 'light'}: {fault}" for fault in seen]
    return found


SMALLEST_LETTERS = 9  # px of a figure's text on a phone; an index or exponent is smaller


def letters_of(image: Any, svg: str) -> float:
    """The height in px of the smallest text of a shown figure of matplotlib, whose text is drawn as paths."""
    (points,) = re.findall(r'<svg[^>]* width="([\d.]+)pt"', svg)
    sizes = [100 * float(scale) for scale in re.findall(r"scale\(([\d.]+) -", svg)]
    return image.evaluate("(e) => e.clientWidth") / float(points) * min(sizes)


INJECTED = """<script>window.ran = 1</script><img src=x onerror="window.ran = 2"><img src="http://localhost:1/a.png">
<style>h1 { color: rgb(1, 2, 3) !important; }</style><h2 id="styled" style="color: rgb(1, 2, 3)">A heading</h2>"""


@contextmanager
def refusing_injections(browser: Any, file: Path, folder: Path, ready: str = "html") -> Iterator[Any]:
    """Opens a copy of a page with foreign scripts, styles and images in it, none of which may run, apply or load.

    ready: What the page has once its own scripts have run.
    """
    page = folder / "page.html"
    page.write_text(file.read_text(encoding="utf-8").replace("</main>", f"{INJECTED}</main>"), encoding="utf-8")
    with opened(browser, page) as shown:
        shown.wait_for_selector(ready)
        assert shown.locator("#styled").count() == 1  # it was injected
        assert shown.evaluate("window.ran") is None
        for place in ("h1", "#styled"):
            assert shown.locator(place).evaluate("(e) => getComputedStyle(e).color") != "rgb(1, 2, 3)"
        refused = [error for error in shown.errors if "Content Security Policy" in error]
        for what in ("http://localhost:1/a.png", "inline script", "inline event handler", "inline style"):
            assert any(what in error for error in refused), what
        yield shown
