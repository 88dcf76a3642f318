"""The page of the claims says what the recorded trainings say."""

import re
import runpy
import sys
from pathlib import Path

import pytest

from clip_geometry.experiments.train_clip.interventions import claims

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def site():
    folder = str(ROOT / "scripts" / "site")
    sys.path.insert(0, folder)
    try:
        yield runpy.run_path(f"{folder}/claims.py")
    finally:
        sys.path.remove(folder)


def test_the_page_in_docs_is_what_the_records_say(site):
    """After changing the template, the claims or a record: python scripts/build_docs.py."""
    page = (ROOT / "docs" / "claims.md").read_text(encoding="utf-8")
    assert page == site["page"]()
    rows = [row for line in page.splitlines() if len(row := line.split(" | ")) == 6 and "**" in row[-2]]
    assert len(rows) == len(claims())
    assert {re.sub(r"[*\\]", "", row[-2]) for row in rows} == {"holds", "does not hold", "tie"}
    for path in re.findall(r"\b(?:configs|scripts|src|docs)/[\w/.]+\.(?:yaml|py|jsonl)", page):
        assert (ROOT / path).exists(), path


def test_the_grid_is_crossed_with_seeds(site):
    grid = {(*each.setting, each.seed) for each in site["recorded"]()}
    settings = {each[:-1] for each in grid}
    assert len(grid) == len(site["recorded"]()) == 80 and len(settings) == 20
    assert grid == {(*setting, seed) for setting in settings for seed in range(4)}


def test_numbers_of_the_page_by_hand(site):
    """The effect of swapped captions, its verdict, and the word for a verdict that needs a seed."""
    found = {(*each.setting, each.seed): each.values["modality_gap both last"] for each in site["recorded"]()}
    differences = [value - found[(*key[:2], 0.0, *key[3:])] for key, value in found.items() if key[2] == 0.3]
    assert len(differences) == 32
    (judged,) = (each for each in site["judged"]() if each.claim.name == "mismatched-pairs")
    assert judged.mean == pytest.approx(sum(differences) / 32) and judged.verdict == "holds" and judged.survives
    (fragile,) = (each for each in site["judged"]() if each.claim.name == "temperature")
    assert site["without"](fragile) == "no: tie without 0 or 1 or 3"


def test_what_was_added_by_hand(site):
    """Within dimension and noise, centering by setting, SigLIP with clean captions; the registered verdicts stay."""
    more, registered = site["sensitivity"](), {each.claim.name: each for each in site["judged"]()}
    assert registered["distribution-gap"].verdict == "does not hold" == registered["siglip"].verdict
    within = more["distribution-gap"].within
    assert within.verdict == "tie" and within.low < 0 < within.mean < within.high
    for name in ("siglip", "uniformity-and-accuracy"):
        assert (more[name].within is None) == (more[name].settings is None) == (name == "siglip")
    assert more["mismatched-pairs"].clean is None
    gaps = {(*each.setting, each.seed): each.values["modality_gap both last"] for each in site["recorded"]()}
    clean = [
        gaps["SigLIP", *key[1:]] - gap for key, gap in gaps.items() if key[0] == "ClipLoss" and key[2:4] == (0, 0.75)
    ]
    assert len(clean) == 8 and more["siglip"].clean.mean == pytest.approx(sum(clean) / 8)
    assert more["siglip"].clean.verdict == "tie"
    zero_shot, pairs, mixed = site["centering"]()
    assert zero_shot.clear[0] == "−0.036 [−0.069, −0.003] from 0.235 (ClipLoss at 0.02, 128 columns, clean)"
    assert len(pairs.clear) == 3 and mixed.floor == 10 and mixed.before == pytest.approx(0.0268, abs=1e-4)


def test_the_figures_are_drawn(site, tmp_path):
    site["draw_all"](tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {"claims-settings.svg", "claims-prediction.svg"}
