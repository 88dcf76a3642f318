"""`cg.measure`: whatever holds rows goes in, and the numbers are those of the measures and of the command line."""

import numpy as np
import pandas as pd
import pytest
import torch

import clip_geometry as cg
from clip_geometry.measuring.records import CORE
from clip_geometry.registry import InputError
from support.clouds import cone, unit

N, D = 40, 6
RNG = np.random.default_rng(0)
X, Y, Z = (cone(N, D, RNG) for _ in range(3))
LABELS = np.arange(N) % 3
IDS = [f"item {k}" for k in range(N)]
ORDER = RNG.permutation(N)
FEW = {"measures": "average_cosine,modality_gap,matching_cosine", "blocks": 5}
GAP = {"measures": "modality_gap", "blocks": 0}


def numbers(result):
    keys = ("value", "standard_error", "null_value", "n", "d")
    return {(record.measure, *record.at.values()): [record.get(key) for key in keys] for record in result}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The working folder, with files and a folder of the sets."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pairs").mkdir()
    for path, rows in (("image", X), ("text", Y), ("rows", X), ("audio", Z), ("pairs/image", X), ("pairs/text", Y)):
        np.save(tmp_path / f"{path}.npy", rows)
    (tmp_path / "labels.txt").write_text("".join(f"{label}\n" for label in LABELS))
    (tmp_path / "ids.txt").write_text("".join(f"{item}\n" for item in IDS))
    (tmp_path / "nothing").mkdir()
    return tmp_path


SETS = {
    "arrays": lambda: (X, Y),
    "tensors": lambda: (torch.from_numpy(X).requires_grad_(), torch.from_numpy(Y)),
    "tables, whose index says nothing": lambda: (pd.DataFrame(X, index=ORDER), pd.DataFrame(Y)),
    "list of tensors and an array": lambda: (list(torch.from_numpy(X)), Y),
    "embeddings": lambda: (cg.Embeddings(X, "image"), cg.Embeddings(Y, "text")),
    "mapping": lambda: ({"text": Y, "image": X},),
    "mapping of all kinds": lambda: ({"image": "rows.npy", "text": cg.Embeddings(torch.from_numpy(Y), "audio")},),
    "paths in another order": lambda: ("text.npy", "image.npy"),
    "folder": lambda: ("pairs",),
    "path and array": lambda: ("rows.npy", Y),
}


@pytest.mark.parametrize("sets", SETS.values(), ids=SETS)
def test_every_kind_of_set_gives_the_same_numbers(sets, folder):
    result, expected = cg.measure(*sets(), **FEW), numbers(cg.measure(X, Y, **FEW))
    assert {key: pytest.approx(row, rel=1e-9) for key, row in expected.items()} == numbers(result)  # of other layouts
    assert {type(part) for record in result for part in result[(record.measure, *record.at.values())]} == {float}


@pytest.mark.parametrize(
    ("pipeline", "expected"),
    [(None, X), (["center", "normalize"], unit(X - X.mean(0)))],
)
def test_pipelines(pipeline, expected):
    result = cg.measure(X, pipeline=pipeline, measures=["isoscore"], blocks=0)
    value, error, _ = result["isoscore", "rows"]
    assert value == pytest.approx(cg.geometry.isoscore(expected), rel=1e-9) and error is None
    assert all(record.standard_error is None for record in result)


@pytest.mark.parametrize(
    ("labels", "of_text"),
    [
        (pd.Series(LABELS, index=ORDER), LABELS), ("labels.txt", LABELS), ({"image": LABELS}, None),
        ({"image": "labels.txt", "text": LABELS % 2}, LABELS % 2),
    ],
)  # fmt: skip
def test_labels(labels, of_text, folder):
    result = cg.measure(X, Y, labels=labels, measures="silhouette[cosine]", blocks=0)
    expected = {"image": cg.geometry.silhouette(X, LABELS, metric="cosine")}
    expected |= {} if of_text is None else {"text": cg.geometry.silhouette(Y, of_text, metric="cosine")}
    actual = {record.at["modality"]: record.value for record in result}
    assert actual == {name: pytest.approx(value, rel=1e-9) for name, value in expected.items()}


@pytest.mark.parametrize(
    ("ids", "pairs"),
    [
        (None, (X, Y)), (pd.Series(IDS, index=ORDER), (X, Y)), ("ids.txt", (X, Y)),
        ({"image": IDS, "text": IDS[::-1]}, (X, Y[::-1])), ({"image": "ids.txt", "text": np.array(IDS)[ORDER]}, None),
        ({"text": IDS}, (X, Y)), ([1, 1, *range(2, N)], ([*X[:2], *X], [*Y[:2], Y[1], Y[0], *Y[2:]])),
    ],
)  # fmt: skip
def test_ids(ids, pairs, folder):
    """Rows pair where their ids agree, all of two with one id; otherwise by position."""
    one, other = (X[ORDER], Y) if pairs is None else map(np.array, pairs)
    expected = (unit(one) * unit(other)).sum(1).mean()
    result = cg.measure(X, Y, ids=ids, measures="matching_cosine", blocks=0)["matching_cosine"].value
    assert result == pytest.approx(expected, rel=1e-9)


def test_the_core_by_default_everything_by_all_or_what_is_named():
    core, everything = cg.measure(X, Y, labels=LABELS), cg.measure(X, Y, measures="all")
    assert list(dict.fromkeys(record.measure for record in core)) == list(CORE) and not core.notes
    defaults = {name for name, measure in cg.geometry.measures.items() if measure.by_default}
    assert {record.measure for record in everything.records} == defaults | {*CORE}
    assert everything.notes["silhouette"].startswith("needs labels") and everything.notes["lid"].startswith(
        "image: x has 40"
    )
    for result in (core, everything):
        assert result.verdict.startswith("Image and text rows")
    named = cg.measure(X, Y, measures="isoscore, modality_gap", blocks=0)
    assert [record.measure for record in named] == ["isoscore", "isoscore", "modality_gap"] and named.verdict == ""
    assert len(cg.measure(X, Y, measures=["retrieval"], blocks=0)) == 8


def test_each_value_of_a_column_is_measured():
    result = cg.measure(X, Y, labels=LABELS, by="label", **FEW)
    for label in range(3):
        part = np.equal(LABELS, label)
        alone = numbers(cg.measure(X[part], Y[part], **FEW))
        assert {key: row for key, row in numbers(result).items() if key[1] == label} == {
            (name, label, place): row for (name, place), row in alone.items()
        }
    layers = cg.measure(cg.Embeddings(X, "image", metadata={"layer": LABELS}), by="layer", measures=["isoscore"])
    assert layers["isoscore", 2].value == pytest.approx(cg.geometry.isoscore(unit(X[LABELS == 2])), rel=1e-9)


def test_the_seed_is_that_of_noise_and_blocks():
    a, b, again = (cg.measure(X, measures=["isoscore"], seed=seed)["isoscore"] for seed in (0, 1, 0))
    assert a == again and a.value == b.value
    assert a.null_value != b.null_value and a.standard_error != b.standard_error


@pytest.mark.parametrize(
    ("paths", "options"),
    [
        (("image.npy", "text.npy", "audio.npy"), {"labels": "labels.txt"}),
        (("pairs",), {"pipeline": "normalize,center[each]", "seed": 2}),
    ],
)
def test_the_command_line_writes_the_same_file(paths, options, folder, monkeypatch, capsys):
    """To the last bit, and prints the same verdict."""
    from clip_geometry.cli import main

    given = [part for name, value in options.items() for part in (f"--{name}", str(value))]
    argv = ["clip-geometry", "measure", *paths, *given, "--blocks", "5", "--json", "theirs.jsonl"]
    monkeypatch.setattr("sys.argv", argv)
    monkeypatch.setenv("COLUMNS", "1000")
    with pytest.raises(SystemExit):
        main()
    result = cg.measure(*paths, blocks=5, **options)
    result.to_json("ours.jsonl")
    assert (folder / "ours.jsonl").read_bytes() == (folder / "theirs.jsonl").read_bytes()
    assert result.verdict and result.verdict in capsys.readouterr().out
    assert repr(cg.Measurement(cg.read_rows("theirs.jsonl"))) == repr(result)


REFUSED = {
    "{} and a set": (({"image": X}, Y), {}, "a mapping of sets and another set were given; put all sets into the map"),
    "empty mapping": (({},), {}, "the mapping of sets is empty; expected modality → embeddings, as in {'image': x}"),
    "no name": (({"a+b": X},), {}, r"modality 'a\+b' is not a modality name; expected letters"),
    "three arrays": ((X, Y, Z), {}, "3 sets were given by position, but only the first two have default names; give"),
    "contradiction": ((X, "image.npy"), {}, "holds image rows, and so does an earlier set; give one set of each"),
    "no file": (("nope.npy",), {}, "nope.npy does not exist; a file of embeddings was expected"),
    "one row": ((X[:1],), {}, "rows has 1 row; expected at least 2"),
    "NaN": ((np.where(X > 9, X, np.nan), Y), {}, "image has NaN or infinity in row 0; remove or repair such rows"),
    "dimensions": ((X, Y[:, :4]), GAP, "modality_gap needs both sets in one space, but image has dimension 6"),
    "one set": ((X,), GAP, "modality_gap needs two modalities, but only rows was given"),
    "labels of none": ((X, Y), {"labels": {"imag": LABELS}}, "labels were given for 'imag'; expected one of the sets"),
    "id count": ((X,), {"ids": IDS[:3]}, "rows embeddings have 40 rows but 3 values of item_id"),
    "other ids": (
        (X, Y), {"ids": {"image": IDS, "text": LABELS}, "measures": "matching_cosine"}, "have no item_id in common",
    ),
    "no measures": ((X,), {"measures": []}, "measures is empty; give names, comma-separated, or leave it out"),
    "needs": ((X,), {"measures": "isoscore_star"}, "unknown measure 'isoscore_star'"),
    "group": ((X,), {"labels": [0, *[1] * (N - 1)], "by": "label"}, "in the group of label 0: rows has 1 row"),
    "many blocks": ((X,), {"blocks": N + 1}, "blocks is 41; expected 0 or from 2 to the number of items, which is 40"),
    "two of one": ((cg.Embeddings(X, "audio"), cg.Embeddings(Y, "audio")), {}, "the second set holds audio rows, and"),
    "reserved": (({"both": X},), {}, r"modality 'both' is not a modality name: \[both\] stands for several"),
    "one block": ((X,), {"blocks": 1}, "blocks is 1; expected 0 or from 2 to the number of items, which is 40"),
}  # fmt: skip


@pytest.mark.parametrize(("sets", "options", "sentence"), REFUSED.values(), ids=REFUSED)
def test_what_cannot_be_measured_is_one_sentence(sets, options, sentence, folder):
    with pytest.raises(InputError, match=sentence):
        cg.measure(*sets, **options)
