"""What every exported model folder has: a tokenizer, JSON files, and the check that its rows are the source's."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from clip_geometry.reading import read_json
from clip_geometry.registry import InputError

TEXTS = (
    "a red circle",
    " Two  blue\nsquares (and one STAR!), it's 12:30. ",
    "über кот 猫 😀",
    "long " * 600,
)  # compared
TOLERANCE = 1e-4  # of the largest row; float32 through a tower of 24 layers is off by about 1e-5


@dataclass(frozen=True)
class Exported:
    """What was written, for the model card.

    Args:
        kind: Class of transformers that loads the folder.
        differences: What was compared → the largest difference to the source's rows, relative to the longest of them.
        modalities: That it embeds.
        logit_bias: Of the source, which the class has no place for; None where the source has none.
    """

    kind: str
    differences: Mapping[str, float]
    modalities: tuple[str, ...]
    logit_bias: float | None = None


def difference(ours: Tensor, theirs: Tensor) -> float:
    """The largest distance of two rows of the same input, relative to the longest row."""
    return float((ours - theirs).norm(dim=-1).max() / ours.norm(dim=-1).max())


def require_same(found: Mapping[str, float], name: str, kind: str) -> None:
    for what, value in found.items():
        if not value < TOLERANCE:
            raise InputError(
                f"{name} has options that {kind} of transformers cannot express: rows of {what} would differ by "
                f"{value:.2g} of their length"
            )


def write_json(path: Path, values: Any) -> None:
    path.write_text(json.dumps(values, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def tidy(tokenizer: Any) -> None:
    """Let a tokenizer join runs of blanks itself, as open_clip does before it calls it."""
    from tokenizers import Regex
    from tokenizers.normalizers import Replace, Sequence, Strip

    inner = tokenizer.backend_tokenizer
    before = [] if inner.normalizer is None else [inner.normalizer]
    inner.normalizer = Sequence([Replace(Regex(r"\s+"), " "), Strip(), *before])


def save_tokenizer(tokenizer: Any, folder: Path, length: int) -> None:
    """Save a tokenizer that truncates to `length` tokens."""
    tokenizer.model_max_length = length
    tokenizer.save_pretrained(folder)
    path = folder / "tokenizer_config.json"
    settings = read_json(path, "the config of a tokenizer", dict[str, Any])
    if settings.get("tokenizer_class") == "TokenizersBackend":  # a name that transformers 4 does not know
        settings["tokenizer_class"] = "PreTrainedTokenizerFast"
    write_json(path, {key: value for key, value in settings.items() if key not in ("is_local", "local_files_only")})


def save_modules(folder: Path, modules: Mapping[str, Mapping[str, Any]]) -> None:
    """Save the files by which sentence-transformers finds the modules of a folder, the first one in the folder itself.

    Args:
        folder: With the transformer.
        modules: Class → settings, in the order in which they are applied.
    """
    entries = []
    for number, (kind, settings) in enumerate(modules.items()):
        place = f"{number}_{kind}" if number else ""
        (folder / place).mkdir(exist_ok=True)
        name = "config.json" if number else "sentence_bert_config.json"
        write_json(folder / place / name, settings)
        entries.append(
            {"idx": number, "name": str(number), "path": place, "type": f"sentence_transformers.models.{kind}"}
        )
    write_json(folder / "modules.json", entries)
    write_json(
        folder / "config_sentence_transformers.json",
        {"model_type": "SentenceTransformer", "similarity_fn_name": "cosine"},
    )
