"""The student, and the folder it is saved to, in the current layout of Multilingual-CLIP."""

import json
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from clip_geometry.encoders.hf import WEIGHTS, drop_pooler, load_tokenizer, read_settings
from clip_geometry.encoders.hf.text import mean_pooling
from clip_geometry.experiments.kit.clip_training import copy_tokenizer, save_half
from clip_geometry.experiments.teach_text.config import StudentConfig
from clip_geometry.files import write_atomically


class Student(nn.Module):
    """A transformer, the mean over its tokens, one linear layer; parameters are named as in Multilingual-CLIP."""

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
    """Config and tokenizer of a tower with `numbers` columns, without weights. base/config.json describes the
    transformer in full, so that no model of the hub is needed."""
    from transformers import BertConfig

    copy_tokenizer(folder)
    tokenizer = load_tokenizer(folder)
    transformer = BertConfig(
        vocab_size=len(tokenizer),
        hidden_size=config.width,
        num_hidden_layers=config.layers,
        num_attention_heads=config.heads,
        intermediate_size=config.hidden,
        max_position_embeddings=tokenizer.model_max_length,
        type_vocab_size=1,
        pad_token_id=tokenizer.pad_token_id,
        hidden_dropout_prob=0.0,  # every step has new texts, and so needs none
        attention_probs_dropout_prob=0.0,
    )
    settings = {
        "model_type": "M-CLIP",
        "modelBase": "base",
        "transformerDimensions": config.width,
        "numDims": numbers,
        "image_model": image_model,
    }
    (folder / "base").mkdir(exist_ok=True)
    base = {"architectures": ["BertModel"], **transformer.to_dict()}
    for path, values in ((folder / "base" / "config.json", base), (folder / "config.json", settings)):
        write_atomically(path, (json.dumps(values, indent=2, sort_keys=True) + "\n").encode())
    return folder


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
    """Saves the weights in float16 beside their config, so that `mclip:FOLDER` is the trained tower."""
    return save_half(student, folder / WEIGHTS[0])
