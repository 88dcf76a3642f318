"""100,000 points: the file stays below 40 MB, is drawn within 3 seconds, and answers."""

import time

import numpy as np
import pytest

import clip_geometry as cg
from support.browser import chromium, opened

SECONDS = 3.0  # to the points; the machine's share of a core in these seconds is what counts


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    """Paired clusters of 512 dimensions with a gap; without UMAP, which has its own test."""
    generator = np.random.default_rng(0)
    code = generator.integers(60, size=50_000)
    item = generator.normal(size=(60, 512)).astype(np.float32)[code] + generator.normal(size=(50_000, 512), scale=0.7)
    gap = 0.8 * generator.normal(size=512)
    sets = {
        name: (item + 0.6 * generator.normal(size=item.shape) + sign * gap).astype(np.float32)
        for name, sign in (("image", 1), ("text", -1))
    }
    ids = [f"photographs/of/some/length/{k:08d}.jpg" for k in range(50_000)]
    captions = tmp_path_factory.mktemp("large") / "captions.txt"
    captions.write_text(
        "\n".join(f"a caption of the usual length that says what is on photograph {k}" for k in range(50_000))
    )
    found = cg.explore(
        sets, ids=dict.fromkeys(sets, ids), labels=dict.fromkeys(sets, code), captions=captions, umap=False
    )
    assert len(found.points) == 100_000 and [state.name for state in found.states][-1] == "posterior"
    assert len(found.queries) == 5000 and "computed for 5,000 of them" in found.notes[0]
    return found.save(captions.with_name("explore.html"))


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_it_is_small_quick_and_alive(file):
    assert file.stat().st_size < 40e6
    with chromium() as browser, opened(browser, file) as page:
        page.wait_for_selector("html[data-drawn]", timeout=60_000)
        painted = page.evaluate("performance.getEntriesByType('paint')[0].startTime")
        assert painted < 1000 * SECONDS
        assert page.evaluate("performance.getEntriesByName('drawn')[0].startTime") < 2 * 1000 * SECONDS
        for state in (1, 2, 3, 0):
            start = time.perf_counter()
            page.evaluate("(state) => explorer.go(state)", state)
            assert time.perf_counter() - start < SECONDS
        page.evaluate("explorer.select(70_001)")
        page.wait_for_selector('section[data-state="none"] li')
        assert page.locator('section[data-state="none"] li').count() == 10
        assert page.errors == []
