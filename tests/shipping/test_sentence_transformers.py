"""A text encoder in sentence-transformers' layout, whose rows are repaired."""

import json
import sys

import numpy as np
import pytest

from clip_geometry.registry import InputError
from clip_geometry.repairs import repairs
from clip_geometry.shipping import SavedPipeline, Shipment, write_shipment
from clip_geometry.transforms import Pipeline
from support.minilm import minilm
from support.mixed_index import paired

MODEL = minilm()
COLORS, SHAPES = ("red", "blue", "green", "black", "white"), ("circle", "square", "star", "cross", "ring", "line")
TEXTS = [f"a {color} {shape}" for color in COLORS for shape in SHAPES]


def load(folder):
    sentence_transformers = pytest.importorskip("sentence_transformers")
    return sentence_transformers.SentenceTransformer(str(folder), device="cpu", trust_remote_code=False)


@pytest.fixture(scope="module")
def raw():
    return load(MODEL).encode(TEXTS).astype(np.float64)


@pytest.fixture(scope="module")
def known(raw):
    """The texts, and images that are near to them around another mean."""
    rng = np.random.default_rng(0)
    return paired({"image": raw + 0.05 * rng.normal(size=raw.shape) + 0.1, "text": raw})


@pytest.mark.filterwarnings("ignore::clip_geometry.transforms.RankWarning")  # 30 pairs
@pytest.mark.parametrize("name", ["none", "center", "gr_clip", "procrustes", "zscore", "posterior"])
def test_rows_of_queries_and_of_documents(tmp_path, raw, known, name):
    """float32: 1e-5 of the largest entry."""
    repair = repairs[name].make().fit(known)
    said = write_shipment(Shipment(repair, model=MODEL, modality="text"), "sentence-transformers", tmp_path / "out")
    model, rows = (
        load(tmp_path / "out"),
        {"query": repair.query_rows("text", raw), "item": repair.item_rows("text", raw)},
    )
    scale = np.abs(rows["query"]).max()
    assert model.encode_query(TEXTS) == pytest.approx(rows["query"], abs=1e-5 * scale)
    assert model.encode_document(TEXTS) == pytest.approx(rows["item"], abs=1e-5)
    assert model.encode(TEXTS) == pytest.approx(rows["query"], abs=1e-5 * scale)
    same = rows["query"].shape == rows["item"].shape and np.allclose(rows["query"], rows["item"])
    assert ("encode gives" in said["."]) == same
    assert model.similarity_fn_name == "dot"


def test_a_saved_pipeline_can_be_embedded_with_again(tmp_path, raw):
    """Without a Router the folder is one that `embed` takes, too."""
    from clip_geometry.encoders import load_encoder, resolve_encoder

    repair = SavedPipeline(Pipeline("normalize,center").fit({"any": raw}), ["text"])
    write_shipment(Shipment(repair, model=MODEL, modality="text"), "sentence-transformers", tmp_path / "out")
    expected = repair.item_rows("text", raw)
    assert load(tmp_path / "out").encode(TEXTS) == pytest.approx(expected, abs=1e-5)
    encoder = load_encoder(resolve_encoder(f"sentence:{tmp_path / 'out'}"), "cpu")
    assert encoder.text_features(encoder.tokenize(TEXTS)).numpy() == pytest.approx(expected, abs=1e-5)
    kinds = [each["type"].rpartition(".")[2] for each in json.loads((tmp_path / "out/modules.json").read_text())]
    assert kinds == ["Transformer", "Pooling", "Normalize", "Normalize", "Dense", "Normalize"]


def test_what_no_chain_of_modules_can_be(tmp_path, known):
    for name, message in (("posterior[centered]", "two views of a row"), ("nnn", "a bank of known rows")):
        repair = repairs[name].make().fit(known)
        with pytest.raises(InputError, match=message):
            write_shipment(Shipment(repair, model=MODEL, modality="text"), "sentence-transformers", tmp_path / "out")


def test_another_dimension(tmp_path):
    rng = np.random.default_rng(0)
    repair = repairs["center"].make().fit(paired({name: rng.normal(size=(9, 5)) for name in ("image", "text")}))
    with pytest.raises(
        InputError, match="gives rows of dimension 384, but center was fitted for text rows of dimension 5"
    ):
        write_shipment(Shipment(repair, model=MODEL, modality="text"), "sentence-transformers", tmp_path / "out")


def test_a_modality_that_the_repair_lacks(tmp_path, known):
    repair = repairs["center"].make().fit(known)
    with pytest.raises(InputError, match="fitted for image and text rows, but audio rows were given"):
        write_shipment(Shipment(repair, model=MODEL, modality="audio"), "sentence-transformers", tmp_path / "out")


def test_a_missing_package_is_one_sentence(tmp_path, monkeypatch, known):
    monkeypatch.setitem(sys.modules, "sentence_transformers.sentence_transformer.modules", None)
    with pytest.raises(InputError, match=r"not installed: pip install sentence-transformers$"):
        repair = repairs["center"].make().fit(known)
        write_shipment(Shipment(repair, model=MODEL, modality="text"), "sentence-transformers", tmp_path / "out")
