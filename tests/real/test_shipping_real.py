"""Issue 21: the top ten of every target equal ours on coco500 and on scenes, scores to 1e-5.

Repairs are fitted on one half of the items, and the other half is the index; its rows are the queries, too. Every
query of coco500 is asked, and every third by JavaScript.
"""

import numpy as np
import pytest

from clip_geometry.embeddings import Embeddings
from clip_geometry.registry import InputError
from clip_geometry.repairs import Known, repairs
from clip_geometry.shipping import SavedPipeline, Shipment, item_map, query_map, write_shipment
from clip_geometry.transforms import Pipeline
from support.minilm import minilm
from support.mixed_index import paired
from support.shipped import SEARCHES, assert_same_top, best, module, ours, scale_of

NAMES = ("none", "center", "gr_clip", "zscore", "zscore[centered]", "posterior", "posterior[centered]", "nnn", "csls")
RERANKERS = ("quantile", "quantile[centered]", "posterior[isotonic]", "qb_norm", "rrf")
MAP = "normalize,center[each],procrustes[text-to-image]"


@pytest.fixture(scope="module")
def scenes(tmp_path_factory):
    """400 drawn scenes by the CLIP that ships with the package, with five captions that some scenes share."""
    import clip_geometry as cg

    folder = tmp_path_factory.mktemp("scenes")
    dataset = cg.load_dataset(cg.resolve_dataset("scenes", size=400))
    cg.embed(cg.resolve_encoder("local-dir:shipped/scenes-trained"), dataset, folder, device="cpu")
    found = cg.read_store(folder)
    return np.asarray(found["image"].vectors), np.asarray(found["text"].vectors)


@pytest.fixture(scope="module", params=["coco500", "scenes"])
def halves(request):
    """(known, index): modality → rows."""
    image, text = request.getfixturevalue(request.param)
    order = np.random.default_rng(0).permutation(len(image))
    known, index = order[: len(order) // 2], order[len(order) // 2 :]
    return tuple({"image": image[half].astype(float), "text": text[half].astype(float)} for half in (known, index))


def fitted(name, known: dict[str, np.ndarray]):
    return repairs[name].make().fit(paired(known) if name.startswith("posterior") else Known(known))


def shipment(repair, index):
    return Shipment(repair, {name: Embeddings(x, name) for name, x in index.items()})


@pytest.mark.parametrize("to", SEARCHES)
@pytest.mark.parametrize("name", NAMES)
def test_top_ten_of_inner_products(tmp_path, halves, name, to):
    known, index = halves
    repair = fitted(name, known)
    if (to, name) == ("faiss", "csls"):
        with pytest.raises(InputError, match="compares rows with a bank of known rows"):
            write_shipment(shipment(repair, index), to, tmp_path / to)
        return
    write_shipment(shipment(repair, index), to, tmp_path / to)
    for query, q in index.items():
        q = q[:: 12 if to == "javascript" else 1]
        assert_same_top(SEARCHES[to](tmp_path / to, query, q, index), ours(repair, query, q, index), scale_of(repair))


@pytest.mark.parametrize("name", RERANKERS)
def test_top_ten_of_rerankers(tmp_path, halves, name):
    known, index = halves
    repair = fitted(name, known)
    write_shipment(Shipment(repair), "numpy", tmp_path / "numpy")
    for query, q in index.items():
        assert_same_top(SEARCHES["numpy"](tmp_path / "numpy", query, q, index), ours(repair, query, q, index), 1.0)


@pytest.mark.filterwarnings("ignore::clip_geometry.transforms.RankWarning")
@pytest.mark.parametrize("to", SEARCHES)
def test_top_ten_of_a_saved_pipeline(tmp_path, halves, to):
    known, index = halves
    repair = SavedPipeline(Pipeline(MAP).fit(known))
    write_shipment(shipment(repair, index), to, tmp_path / to)
    for query, q in index.items():
        q = q[:: 12 if to == "javascript" else 1]
        assert_same_top(SEARCHES[to](tmp_path / to, query, q, index), ours(repair, query, q, index), 1.0)


@pytest.mark.parametrize("name", ["center", "gr_clip", "zscore", "posterior"])
def test_top_ten_of_modules_of_sentence_transformers(halves, name):
    """The modules that are appended to a model, on rows that an encoder would give them."""
    modules_of = pytest.importorskip("sentence_transformers.sentence_transformer.modules")
    import torch

    from clip_geometry.shipping.sentence_transformers import _modules

    known, index = halves
    repair = fitted(name, known)

    def encode(mapped, x):
        features = {"sentence_embedding": torch.from_numpy(x).float()}
        for step in _modules(modules_of, mapped.chain()):
            features = step(features)
        return features["sentence_embedding"].detach().double().numpy()

    items = np.concatenate([encode(item_map(repair, each), x) for each, x in index.items()])
    for query, q in index.items():
        found = best(encode(query_map(repair, query), q) @ items.T, 10)
        assert_same_top(found, ours(repair, query, q, index), scale_of(repair))


@pytest.mark.parametrize("name", ["center", "zscore", "posterior"])
def test_top_ten_of_a_sentence_encoder(tmp_path, name):
    """Captions of scenes by MiniLM, and the scenes themselves as pixels, thrown into its space at random.

    The texts of queries and of the index come from `encode_query` and `encode_document` of the shipped model.
    """
    sentence_transformers = pytest.importorskip("sentence_transformers")
    import clip_geometry as cg

    dataset = cg.load_dataset(cg.resolve_dataset("scenes", size=120))
    captions = [dataset.text.load(k) for k in range(120)]
    pixels = np.stack([np.asarray(dataset.image.load(k).resize((8, 8)), dtype=float).ravel() for k in range(120)])
    image = pixels @ np.random.default_rng(0).normal(size=(pixels.shape[1], 384))
    text = sentence_transformers.SentenceTransformer(str(minilm()), device="cpu").encode(captions).astype(float)
    known, index = ({"image": image[half], "text": text[half]} for half in (slice(60), slice(60, 120)))
    repair = fitted(name, known)
    write_shipment(Shipment(repair, model=minilm(), modality="text"), "sentence-transformers", tmp_path / "model")
    write_shipment(Shipment(repair), "numpy", tmp_path / "numpy")
    model = sentence_transformers.SentenceTransformer(str(tmp_path / "model"), device="cpu")
    images = module(tmp_path / "numpy/repair.py").rows("items", "image", index["image"])
    items = np.concatenate([images, model.encode_document(captions[60:]).astype(float)])
    found = best(model.encode_query(captions[60:]).astype(float) @ items.T, 10)
    assert_same_top(found, ours(repair, "text", index["text"], index), scale_of(repair))
