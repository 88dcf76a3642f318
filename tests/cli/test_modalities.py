"""Three modalities on the command line: of another dimension, without ids, too large, in any order."""

import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from clip_geometry import embeddings as embeddings_module
from clip_geometry.embeddings import Embeddings
from clip_geometry.io.export import export
from clip_geometry.io.sources import read_any
from clip_geometry.measuring.table import couples, matrices
from clip_geometry.results import read_rows
from clip_geometry.transforms import Pipeline

N, D = 60, 6
NAMES = ("image", "text", "audio")
IDS = np.array([f"item {k}" for k in range(N)], dtype=object)
CORE = "average_cosine,isoscore,modality_gap,matching_cosine"


def rows_of(name, d=D):
    shared = np.random.default_rng(9).normal(size=(N, d))
    own = np.random.default_rng(NAMES.index(name))
    return (shared + 0.5 * own.normal(size=(N, d)) + own.normal(size=d)).astype(np.float32)


@pytest.fixture
def write(tmp_path, monkeypatch):
    """Writes the three sets into a folder; the changes of one set are those of `Embeddings`."""
    monkeypatch.chdir(tmp_path)

    def into(folder, **changes):
        fields = {name: {"vectors": rows_of(name), "item_id": IDS} | changes.get(name, {}) for name in NAMES}
        export({name: Embeddings(modality=name, **each) for name, each in fields.items()}, folder, to="parquet")
        return folder

    return into


def measured(cli, *arguments):
    outcome = cli("measure", *arguments, "--json", "rows.jsonl")
    assert outcome.status == 0, outcome.err
    found = {(row["measure"], row["at"].get("modality")): row for row in read_rows("rows.jsonl")}
    Path("rows.jsonl").unlink()
    return found, outcome


def values(found):
    return {key: row["value"] for key, row in found.items()}


def test_files_in_any_order_give_one_table(cli, write):
    folder = write("all")
    expected, whole = measured(cli, folder, "--measures", CORE)
    assert len(expected) == 3 + 3 + 3 + 3
    one, two, three = NAMES
    for order in ((three, two, one), (two, three, one)):  # every couple is turned round, and every set is moved
        found, outcome = measured(cli, *(f"{folder}/{name}.parquet" for name in order), "--measures", CORE)
        keys = ("value", "standard_error", "null_value", "n", "d")
        assert {key: [row[k] for k in keys] for key, row in found.items()} == {
            key: [row[k] for k in keys] for key, row in expected.items()
        }
        across = "modality_gap"  # the lines of couples are in the order of their names
        assert outcome.out.partition(f"\n{across}")[2] == whole.out.partition(f"\n{across}")[2]


def test_another_dimension_is_left_out_of_one_space(cli, refused, write):
    folder = write("all", audio={"vectors": rows_of("audio", 4)})
    found, outcome = measured(cli, folder, "--measures", "modality_gap,isoscore,cka")
    assert sorted(place for name, place in found if name == "modality_gap") == ["image+text"]
    assert len([place for name, place in found if name == "cka"]) == 3
    assert "remark: audio has dimension 4 and image 6: measures of one space leave them out" in outcome.out
    one_space = refused("measure", f"{folder}/image.parquet", f"{folder}/audio.parquet", "--measures", "modality_gap")
    assert one_space == "modality_gap needs one space, but image has dimension 6 and audio has dimension 4"
    message = refused("measure", folder, "--pipeline", "center[pooled]")
    assert message == (
        "center[pooled] needs one space, but image has dimension 6 and text has dimension 6 and audio has dimension 4"
    )
    assert message == refused("fit", "center[pooled]", folder, "-o", "m.safetensors")
    assert "center[image] needs one space" in refused("measure", folder, "--pipeline", "center[image]")
    message = refused("measure", folder, "--pipeline", "procrustes[all-to-image]")
    assert message == "source has dimension 4 and target has 6; procrustes needs one space, least_squares does not"
    cli("fit", "normalize,least_squares[all-to-image]", folder, "-o", "m.safetensors")
    assert cli("apply", "m.safetensors", folder, "-o", "moved").status == 0
    assert {name: each.dim for name, each in read_any("moved").items()} == dict.fromkeys(NAMES, D)
    moved, _ = measured(cli, "moved", "--raw", "--measures", "modality_gap")
    assert len(moved) == 3


def test_a_modality_without_ids_pairs_by_position_or_says_why_not(cli, refused, write):
    expected, _ = measured(cli, write("all"), "--measures", "matching_cosine")
    found, _ = measured(cli, write("unnamed", audio={"item_id": None}), "--measures", "matching_cosine")
    assert values(found) == values(expected)
    short = write("short", audio={"item_id": None, "vectors": rows_of("audio")[:50]})
    found, outcome = measured(cli, short, "--measures", "matching_cosine")
    assert values(found)["matching_cosine", "image+text"] == values(expected)["matching_cosine", "image+text"]
    assert found["matching_cosine", "audio+image"]["value"] is None
    assert "50 audio rows and 60 image rows cannot be paired" in outcome.out
    message = refused("fit", "procrustes[all-to-image]", short, "-o", "m.safetensors")
    assert "cannot be paired" in message and "audio" in message
    assert cli("fit", "procrustes[text-to-image]", short, "-o", "m.safetensors").status == 0


@pytest.mark.parametrize(
    "steps",
    [
        "normalize,center[each]",
        "normalize,center[pooled],normalize",
        "normalize,whiten(3)[text]",
        "normalize,least_squares[audio-to-text]",
        "normalize,procrustes[all-to-image]",
    ],
)
def test_every_scope_is_fitted_saved_applied_and_measured(cli, write, steps):
    """measure --pipeline, and fit, apply --no-normalize and measure --raw, are the same."""
    folder = write("all")
    fitted = cli("fit", steps, folder, "-o", "m.safetensors")
    assert fitted.status == 0, fitted.err
    assert cli("apply", "m.safetensors", folder, "-o", "moved", "--no-normalize").status == 0
    expected = (
        Pipeline(steps).fit({name: rows_of(name) for name in NAMES}).transform({name: rows_of(name) for name in NAMES})
    )
    for name, each in read_any("moved").items():
        assert each.vectors == pytest.approx(expected[name], abs=1e-5)
        assert each.item_id.tolist() == IDS.tolist()
    names = ("--measures", "modality_gap,isoscore,random_cosine")
    once, _ = measured(cli, folder, "--pipeline", steps, *names)
    twice, _ = measured(cli, "moved", "--raw", *names)
    assert values(twice) == pytest.approx(values(once), abs=1e-4)
    assert all(value is not None for value in values(once).values())


def test_sets_larger_than_memory_have_the_same_numbers(cli, write, monkeypatch):
    folder = write("all")
    names = ("--measures", "average_cosine,isoscore,modality_gap,relative_modality_gap", "--blocks", "0")
    expected, _ = measured(cli, folder, *names)
    cli("fit", "normalize,procrustes[all-to-image]", folder, "-o", "m.safetensors")
    cli("apply", "m.safetensors", folder, "-o", "moved")
    monkeypatch.setattr(embeddings_module, "LARGE", 8 * N * D * 2)  # two of the three would fit
    found, outcome = measured(cli, folder, *names)
    assert "rows were streamed" in outcome.out
    assert values(found) == pytest.approx(values(expected), abs=1e-9)
    cli("fit", "normalize,procrustes[all-to-image]", folder, "-o", "streamed.safetensors")
    cli("apply", "streamed.safetensors", folder, "-o", "again")
    for name, each in read_any("again").items():
        assert each.vectors == pytest.approx(read_any("moved")[name].vectors, abs=1e-5)


def test_compare_takes_every_couple(cli, write):
    write("all")
    outcome = cli(
        "compare", "all", "--pipeline", "normalize", "--pipeline", "normalize,center[each]", "--json", "c.json"
    )
    assert outcome.status == 0, outcome.err
    lines = [row for row in json.loads(Path("c.json").read_text())["changes"] if row["measure"] == "modality_gap"]
    assert sorted(row["set"] for row in lines) == ["audio+image", "audio+text", "image+text"]


@pytest.mark.experiments
@pytest.mark.parametrize("names", [NAMES, ("audio", "en", "text_de")])
def test_the_report_has_a_matrix_and_a_map_of_every_couple(cli, write, names):
    sets = read_any(write("all"))
    renamed = {name: replace(each, modality=name) for name, each in zip(names, sets.values(), strict=True)}
    export(renamed, "renamed", to="parquet")
    Path("c.yaml").write_text(
        "name: three\nexperiment: geometry\npairs: {embeddings: renamed}\nblocks: 5\nfigures: [singular_value_decay]\n"
        "measures: [average_cosine, modality_gap, matching_cosine]\n"
    )
    outcome = cli("run", "c.yaml")
    assert outcome.status == 0, outcome.err
    (page,) = Path("runs").glob("three-*/report.html")
    found = page.read_text()
    assert len(re.findall(r'<code>modality_gap</code></th>\s*<th class="num">', found)) == 1
    assert "Across modalities" in found and "above the diagonal: the value of the couple" in found
    one, other = sorted(names)[:2]
    assert f"{one}+{other}" not in found.partition("How to reproduce")[0]
    rows = couples(read_rows(page.parent / "results.jsonl"))
    assert len(rows) == 6 and {row["at"]["modality"] for row in rows} >= {f"{one}+{other}"}
    cells = [text for table in matrices(rows) for _, *texts in table.rows for text in texts if text]
    assert len(cells) == 12 and all(text and f">{text}<" in found for text in cells)
    drawn = {path.stem for path in (page.parent / "figures").glob("*.svg")}
    assert drawn == ({"couples", "singular_value_decay"} if names == NAMES else {"couples"})
