"""A model's folder with one file damaged, or one value: a sentence, at once, and never the memory that it declares."""

import json
import os
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

from clip_geometry.catalog import read_yaml
from clip_geometry.encoders import encoder_revision, load_encoder, resolve_encoder
from clip_geometry.registry import InputError
from support.encoding import pixels_of

FAMILIES = {
    "local-dir": "with_weights",
    "hf-clip": "hf_clip_folder",
    "ruclip": "ruclip_folder",
    "hf-text": "bert_folder",
    "hidden-states": "bert_folder",
    "mclip": "mclip_folder",
    "mclip, legacy": "legacy_mclip_folder",
    "sentence": "sentence_folder",
}
DAMAGES = {
    "missing": lambda content: None,
    "empty": lambda content: b"",
    "cut": lambda content: content[: len(content) // 2],
    "random": lambda content: np.random.default_rng(0).bytes(len(content)),
}
DAMAGES_OF_JSON = {
    "list": lambda content: b"[]",
    "deep": lambda content: b"[" * 100_000,
    "closed": lambda content: b'{"a":' * 3000 + b"1" + b"}" * 3000,
    "digits": lambda content: b'{"model_type": ' + b"1" * 5000 + b"}",
}
OPTIONAL = {"sentence_bert_config.json"}  # all at its defaults without


@pytest.fixture(scope="module")
def folders(request):
    """The folder of each family, with weights."""
    return {family: request.getfixturevalue(name) for family, name in FAMILIES.items()}


def embed(family, folder, captions, images):
    config = resolve_encoder(f"{family.partition(',')[0]}:{folder}")
    encoder_revision(config)
    encoder = load_encoder(config, device="cpu")
    json.dumps(dict(encoder.describe()), allow_nan=False)
    encoder.text_rows(encoder.tokenize(captions))
    if "image" in encoder.modalities:
        encoder.image_rows(pixels_of(encoder, images))


def sentence_of(family, folder, captions, images):
    """The one that it is refused with."""
    with pytest.raises(InputError) as caught:
        embed(family, folder, captions, images)
    sentence = str(caught.value)
    assert len(sentence) <= 400 and sentence.isprintable(), sentence
    return sentence


@pytest.mark.parametrize("family", list(FAMILIES))
def test_a_file_that_is_damaged(family, folders, tmp_path, captions, images):
    embed(family, folders[family], captions, images)
    for path in sorted(path for path in folders[family].rglob("*") if path.is_file()):
        file = str(path.relative_to(folders[family]))
        for name, damage in (DAMAGES | (DAMAGES_OF_JSON if path.suffix == ".json" else {})).items():
            if name == "missing" and file in OPTIONAL:
                continue
            folder = shutil.copytree(folders[family], tmp_path / f"{file.replace('/', ' ')} {name}")
            content = damage(path.read_bytes())
            (folder / file).unlink() if content is None else (folder / file).write_bytes(content)
            sentence_of(family, folder, captions, images)


@pytest.mark.parametrize("file", ["config.json", "tokenizer.json", "model.safetensors"])
def test_a_pipe_among_the_files_is_not_waited_for(file, folders, tmp_path, captions, images):
    folder = shutil.copytree(folders["hf-text"], tmp_path / "folder")
    (folder / file).unlink()
    os.mkfifo(folder / file)
    assert "is a device or a pipe" in sentence_of("hf-text", folder, captions, images)


def table(name):
    """Rows of a file beside this one: family, file, and what is listed for them."""
    families = read_yaml(Path(__file__).with_name(name))
    return [(family, file, *row) for family, files in families.items() for file, rows in files.items() for row in rows]


@pytest.mark.parametrize(("family", "file", "content", "said"), table("wrong_files.yaml"))
def test_a_file_of_another_kind_or_none(family, file, content, said, folders, tmp_path, captions, images):
    folder = shutil.copytree(folders[family], tmp_path / "folder")
    (folder / file).unlink() if content is None else (folder / file).write_text(content)
    assert said in sentence_of(family, folder, captions, images)


@pytest.mark.parametrize(("family", "file", "place", "value", "said"), table("wrong_values.yaml"))
def test_a_value_that_is_wrong(family, file, place, value, said, folders, tmp_path, captions, images):
    folder = shutil.copytree(folders[family], tmp_path / "folder")
    values = json.loads((folder / file).read_text())
    *parents, last = place.split(".")
    inner = values
    for parent in parents:
        inner = inner[parent]
    inner[last] = value
    (folder / file).write_text(json.dumps(values))
    assert said in sentence_of(family, folder, captions, images)


def test_a_tokenizer_of_another_model(folders, tmp_path, captions, images):
    folder = shutil.copytree(folders["hf-text"], tmp_path / "folder")
    values = json.loads((folder / "tokenizer.json").read_text())
    values["model"]["vocab"]["cat"] = 1000
    (folder / "tokenizer.json").write_text(json.dumps(values))
    assert "gives the token 1000, but the model has 18 tokens" in sentence_of("hf-text", folder, captions, images)


@pytest.mark.filterwarnings("ignore:Validating sparse tensor invariants:UserWarning")
def test_weights_of_another_kind(folders, tmp_path, captions, images):
    folder = shutil.copytree(folders["local-dir"], tmp_path / "folder")
    path = folder / "open_clip_pytorch_model.bin"
    state = torch.load(path, weights_only=True)
    for change in (torch.Tensor.int, torch.Tensor.cfloat, torch.Tensor.to_sparse, lambda tensor: tensor.to("meta")):
        torch.save({**state, "visual.proj": change(state["visual.proj"])}, path)
        assert "does not fit the architecture" in sentence_of("local-dir", folder, captions, images)
    torch.save({**state, 7: torch.ones(1)}, path)
    assert "does not hold a state dict" in sentence_of("local-dir", folder, captions, images)
