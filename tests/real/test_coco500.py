"""Real CLIP embeddings (ViT-B/16, 500 COCO pairs): the numbers of the specification, papers/README A.1."""

import io
import json
import re
import runpy
import sys
from contextlib import redirect_stdout
from functools import cache
from pathlib import Path

import numpy as np
import pytest

import clip_geometry as cg
from clip_geometry import Pipeline
from clip_geometry import geometry as g
from clip_geometry.cli import main
from clip_geometry.geometry import measures
from clip_geometry.results import read_rows

ROOT = Path(__file__).parents[2]

# (measure, set) → value; the digits given are those that hold, ± 1 in the last
TABLE = {
    ("modality_gap", "both"): 0.8514,
    ("modality_silhouette", "both"): 0.2506,
    ("matching_cosine", "both"): 0.3099,
    ("random_cosine", "both"): 0.1616,
    ("isotropy_i1", "image"): 0.2324,
    ("isotropy_i2", "image"): 0.0374,
    ("isotropy_i1", "text"): 0.2378,
    ("isotropy_i2", "text"): 0.0367,
    ("isotropy_i1[canonical]", "image"): 0.4810,
    ("isotropy_i2[canonical]", "image"): 0.0475,
    ("isotropy_i1[canonical]", "text"): 0.4859,
    ("isotropy_i2[canonical]", "text"): 0.0466,
    ("isotropy_i1[rows]", "image"): 0.805,
    ("isotropy_i2[rows]", "image"): 0.0323,
    ("isotropy_i1[rows]", "text"): 0.818,
    ("isotropy_i2[rows]", "text"): 0.0317,
}


def tolerance(measure):
    """`rows` is a basis that n < d leaves partly arbitrary: its bounds are wider."""
    return {"isotropy_i1[rows]": 0.03, "isotropy_i2[rows]": 5e-4}.get(measure, 1e-4)


def run(monkeypatch, *arguments):
    monkeypatch.setattr(sys, "argv", ["clip-geometry", *map(str, arguments)])
    with pytest.raises(SystemExit) as end:
        main()
    assert not end.value.code


@pytest.fixture(scope="module")
def measured(data, tmp_path_factory):
    """The file of all numbers of a set of embeddings, and what the command printed."""

    @cache
    def of(name):
        folder, out = data / "embeddings" / name, tmp_path_factory.mktemp("measured") / f"{name}.jsonl"
        with pytest.MonkeyPatch.context() as patch, redirect_stdout(io.StringIO()) as printed:
            run(patch, "measure", folder / "image.npy", folder / "text.npy", "--all", "--json", out)
        return out, printed.getvalue()

    return of


def test_measure_gives_the_table(measured):
    file, printed = measured("coco500-clip-vit-b16")
    rows = {(row["measure"], row["at"].get("modality")): row for row in read_rows(file)}
    for (measure, modality), expected in TABLE.items():
        assert rows[measure, modality]["value"] == pytest.approx(expected, abs=tolerance(measure)), measure
    assert rows["isoscore", "image"]["n"] == 500
    assert "0.8514" in printed


def test_numbers_are_those_of_before_any_number_of_modalities(measured):
    """Values, standard errors and null values of commit 41383fb, which takes two sets only.

    The standard errors of conformity_std, mutual_knn and isotropy_i1 were withdrawn since: they do not cover.

    On one machine with as many threads all of them are equal to the last bit; BLAS differs between machines.
    """
    golden = json.loads(Path(__file__).with_name("coco500.json").read_text())
    file, _ = measured("coco500-clip-vit-b16")
    rows = {f"{row['measure']} {row['at'].get('modality')}": row for row in read_rows(file)}
    assert len(golden) > 40
    for name, expected in golden.items():
        found = [rows[name][key] for key in ("value", "standard_error", "null_value")]
        assert found == [None if each is None else pytest.approx(each, rel=1e-7, abs=1e-9) for each in expected], name


@pytest.mark.parametrize(
    ("convention", "image", "text"),
    [
        ("invariant", (0.929, 0.0036), (0.937, 0.0036)),
        ("rows", (0.995, 0.0009), (0.994, 0.0010)),
    ],
)
def test_centered_rows_of_the_table(coco500, convention, image, text):
    sets = dict(zip(("image", "text"), coco500, strict=True))
    centered = Pipeline("normalize,center[each],normalize").fit_transform(sets)[1]
    for rows, (i1, i2) in zip(centered.values(), (image, text), strict=True):
        found = g.partition_isotropy(rows, convention=convention)
        assert float(found.i1) == pytest.approx(i1, abs=0.03 if convention == "rows" else 6e-4)
        assert float(found.i2) == pytest.approx(i2, abs=5e-4 if convention == "rows" else 6e-5)


def test_published_i2_is_the_length_of_the_mean(coco500):
    """‖mean‖/√d = .0322 and .0318: all that the published convention sees."""
    for rows, expected in zip(coco500, (0.0322, 0.0318), strict=True):
        assert np.linalg.norm(rows.mean(0)) / np.sqrt(512) == pytest.approx(expected, abs=1e-4)
        published = float(g.partition_isotropy(rows, convention="rows").i2)
        assert published == pytest.approx(expected, abs=5e-4)


@pytest.mark.filterwarnings("ignore:procrustes was fitted on pairs of rank")
def test_the_commands_page_says_what_procrustes_does_to_held_out_pairs(coco500):
    """Five of the twenty splits of its command. The size of the index decides, not the number of fitted pairs."""
    shares = runpy.run_path(str(ROOT / "scripts" / "held_out_pairs.py"))["shares"]
    page = " ".join((ROOT / "docs" / "commands.md").read_text(encoding="utf-8").split())
    assert "68 ± 2% in an index of 250 pairs and 56 ± 3% in one of 100" in page
    assert "R@1 falls from 64 to 20% and from 74 to 34%" in page
    for fit, held_out, percent in ((250, 250, (64, 20, 68)), (400, 100, (74, 34, 56)), (250, 100, (75, 33, 56))):
        found = shares(*coco500, fit, held_out, 5, "normalize,procrustes[text-to-image]")
        (before, after), _, (_, own) = found.values()
        assert [100 * each.mean() for each in (before, after, own)] == pytest.approx(percent, abs=4)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:procrustes was fitted on pairs of rank")
@pytest.mark.filterwarnings("ignore::clip_geometry.transforms.base.RankWarning")  # of maps fitted on few pairs
def test_the_commands_page_says_what_other_maps_do_to_held_out_pairs(coco500):
    shares = runpy.run_path(str(ROOT / "scripts" / "held_out_pairs.py"))["shares"]
    page = (ROOT / "docs" / "commands.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (nothing|`\S+`) \| ([\d.]+) ± \S+ \| ([\d.]+) ± \S+ \| ([\d.]+) ± \S+ \|$", page, re.M)
    assert len(rows) == 5
    for step, *said in rows:
        found = shares(*coco500, 250, 250, 5, "normalize," + step.strip("`").replace("nothing", ""))
        after = [100 * after.mean() for _, after in found.values()]
        assert after == pytest.approx([float(each) for each in said], abs=0.5), step


@pytest.mark.slow
def test_the_own_modality_takes_over_as_the_index_grows(coco500):
    """The figures of the caveat, from 5 of its 20 splits: after centering, the share of the own modality follows n."""
    shares = runpy.run_path(str(ROOT / "scripts" / "held_out_pairs.py"))["shares"]
    expected = {25: 0.55, 50: 0.66, 100: 0.77, 250: 0.89}
    for held_out, share in expected.items():
        *_, (_, own) = shares(*coco500, 250, held_out, 5, "normalize,center[each]").values()
        assert own.mean() == pytest.approx(share, abs=0.02), held_out  # one split: sd 0.02, hence 0.01 of the mean
    caveat = measures["retrieval[mixed].image.same_modality_at_10"].caveat
    assert "0.55, 0.66, 0.77 and 0.89 in an index of 25, 50, 100 and 250 pairs" in caveat


def test_half_of_the_pairs_tells_what_all_of_them_have(coco500):
    """Of 250 pairs, through means of their own: the intervals at 500 have the values of all pairs."""
    half = np.random.default_rng(0).permutation(500)[:250]
    own = "retrieval[mixed].image.same_modality_at_10"
    names = [own, "retrieval.image_to_text.r_at_1"]
    shared = {"pipeline": "normalize,center[each]", "measures": names, "blocks": 0}
    frame = cg.measure(*(x[half] for x in coco500), full_size=500, **shared).frame.set_index("measure")
    whole = cg.measure(*coco500, scaling=True, **shared)
    for name, value in zip(names, (0.941, 0.542), strict=True):
        assert whole[name].value == pytest.approx(value, abs=5e-4)
        assert frame.loc[name, "expected_low"] < value < frame.loc[name, "expected_high"]
    (sizes,) = (record.scaling for record in whole if record.measure == own)
    assert [size["value"] for size in sizes] == pytest.approx([0.68, 0.81, 0.89, 0.94], abs=0.02)
