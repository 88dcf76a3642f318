"""The student, and the folder that it is saved to, in the current layout of Multilingual-CLIP."""

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from clip_geometry.encoders.hf.loading import WEIGHTS, drop_pooler, load_tokenizer, read_settings
from clip_geometry.encoders.open_clip.source import scenes_folder
from clip_geometry.encoders.text_encoder import mean_pooling
from clip_geometry.experiments.teach_text.config import StudentConfig
from clip_geometry.experiments.train_clip.model import TOKENIZER
from clip_geometry.files import write_atomically


class Student(nn.Module):
    """A transformer, the mean over its tokens, one linear layer; its parameters have Multilingual-CLIP's names."""

    def __init__(self, transformer: Any, numbers: int):
        super().__init__()
        self.transformer = transformer
        self.LinearTransformation = nn.Linear(transformer.config.hidden_size, numbers)

    def forward(self, tokens: Tensor) -> Tensor:
        """(n, t) with padding behind → (n, d)."""
        tokens = tokens[:, : int(self.lengths(tokens).max())]
        mask = (tokens != self.transformer.config.pad_token_id).long()
        hidden = self.transformer(input_ids=tokens, attention_mask=mask).last_hidden_state
        return self.LinearTransformation(mean_pooling(hidden, mask))

    def lengths(self, tokens: Tensor) -> Tensor:
        return (tokens != self.transformer.config.pad_token_id).sum(1)


def make_folder(folder: Path, config: StudentConfig, numbers: int, image_model: str) -> Path:
    """Config and tokenizer of a tower that gives `numbers` columns; without weights, and without base/config.json's
    being a model of the hub: it is described there in full."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in TOKENIZER:
        shutil.copyfile(scenes_folder() / name, folder / name)
    base = {"architectures": ["BertModel"], **_base(config, load_tokenizer(folder)).to_dict()}
    settings = {
        "model_type": "M-CLIP",
        "modelBase": "base",
        "transformerDimensions": config.width,
        "numDims": numbers,
        "image_model": image_model,
    }
    _write(folder / "base" / "config.json", base)
    _write(folder / "config.json", settings)
    return folder


def _base(config: StudentConfig, tokenizer: Any) -> Any:
    from transformers import BertConfig

    return BertConfig(
        vocab_size=len(tokenizer),
        hidden_size=config.width,
        num_hidden_layers=config.layers,
        num_attention_heads=config.heads,
        intermediate_size=config.hidden,
        max_position_embeddings=tokenizer.model_max_length,
        type_vocab_size=1,
        pad_token_id=tokenizer.pad_token_id,
        hidden_dropout_prob=0.0,  # the texts are drawn anew in every step; and a step depends on nothing else
        attention_probs_dropout_prob=0.0,
    )


def _write(path: Path, values: Mapping[str, Any]) -> None:
    path.parent.mkdir(exist_ok=True)
    write_atomically(path, (json.dumps(values, indent=2, sort_keys=True) + "\n").encode())


def fresh_student(folder: Path, numbers: int, seed: int) -> Student:
    """With first weights, on the CPU, so that they do not depend on a GPU."""
    from transformers import AutoModel

    config = read_settings(folder / "base", str(folder))
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        transformer = AutoModel.from_config(config, trust_remote_code=False)
        drop_pooler(transformer)
        return Student(transformer, numbers)


def save_student(student: Student, folder: Path) -> Path:
    """The weights in float16 beside their config: then `mclip:FOLDER` is the trained tower."""
    from safetensors.torch import save

    half = {name: value.detach().cpu().half().contiguous() for name, value in student.state_dict().items()}
    path = folder / WEIGHTS[0]
    write_atomically(path, save(half))
    return path
