"""Fitted repairs, saved and loaded: the same scores to the last bit, and one sentence about every other file."""

import numpy as np
import pytest
from safetensors import safe_open

from clip_geometry import Pipeline
from clip_geometry.registry import InputError
from clip_geometry.search.repairs import InnerProduct, Known, Repair, repairs
from clip_geometry.search.repairs.maps import Mapped, ReciprocalRank
from clip_geometry.search.repairs.neighborhoods import NNN
from clip_geometry.search.repairs.repair_file import KEY
from clip_geometry.search.shipping import item_map, query_map
from support.mixed_index import NAMES, labelled, rows
from support.sealed import rewritten, with_facts

pytestmark = pytest.mark.filterwarnings("ignore:procrustes was fitted on pairs of rank 20")


@pytest.fixture
def saved(tmp_path):
    def save(name="posterior[centered]"):
        repair = repairs[name].make().fit(labelled(rows()))
        repair.save(tmp_path / "repair.safetensors")
        return repair, tmp_path / "repair.safetensors"

    return save


@pytest.mark.parametrize(("dtype", "names"), [(np.float32, NAMES), (np.float64, NAMES[:2])])
@pytest.mark.parametrize("name", repairs)
def test_a_saved_repair_is_the_same_repair(name, names, dtype, tmp_path):
    sets = {modality: x.astype(dtype) for modality, x in rows(names=names).items()}
    repair = repairs[name].make().fit(labelled(sets))
    repair.save(tmp_path / "repair.safetensors")
    loaded = Repair.load(tmp_path / "repair.safetensors")
    assert type(loaded) is type(repair) and loaded.name == name
    items = {modality: x.astype(dtype) for modality, x in rows(1, n=30, names=names).items()}
    for query, q in items.items():
        ours = loaded.mixed(query, q, items, np.arange(30))
        for item, table in repair.mixed(query, q, items, np.arange(30)).items():
            assert (ours[item] == table).all()
        if isinstance(repair, InnerProduct) and isinstance(loaded, InnerProduct):
            assert (item_map(loaded, query)(q) == item_map(repair, query)(q)).all()
            assert (query_map(loaded, query)(q) == query_map(repair, query)(q)).all()


def test_parameters_and_names_are_kept(tmp_path):
    path = tmp_path / "repair.safetensors"
    repairs["rrf[own-first]"].make().fit(Known(rows())).save(path)
    loaded = Repair.load(path)
    assert isinstance(loaded, ReciprocalRank) and loaded.own_first and not loaded.centered
    Mapped("all_but_the_top(2)[each]").fit(Known(rows())).save(path)
    loaded = Repair.load(str(path))
    assert isinstance(loaded, Mapped) and loaded.name == loaded.pipeline == "all_but_the_top(2)[each]"


def test_an_identity_is_a_flag(saved):
    """Without it, CLIP's 512 dimensions would take 2 MB for each map; a map that is none is a matrix."""
    for name, matrices in (("none", 0), ("zscore[centered]", 0), ("center", 0), ("whiten", 2)):
        _, path = saved(name)
        with safe_open(path, "np") as file:
            assert sum(key.endswith(".W") for key in file.keys()) == matrices  # noqa: SIM118


def test_saving_again_gives_the_same_bytes(saved, tmp_path):
    _, path = saved("csls")
    Repair.load(path).save(tmp_path / "again.safetensors")
    assert path.read_bytes() == (tmp_path / "again.safetensors").read_bytes()


def test_a_repair_that_is_not_fitted(tmp_path):
    with pytest.raises(InputError, match="csls is not fitted yet; call fit first"):
        repairs["csls"].make().save(tmp_path / "repair.safetensors")
    assert not list(tmp_path.iterdir())


def test_a_repair_that_is_not_registered(tmp_path):
    class Mine(NNN):
        pass

    with pytest.raises(InputError, match="Mine is not registered as a repair"):
        Mine().fit(Known(rows())).save(tmp_path / "repair.safetensors")


# -- files that are something else


def another_matrix(facts, tensors):
    facts["maps"][0]["identity"] = False
    tensors["map.0.W"] = np.ones((3, 3))


DAMAGED, CONTRADICTION = "is damaged: its checksum does not match; copy it again or fit it again", "contradicts itself"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda tensors, _: tensors.update({"map.0.b": tensors["map.0.b"] + 1e-12}), DAMAGED),
        (lambda _, metadata: metadata.update({KEY: metadata[KEY].replace('"slope": ', '"slope": 1')}), DAMAGED),
        (lambda tensors, _: tensors.pop("map.0.b"), DAMAGED),
        (
            lambda _, metadata: metadata.clear(),
            "file, but not a repair of clip-geometry; give one that Repair.save wrote",
        ),
        (with_facts(format=2), "has format 2 of clip-geometry .*, but this version reads format 1"),
        (with_facts(kind="os.system"), r"contradicts itself \(no repair is called 'os.system'\); fit the repair again"),
        (with_facts(kind="csls"), CONTRADICTION),
        (with_facts(kind="zscore", parameters={"centred": True}), CONTRADICTION),
        (with_facts(parameters={"centered": ["os"]}), "parameters.centered.* of the metadata of .* is"),
        (with_facts(terms=[]), CONTRADICTION),
        (with_facts(views=[]), CONTRADICTION),
        (with_facts(maps=[]), CONTRADICTION),
        (with_facts(views=[{"image": -1}]), "views.0.image of the metadata"),
        (with_facts(lambda facts, _: facts["terms"].pop(1)), CONTRADICTION),
        (with_facts(lambda facts, _: facts["terms"][1].update(view=7)), CONTRADICTION),
        (with_facts(lambda facts, _: facts["views"][0].update(text=7)), CONTRADICTION),
        (with_facts(lambda _, tensors: tensors.update({"map.0.b": tensors["map.0.b"][1:].copy()})), CONTRADICTION),
        (with_facts(another_matrix), CONTRADICTION),
        (with_facts(lambda _, tensors: tensors["map.0.b"].fill(np.nan)), r"itself \(a number is not finite\)"),
    ],
)
def test_changed_files(saved, change, message):
    _, path = saved()
    Repair.load(path)
    rewritten(path, change)
    with pytest.raises(InputError, match=message):
        Repair.load(path)


def test_files_that_are_no_repairs(saved, tmp_path):
    _, path = saved()
    with pytest.raises(InputError, match="not a map of clip-geometry; give one that fit wrote"):
        Pipeline.load(path)
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(InputError, match=r"is not a readable \.safetensors file: it is damaged or cut short"):
        Repair.load(path)
    path.write_bytes(b"hello, this is no repair")
    with pytest.raises(InputError, match=r"not a readable \.safetensors file"):
        Repair.load(path)
    with pytest.raises(
        InputError, match=r"does not exist; a repair \(.safetensors\) written by Repair.save was expected"
    ):
        Repair.load(tmp_path / "none.safetensors")
    Pipeline("center").fit(rows()).save(path)
    with pytest.raises(InputError, match=r"not a repair of clip-geometry; give one that Repair\.save wrote"):
        Repair.load(path)


@pytest.mark.parametrize("name", ["posterior[centered]", "quantile", "csls"])
def test_no_flipped_bit_goes_unnoticed(saved, name):
    """Header, JSON, tensors: 60 places."""
    _, path = saved(name)
    whole = path.read_bytes()
    rng = np.random.default_rng(0)
    for place in rng.choice(len(whole), size=60, replace=False):
        damaged = bytearray(whole)
        damaged[place] ^= 1 << int(rng.integers(8))
        path.write_bytes(damaged)
        with pytest.raises(InputError):
            Repair.load(path)
