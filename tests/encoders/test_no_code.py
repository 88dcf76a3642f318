"""A model's folder never runs code: its modules would leave a canary."""

import json
import pickle
import shutil
import sys
from pathlib import Path

import pytest
import torch

from clip_geometry.registry import InputError
from support.encoding import load

AUTO_MAP = {
    "AutoConfig": "canary.Config",
    "AutoModel": "canary.Model",
    "AutoTokenizer": ["canary.Tokenizer", "canary.Tokenizer"],
    "AutoImageProcessor": "canary.Processor",
    "AutoProcessor": "canary.Processor",
}
TRUST = {"trust_remote_code": True}
NEW = "of-no-known-type"


def change(path, **changes):
    values = json.loads(path.read_text()) if path.is_file() else {}
    path.write_text(json.dumps({**values, **changes}))


def change_text(folder, **changes):
    path = folder / "open_clip_config.json"
    values = json.loads(path.read_text())
    values["model_cfg"]["text_cfg"] |= changes
    path.write_text(json.dumps(values))


def with_tokenizer(folder):
    change(folder / "tokenizer_config.json", auto_map=AUTO_MAP, tokenizer_class=NEW)


def with_tower(folder, **text):
    """An open_clip folder whose text tower is one of transformers, with a type and code of its own."""
    shutil.copytree(folder, folder / "text")
    change(folder / "text" / "config.json", model_type=NEW, auto_map=AUTO_MAP, hidden_size=24)
    name = {"hf_model_name": str(folder / "text"), "hf_proj_type": "linear", "hf_pooler_type": "mean_pooler"}
    change_text(folder, **{**name, **text})


def known_config_unknown_model(folder):
    """A config class of transformers that has no model of its own there, so the auto_map's would be wanted."""
    with_tower(folder)
    change(folder / "text" / "config.json", model_type="encoder-decoder", encoder={"model_type": "bert"}, decoder={})


# what is done to a folder of each family's fixture, so that a loader that trusts it would import canary.py
TRAPS = {
    "tokenizer_kwargs": ("with_weights", lambda f: (with_tokenizer(f), change_text(f, tokenizer_kwargs=TRUST))),
    "tokenizer asks": ("with_weights", with_tokenizer),
    "text tower": ("with_weights", with_tower),
    "text tower, kwargs": ("with_weights", lambda f: with_tower(f, tokenizer_kwargs=TRUST)),
    "text tower, known config": ("with_weights", known_config_unknown_model),
    "text_cfg": ("with_weights", lambda f: change_text(f, **TRUST)),
    "image processor": (
        "hf_clip_folder",
        lambda f: change(f / "preprocessor_config.json", auto_map=AUTO_MAP, image_processor_type=NEW),
    ),
    "tokenizer": ("hf_clip_folder", with_tokenizer),
    "clip": ("hf_clip_folder", lambda f: change(f / "config.json", auto_map=AUTO_MAP)),
    "bert": ("bert_folder", lambda f: change(f / "config.json", auto_map=AUTO_MAP, model_type=NEW)),
    "bert, stale": ("bert_folder", lambda f: change(f / "config.json", auto_map=AUTO_MAP)),
    "bert, kernel": ("bert_folder", lambda f: change(f / "config.json", attn_implementation="own/canary")),
    "bert, tokenizer": ("bert_folder", with_tokenizer),
    "base": ("mclip_folder", lambda f: change(f / "base" / "config.json", auto_map=AUTO_MAP, model_type=NEW)),
    "base, tokenizer": ("mclip_folder", lambda f: with_tokenizer(f / "base")),
    "tower": ("mclip_folder", lambda f: change(f / "config.json", auto_map=AUTO_MAP, **TRUST)),
    "legacy": ("legacy_mclip_folder", lambda f: change(f / "config.json", auto_map=AUTO_MAP, model_type=NEW)),
    "type": (
        "sentence_folder",
        lambda f: (f / "modules.json").write_text(
            json.dumps([{"type": f"canary.{kind}", "path": "", "name": "0", "idx": 0} for kind in ("A", "Pooling")])
        ),
    ),
    "model_args": (
        "sentence_folder",
        lambda f: (
            change(f / "sentence_bert_config.json", model_args=TRUST, tokenizer_args=TRUST, config_args=TRUST),
            change(f / "config.json", auto_map=AUTO_MAP),
        ),
    ),
    "model_kwargs": (
        "sentence_folder",
        lambda f: (
            change(f / "sentence_bert_config.json", model_args=TRUST, model_kwargs=TRUST),
            change(f / "config.json", auto_map=AUTO_MAP, model_type=NEW),
            with_tokenizer(f),
        ),
    ),
    "activation": (
        "sentence_folder",
        lambda f: change(f / "2_Dense" / "config.json", activation_function="canary.Activation"),
    ),
}
PREFIXES = {
    "with_weights": ("local-dir", "hidden-states:local-dir"),
    "hf_clip_folder": ("hf-clip",),
    "ruclip_folder": ("ruclip",),
    "bert_folder": ("hf-text", "hidden-states"),
    "mclip_folder": ("mclip",),
    "legacy_mclip_folder": ("mclip",),
    "sentence_folder": ("sentence",),
}


class Malice:
    def __init__(self, target):
        self.target = target

    def __reduce__(self):
        return (Path.write_text, (self.target, "executed"))


def with_pickles(folder, canary):
    """Every weights file as a pickle that leaves the canary when it is loaded as one."""
    for path in [*folder.rglob("*.safetensors"), *folder.rglob("*.bin")]:
        path.unlink()
        name = path.name if path.suffix == ".bin" else "pytorch_model.bin"
        torch.save({"state_dict": {"weight": Malice(canary)}}, path.with_name(name))
    for path in folder.rglob("*.pkl"):
        path.write_bytes(pickle.dumps([Malice(canary)]))


@pytest.fixture(scope="module")
def folders(request):
    """Of each fixture the folder, with weights."""
    return {name: request.getfixturevalue(name) for name in PREFIXES}


def trapped(caveat, folders, tmp_path):
    """(the folder, the canary that must not appear)"""
    fixture, set_up = TRAPS[caveat]
    folder, canary = shutil.copytree(folders[fixture], tmp_path / "folder"), tmp_path / "canary"
    set_up(folder)
    for place in (folder, *(path for path in folder.rglob("*") if path.is_dir())):
        (place / "canary.py").write_text(f"open({str(canary)!r}, 'w').close()\n")
    return folder, canary


@pytest.fixture
def nothing_runs(tmp_path, monkeypatch):
    """Fails where something of a folder has run, was copied to be run, or was asked for on the terminal."""
    from transformers import dynamic_module_utils

    asked = []
    monkeypatch.setattr("builtins.input", lambda question="": asked.append(question) or "y")
    monkeypatch.setattr(dynamic_module_utils, "HF_MODULES_CACHE", str(tmp_path / "modules"))
    monkeypatch.syspath_prepend(str(tmp_path / "folder"))
    yield
    assert "canary" not in sys.modules
    assert not (tmp_path / "canary").exists()
    assert not list(tmp_path.rglob("modules/**/canary.py"))
    assert not asked


def try_to_load(model):
    try:
        load(model)
    except InputError as error:
        assert len(str(error)) <= 400 and "\n" not in str(error)


CASES = [(caveat, prefix) for caveat, (fixture, _) in TRAPS.items() for prefix in PREFIXES[fixture]]


@pytest.mark.parametrize(("caveat", "prefix"), CASES)
def test_no_module_of_a_folder_is_imported(caveat, prefix, folders, tmp_path, nothing_runs):
    try_to_load(f"{prefix}:{trapped(caveat, folders, tmp_path)[0]}")


@pytest.mark.parametrize(
    ("fixture", "prefix"), [(name, each) for name, several in PREFIXES.items() for each in several]
)
def test_no_pickle_is_run(fixture, prefix, folders, tmp_path, nothing_runs):
    folder = shutil.copytree(folders[fixture], tmp_path / "folder")
    with_pickles(folder, tmp_path / "canary")
    with pytest.raises(InputError, match=r"is refused|cannot be loaded|cannot be read as a checkpoint"):
        load(f"{prefix}:{folder}")
