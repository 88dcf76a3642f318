"""ruCLIP: OpenAI's CLIP architecture trained on Russian captions, with a YouTokenToMe tokenizer."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import torch
from PIL import Image
from pydantic import Field
from torch import Tensor

from clip_geometry.encoders import hub
from clip_geometry.encoders.base import EncoderConfig, EncoderEntry, encoders
from clip_geometry.encoders.hf import WEIGHTS, one_sentence, revision_of
from clip_geometry.encoders.open_clip import Layers, Mean, OpenClipEncoder, Size, StandardDeviation
from clip_geometry.encoders.runtime import DTYPES, bounded, quiet_logging, seeded
from clip_geometry.files import sha256_of
from clip_geometry.io.reading import Schema, damaged, read_json, read_text
from clip_geometry.paths import existing_file
from clip_geometry.registry import shown

EXPECTED = "the config of a ruCLIP model"
TOKENIZER = "a tokenizer file of YouTokenToMe"

# ids that ruCLIP's processor adds; its model reads the text features at the position of EOS
PAD, BOS, EOS = 0, 2, 3
WORD_START = "▁"
SEPARATORS = re.compile(f"[ \t\n\v\f\r{WORD_START}]+")  # as in YouTokenToMe: other Unicode spaces do not separate
UNKNOWN = " "  # name of the unknown token in the vocabulary; no piece of a word contains a space
LONGEST = 1000  # characters per token, because a few damaged rules could make a token that fills the memory


# --- tokenizer


def read_bpe(path: Path) -> Any:
    """Read a YouTokenToMe file as a BPE model of `tokenizers`.

    The file holds whole numbers: the numbers of characters and rules; (code point, token) of each character; (left
    token, right token, merged token) of each rule, by priority; and the tokens of unknown, padding, start and end.
    """
    from tokenizers import models

    try:
        characters, rules, *numbers = map(int, read_text(path, TOKENIZER).split())
        if min(characters, rules) < 0 or len(numbers) != 2 * characters + 3 * rules + 4:
            raise ValueError(f"{len(numbers)} numbers for {characters} characters and {rules} rules")
        codes = numbers[: 2 * characters]
        pairs = numbers[2 * characters : -4]
        unknown = numbers[-4]
        tokens = {token: chr(code) for code, token in zip(codes[::2], codes[1::2], strict=True)}
        merges = []
        for left, right, merged in zip(pairs[::3], pairs[1::3], pairs[2::3], strict=True):
            merges.append((tokens[left], tokens[right]))
            tokens[merged] = tokens[left] + tokens[right]
            if len(tokens[merged]) > LONGEST:
                raise ValueError(f"token {merged} has more than {LONGEST} characters")
        vocabulary = {text: token for token, text in tokens.items()}
        if len(vocabulary) < characters + rules or tokens.keys() & {unknown, PAD, BOS, EOS}:
            raise ValueError("two tokens have the same number or the same text")
        if WORD_START not in vocabulary:
            raise ValueError(f"it has no token for {WORD_START}, the start of a word")
        # fuse_unk: a run of unknown characters is one token
        return models.BPE(vocabulary | {UNKNOWN: unknown}, merges, unk_token=UNKNOWN, fuse_unk=True)
    except (KeyError, OverflowError, TypeError, ValueError) as error:
        why = f"no token {error}" if isinstance(error, KeyError) else error
        raise damaged(path, "YouTokenToMe", why) from None


@dataclass(frozen=True)
class RuClipTokenizer:
    """ruCLIP's text processing with the interface of open_clip's SimpleTokenizer."""

    bpe: Any
    context_length: int

    def encode(self, text: str) -> list[int]:
        words = [WORD_START + word for word in SEPARATORS.split(text.lower()) if word]
        return [token.id for word in words for token in self.bpe.tokenize(word)]

    def __call__(self, texts: Sequence[str]) -> Tensor:
        rows = torch.full((len(texts), self.context_length), PAD)
        for row, text in zip(rows, texts, strict=True):
            ids = [BOS, *self.encode(text)[: self.context_length - 2], EOS]
            row[: len(ids)] = torch.tensor(ids)
        return rows


# --- files


class RuClipConfig(EncoderConfig):
    """ruclip:ORG/NAME or PATH: ruCLIP, a CLIP of Russian texts, from the hub or a folder."""


class _RuclipSettings(Schema):
    """Schema of config.json. A missing mean or std is OpenAI's, as in ruCLIP's processor and open_clip."""

    embed_dim: Size
    image_resolution: Annotated[int, Field(ge=1, le=2**14)]
    vision_layers: Layers
    vision_width: Size
    vision_patch_size: Size
    context_length: Annotated[int, Field(ge=3, le=2**17)]
    vocab_size: Size
    transformer_width: Size
    transformer_heads: Size
    transformer_layers: Layers
    mean: Mean | None = None
    std: StandardDeviation | None = None


def _settings(folder: Path) -> _RuclipSettings:
    return read_json(folder / "config.json", EXPECTED, _RuclipSettings)


def find(config: RuClipConfig) -> tuple[Path, Path]:
    """Return (folder with config.json and bpe.model, weights file), downloaded if necessary."""
    folder = hub.folder(config.name, hub.TOKENIZER_FILES)
    _settings(folder)
    existing_file(folder / "bpe.model", TOKENIZER)
    return folder, hub.first_file(config.name, WEIGHTS)


def revision(config: RuClipConfig) -> str:
    """Return the revision of the files."""
    return revision_of(*find(config))


# --- model


@dataclass(frozen=True)
class SquareCrop:
    """Crops an image to its central square and resizes it.

    This is equivalent to ruCLIP's processor, which uses torchvision's bilinear RandomResizedCrop with scale and ratio
    fixed at 1. If width and height differ by one pixel, that processor chooses at random between two squares; this
    class always takes the first.

    Args:
        size: Height and width of the result in pixels.
    """

    size: tuple[int, int]

    def __call__(self, image: Image.Image) -> Image.Image:
        side = min(image.size)
        left, top = (image.width - side) // 2, (image.height - side) // 2
        return image.crop((left, top, left + side, top + side)).resize(self.size, Image.Resampling.BILINEAR)


def load(config: RuClipConfig, device: torch.device) -> OpenClipEncoder:
    """Load ruCLIP as an open_clip model."""
    import open_clip
    from open_clip.transform import PreprocessCfg, image_transform_v2
    from torchvision.transforms import Compose

    folder, path = find(config)
    settings = _settings(folder)
    architecture = {
        "embed_dim": settings.embed_dim,
        "vision_cfg": {
            "image_size": settings.image_resolution,
            "layers": settings.vision_layers,
            "width": settings.vision_width,
            "patch_size": settings.vision_patch_size,
        },
        "text_cfg": {
            "context_length": settings.context_length,
            "vocab_size": settings.vocab_size,
            "width": settings.transformer_width,
            "heads": settings.transformer_heads,
            "layers": settings.transformer_layers,
            "pool_type": "eos",  # not the highest token, which is the end token only in OpenAI's vocabulary
            "eos_id": EOS,
        },
        "quick_gelu": True,
    }

    def build() -> Any:
        return open_clip.CLIP(**architecture, cast_dtype=open_clip.get_cast_dtype(config.precision))

    with quiet_logging(), one_sentence(f"{shown(folder / 'config.json')} does not describe a model that can be built"):
        with torch.device("meta"), bounded(config.model):
            build()
        with seeded():
            model = build()
    hub.load_state_dict(model, hub.read_state_dict(path), str(path))
    if config.precision != "fp32":
        open_clip.convert_weights_to_lp(model, DTYPES[config.precision])
    side = settings.image_resolution
    pixels = PreprocessCfg(side, **settings.model_dump(include={"mean", "std"}, exclude_none=True))
    usual: Any = image_transform_v2(pixels, is_train=False)
    transform = Compose([SquareCrop((side, side)), *usual.transforms[-3:]])
    return OpenClipEncoder(
        config,
        model.eval().to(device),
        transform,
        RuClipTokenizer(read_bpe(folder / "bpe.model"), settings.context_length),
        architecture,
        {"name": path.name, "sha256": sha256_of(path)},
    )


encoders.add("ruclip", EncoderEntry(RuClipConfig, load, revision, hub.local_check(find)))
