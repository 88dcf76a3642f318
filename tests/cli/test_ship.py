"""`ship`: what a user types, and what then searches without this package."""

from pathlib import Path

import numpy as np
import pytest

from clip_geometry.search.repairs import Known, repairs
from clip_geometry.search.shipping import SavedPipeline, targets
from clip_geometry.transforms import Pipeline
from support.shipped import SEARCHES, assert_same_top, ours, scale_of


@pytest.fixture
def x(sets):
    return {path.stem: np.load(path).astype(float) for path in sets}


@pytest.fixture
def files(sets, x, cli):
    """A map of each modality and a repair of the scores, saved."""
    assert cli("fit", "normalize,center[each]", sets[0].parent, "-o", "center.safetensors").status == 0
    repair = repairs["zscore"].make().fit(Known(x))
    repair.save("zscore.safetensors")
    return {"center": SavedPipeline(Pipeline.load("center.safetensors")), "zscore": repair}


@pytest.mark.parametrize("name", ["center", "zscore"])
@pytest.mark.parametrize("to", SEARCHES)
def test_a_map_and_a_repair(cli, sets, x, files, to, name):
    folder = [sets[0].parent] if targets[to].stores_rows else []
    Path("index").mkdir()
    outcome = cli("ship", f"{name}.safetensors", *folder, "-o", "index", "--to", to)
    assert outcome.status == 0, outcome.err
    assert f"repair: {files[name].name}\n" in outcome.out and outcome.out.endswith(f"{to}: index\n")
    named = [line.partition(": ")[0] for line in outcome.out.splitlines()[1:-1]]
    assert all((Path("index") / each).exists() for each in named if "*" not in each)
    for query in x:
        found = SEARCHES[to](Path.cwd() / "index", query, x[query][:9] + 0.3, x)
        assert_same_top(found, ours(files[name], query, x[query][:9] + 0.3, x), scale_of(files[name]))


def test_lengths_that_the_map_gives(cli, sets, x, files):
    assert cli("ship", "center.safetensors", "-o", "index", "--to", "numpy", "--no-normalize").status == 0
    found = SEARCHES["numpy"](Path.cwd() / "index", "text", x["text"], x)
    repair = SavedPipeline(Pipeline.load("center.safetensors"), normalize=False)
    assert_same_top(found, ours(repair, "text", x["text"], x), 1.0)


def test_one_map_of_the_modalities_in_the_folder(cli, sets, x):
    assert cli("fit", "normalize,center", sets[0], "-o", "one.safetensors").status == 0
    assert cli("ship", "one.safetensors", sets[0].parent, "-o", "index", "--to", "faiss").status == 0
    repair = SavedPipeline(Pipeline.load("one.safetensors"), ["image", "text"])
    found = SEARCHES["faiss"](Path.cwd() / "index", "text", x["text"], x)
    assert_same_top(found, ours(repair, "text", x["text"], x), 1.0)


def test_items_of_one_modality_for_queries_of_both(cli, sets, x, files):
    """--as names the rows of a file that does not."""
    np.save("rows.npy", x["text"])
    assert cli("ship", "center.safetensors", "rows.npy", "--as", "text", "-o", "index", "--to", "faiss").status == 0
    items = {"text": x["text"]}
    found = SEARCHES["faiss"](Path.cwd() / "index", "image", x["image"], items)
    assert_same_top(found, ours(files["center"], "image", x["image"], items), 1.0)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["center.safetensors", "-o", "new", "--to", "fais"], "'fais' is not one of 'faiss', 'onnx', 'numpy'"),
        (["center.safetensors", "-o", "new", "--to", "faiss"], "--to faiss needs FOLDER, embeddings of the index"),
        (["center.safetensors", ".", "-o", "new", "--to", "onnx"], "but --to onnx writes the map alone; leave it out"),
        (["center.safetensors", "--as", "text", "-o", "new", "--to", "numpy"], "--as text was given, but --to numpy"),
        (["none.safetensors", "-o", "new", "--to", "numpy"], "none.safetensors does not exist"),
        (
            ["center.safetensors", "narrow", "-o", "new", "--to", "faiss"],
            f"{Path('narrow/text.npy')} has rows of dimension 3, but center.safetensors takes rows of dimension",
        ),
        (
            ["zscore.safetensors", "narrow/text.npy", "-o", "new", "--to", "faiss"],
            f"{Path('narrow/text.npy')} has rows of dimension 3, but zscore.safetensors takes rows of dimension",
        ),
        (["image.npy", "-o", "new", "--to", "numpy"], "image.npy is no readable .safetensors file"),
        (["center.safetensors", "-o", "full", "--to", "numpy"], "full is not empty, and nothing is overwritten"),
        (["center.safetensors", "-o", "image.npy", "--to", "numpy"], "image.npy is a file; a new folder was expected"),
        (["center.safetensors", "rows.npy", "-o", "new", "--to", "faiss"], "add --as image or --as text"),
        (["zscore.safetensors", "rows.npy", "-o", "new", "--to", "faiss"], "add --as image or --as text"),
        (["quantile.safetensors", ".", "-o", "new", "--to", "faiss"], "ship it --to numpy, which writes a reranker"),
        (["two.safetensors", "-o", "new", "--to", "onnx"], "write center[pooled] for one fit"),
        (["zscore.safetensors", "audio.npy", "-o", "new", "--to", "faiss"], "image and text rows, but audio rows were"),
    ],
)
def test_mistakes(refused, sets, x, files, arguments, message):
    from clip_geometry.transforms import Pipeline

    np.save("rows.npy", x["text"])
    Path("full").mkdir()
    Path("full/notes.txt").write_text("mine")
    Path("narrow").mkdir()
    np.save("narrow/image.npy", x["image"])
    np.save("narrow/text.npy", x["text"][:, :3])
    repairs["quantile"].make().fit(Known(x)).save("quantile.safetensors")
    Pipeline("center").fit(x).save("two.safetensors")
    if "audio.npy" in arguments:
        np.save("audio.npy", x["text"])
    assert message in refused("ship", *arguments)
    assert not Path("new").exists()
