"""Issue 21: the top ten of every target equal ours on coco500 and on scenes, scores to 1e-5.

Repairs are fitted on one half of the items, and the other half is the index; its rows are the queries, too.
"""

import numpy as np
import pytest

from clip_geometry import Pipeline
from clip_geometry.embeddings import Embeddings
from clip_geometry.search.repairs import Known, repairs
from clip_geometry.search.shipping import SavedPipeline, write_shipment
from support.mixed_index import paired
from support.shipped import SEARCHES, assert_same_top, ours, scale_of

NAMES = ("center", "zscore[centered]", "posterior", "csls")
MAP = "normalize,center[each],procrustes[text-to-image]"


@pytest.fixture(scope="module")
def scenes(tmp_path_factory):
    """400 drawn scenes by the CLIP that ships with the package, with five captions that some scenes share."""
    import clip_geometry as cg

    folder = tmp_path_factory.mktemp("scenes")
    dataset = cg.data.load_dataset("scenes", size=400)
    cg.embed(cg.encoders.resolve_encoder("local-dir:shipped/scenes-trained"), dataset, folder, device="cpu")
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


def ship(repair, index, to, out):
    return write_shipment(repair, to, out, {name: Embeddings(x, name) for name, x in index.items()})


@pytest.mark.parametrize("to", SEARCHES)
@pytest.mark.parametrize("name", NAMES)
def test_top_ten_of_inner_products(tmp_path, halves, name, to):
    known, index = halves
    repair = fitted(name, known)
    ship(repair, index, to, tmp_path / to)
    for query, q in index.items():
        assert_same_top(SEARCHES[to](tmp_path / to, query, q, index), ours(repair, query, q, index), scale_of(repair))


@pytest.mark.filterwarnings("ignore::clip_geometry.transforms.RankWarning")
@pytest.mark.parametrize("to", SEARCHES)
def test_top_ten_of_a_saved_pipeline(tmp_path, halves, to):
    known, index = halves
    repair = SavedPipeline(Pipeline(MAP).fit(known))
    ship(repair, index, to, tmp_path / to)
    for query, q in index.items():
        assert_same_top(SEARCHES[to](tmp_path / to, query, q, index), ours(repair, query, q, index), 1.0)
