"""Fitted pipelines: applied to other rows, saved and loaded, and used by programs that know nothing of us."""

import json

import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import load_file

from clip_geometry import Pipeline
from clip_geometry.registry import InputError
from clip_geometry.transforms.map_file import KEY
from support.clouds import cone
from support.sealed import rewritten, with_facts

PAIRS = (np.arange(20), np.arange(20))
PIPELINES = [
    "normalize",
    "center",
    "scale(3)",
    "normalize,whiten(3)[pooled]",
    "normalize,center[each],normalize",
    "pca(3, center=false)[text],all_but_the_top(1)[image]",
    "cluster_center(2, seed=5)[each]",
    "normalize,procrustes[text-to-image]",
    "procrustes(completion=lapack)[image-to-text],normalize",
    "least_squares(rcond=1e-06)[text-to-image],whiten(2)[pooled],normalize",
    "center[pooled],normalize,pca(2)[pooled]",
    "conceptor(alpha=0.5)[each]",
    "normalize,ridge(0.01, rank=2)[text-to-image],normalize",
    "normalize,realign[text-to-image]",
    "normalize,realign(centroid=false)[text-to-image],normalize",
    "isoclip(1, 1),normalize",
]


@pytest.fixture
def sets():
    rng = np.random.default_rng(0)
    return {"image": cone(20, 4, rng), "text": cone(20, 4, rng) + 3}


@pytest.fixture
def others():
    rng = np.random.default_rng(1)
    return {"image": cone(6, 4, rng), "text": cone(7, 4, rng) + 3}


@pytest.fixture
def saved(sets, tmp_path):
    def save(steps="normalize,whiten(3)[pooled]", given=None):
        fitted = Pipeline(steps).fit(given or sets, PAIRS, origin="coco/train")
        fitted.save(tmp_path / "map.safetensors")
        return fitted, tmp_path / "map.safetensors"

    return save


@pytest.mark.parametrize("steps", PIPELINES)
def test_a_saved_map_is_the_same_map(saved, others, steps):
    fitted, path = saved(steps)
    loaded = Pipeline.load(path)
    for modality, rows in fitted.transform(others).items():
        assert (loaded.transform(others)[modality] == rows).all()
    for field in ("steps", "dimensions", "fitted_on", "refusal"):
        assert getattr(loaded, field) == getattr(fitted, field)
    for modality, chain in fitted.chains.items():
        for one, other in zip(chain, loaded.chains[modality], strict=True):
            assert type(one) is type(other) and one.get_params() == other.get_params()
            assert (one.n_features_in_, one.fitted_on_) == (other.n_features_in_, other.fitted_on_)
    loaded.save(path.with_name("again.safetensors"))
    assert path.read_bytes() == path.with_name("again.safetensors").read_bytes()


def test_what_is_one_object_stays_one_and_is_saved_once(saved):
    _, path = saved()
    loaded = Pipeline.load(path)
    assert loaded.chains["image"][1] is loaded.chains["text"][1]
    assert sum(name.endswith("components_") for name in load_file(path)) == 1


@pytest.mark.parametrize("steps", PIPELINES)
def test_the_file_says_how_to_use_it_without_us(saved, others, steps):
    """The recipe of map_file's docstring, word for word."""
    fitted, path = saved(steps)
    with safe_open(path, "np") as file:
        facts = json.loads(file.metadata()["clip_geometry"])["affine"]
        for modality, x in others.items():
            said = facts[modality]
            if "not_affine" in said:
                assert f"{modality}.W" not in file.keys()  # noqa: SIM118
                with pytest.raises(InputError) as error:
                    fitted.affine(modality)
                assert said["not_affine"] == str(error.value)
                continue
            w, b = file.get_tensor(f"{modality}.W"), file.get_tensor(f"{modality}.b")
            if said["unit_rows_in"]:
                x = x / np.linalg.norm(x, axis=1, keepdims=True)
            y = x @ w + b
            if said["renormalise"]:
                y = y / np.linalg.norm(y, axis=1, keepdims=True)
            assert np.allclose(y, fitted.transform(others)[modality], rtol=1e-9, atol=1e-9)


def test_rows_that_the_map_was_not_fitted_for(saved, sets):
    fitted, _ = saved("center[each]")
    with pytest.raises(InputError, match="fitted for image and text rows, but audio rows were given"):
        fitted.transform({"audio": sets["image"]})
    with pytest.raises(InputError, match="text rows have dimension 3, but the pipeline was fitted on dimension 4"):
        fitted.transform({"text": sets["text"][:, :3]})


def a_tensor(tensors, metadata):
    tensors["image.W"][0, 0] += 1e-12


def a_parameter(tensors, metadata):
    metadata[KEY] = metadata[KEY].replace('"k": 3', '"k": 2')


def a_lost_tensor(tensors, metadata):
    del tensors["1.mean_"]


def no_metadata(tensors, metadata):
    metadata.clear()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (a_tensor, "is damaged: its checksum does not match"),
        (a_parameter, "is damaged: its checksum does not match"),
        (a_lost_tensor, "is damaged: its checksum does not match"),
        (no_metadata, "is a .safetensors file, but not a map of clip-geometry; give one that fit wrote"),
        (with_facts(format=2), "has format 2 of clip-geometry .*, but this version reads format 1"),
        (
            with_facts(chains={"image": "01"}),
            "chains.image of the metadata of .* is '01': input should be a valid list",
        ),
        (with_facts(chains={"image": [99]}), "contradicts itself"),
        (with_facts(chains={}, dimensions={}), "contradicts itself"),
        (with_facts(dimensions={"image": [2, 2], "text": [2, 2]}), "contradicts itself"),
        (with_facts(dimensions={"image": [10**15, 2]}), "input should be less than or equal to 1000000"),
        (with_facts(transforms=[{"name": "os.system", "parameters": {}, "attributes": {}}]), "contradicts itself"),
        (with_facts(steps=["normalize)("]), "contradicts itself"),
        (with_facts(transforms=[]), "contradicts itself"),
        (with_facts(steps=None), "steps of the metadata of .* is None"),
    ],
)
def test_changed_files(saved, change, message):
    _, path = saved()
    Pipeline.load(path)
    rewritten(path, change)
    with pytest.raises(InputError, match=message):
        Pipeline.load(path)


def test_no_flipped_bit_goes_unnoticed(saved):
    """Header, JSON, tensors: 200 places."""
    _, path = saved()
    whole = path.read_bytes()
    rng = np.random.default_rng(0)
    for place in rng.choice(len(whole), size=200, replace=False):
        damaged = bytearray(whole)
        damaged[place] ^= 1 << int(rng.integers(8))
        path.write_bytes(damaged)
        with pytest.raises(InputError):
            Pipeline.load(path)


def test_files_that_are_no_maps(saved, tmp_path):
    _, path = saved()
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(InputError, match=r"is not a readable \.safetensors file: it is damaged or cut short"):
        Pipeline.load(path)
    for content, message in ((b"hello, this is no map", "not a readable .safetensors file"), (b"", "is empty")):
        path.write_bytes(content)
        with pytest.raises(InputError, match=message):
            Pipeline.load(path)
    with pytest.raises(InputError, match=r"does not exist; a map .* was expected"):
        Pipeline.load(tmp_path / "none.safetensors")
    with pytest.raises(InputError, match="is a directory; a map"):
        Pipeline.load(tmp_path)


def test_a_failed_save_leaves_the_old_file(saved, monkeypatch):
    fitted, path = saved()
    before = path.read_bytes()

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("clip_geometry.files.os.fsync", full)
    with pytest.raises(OSError, match="No space left"):
        fitted.save(path)
    assert path.read_bytes() == before and [each.name for each in path.parent.iterdir()] == [path.name]
