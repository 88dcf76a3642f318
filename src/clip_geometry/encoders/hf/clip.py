"""Hugging Face transformers' CLIPModel with its image processor, by hub name or folder."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import torch
from PIL import Image
from pydantic import BaseModel, Field, FiniteFloat
from torch import Tensor

from clip_geometry.data.images import rgb
from clip_geometry.encoders import hf, hub
from clip_geometry.encoders.base import Encoder, EncoderConfig, EncoderEntry, Tokens, encoders
from clip_geometry.encoders.open_clip import Mean, Sides, StandardDeviation
from clip_geometry.encoders.runtime import DTYPES, inference
from clip_geometry.io.reading import read_json
from clip_geometry.registry import InputError, shown


class HFClipConfig(hf.HFConfig):
    """hf-clip:ORG/NAME or PATH: transformers' CLIPModel and processor; fresh=true: initialized."""


class ProcessorFields(BaseModel):
    """The fields of preprocessor_config.json that could exhaust memory or give NaN."""

    size: Sides = None
    crop_size: Sides = None
    image_mean: Mean | None = None
    image_std: StandardDeviation | None = None
    rescale_factor: Annotated[FiniteFloat, Field(ge=-1000, le=1000)] | None = None


class _Processor(BaseModel):
    """The content of processor_config.json, in which transformers 5 saves the image processor of a CLIPProcessor."""

    image_processor: ProcessorFields | None = None


SETTINGS = {"preprocessor_config.json": ProcessorFields, "processor_config.json": _Processor}


def find(config: HFClipConfig) -> tuple[Path, Path | None]:
    """Return (folder with config, tokenizer and image processor, weights file); a fresh model has None as weights."""
    folder = hub.folder(config.name, hub.TOKENIZER_FILES)
    kind = hf.read_config(folder, "a CLIP model in transformers' layout").get("model_type")
    if kind != "clip":
        raise InputError(
            f"{shown(folder)} holds a model of type {shown(kind)}, but hf-clip: loads only 'clip' models; cg.embed "
            "also takes a SentenceTransformer, which may load others"
        )
    return folder, hf.weights_of(config)


def revision(config: HFClipConfig) -> str:
    return hf.revision_of(*find(config))


def load(config: HFClipConfig, device: torch.device) -> "HFClipEncoder":
    from transformers import CLIPModel

    folder, weights = find(config)
    model, facts = hf.build(CLIPModel, folder, weights, config)
    return HFClipEncoder(config, device, model, image_processor(folder, model), hf.load_tokenizer(folder), facts)


def image_processor(folder: Path, model: Any) -> Any:
    """Load the folder's image processor; its output must fit the CLIPModel."""
    from transformers import AutoImageProcessor

    for name in [name for name in SETTINGS if (folder / name).exists()] or SETTINGS:
        read_json(folder / name, "the config of an image processor", SETTINGS[name])
    with hf.one_sentence(f"{shown(folder)} has no image processor that transformers can load"):
        processor = AutoImageProcessor.from_pretrained(str(folder), trust_remote_code=False)
        pixels = processor(images=Image.new("RGB", (50, 40)), return_tensors="pt")["pixel_values"]
        shape = tuple(pixels.shape[1:])
    expected = (3, model.config.vision_config.image_size, model.config.vision_config.image_size)
    if shape != expected:
        raise InputError(
            f"the image processor in {shown(folder)} gives pixels of shape {shape}, but the model takes {expected}; "
            "the folder holds files of two models"
        )
    return processor


@dataclass(eq=False)
class HFClipEncoder(Encoder):
    """transformers' CLIPModel in eval mode with its own image processor and tokenizer."""

    modalities = frozenset({"image", "text"})

    config: EncoderConfig
    device: torch.device
    model: Any
    processor: Any
    tokenizer: Any
    weights: Mapping[str, Any]

    def __post_init__(self) -> None:
        self.model = self.model.to(self.device, DTYPES[self.config.precision]).eval()
        self.context_length = self.model.config.text_config.max_position_embeddings

    def preprocess(self, image: Image.Image) -> Tensor:
        return self.processor(images=rgb(image), return_tensors="pt")["pixel_values"][0]

    def tokenize(self, texts: Sequence[str]) -> Tokens:
        return hf.tokenize(self.tokenizer, texts, self.context_length, padding="max_length")

    def image_features(self, pixels: Tensor) -> Tensor:
        pixels = pixels.to(self.device, DTYPES[self.config.precision])
        return self._features(self.model.vision_model, self.model.get_image_features, {"pixel_values": pixels})

    def text_features(self, tokens: Tokens) -> Tensor:
        hf.check_ids(tokens.inputs["input_ids"], self.model.text_model.get_input_embeddings(), self.config.model)
        inputs = {name: value.to(self.device) for name, value in tokens.inputs.items()}
        return self._features(self.model.text_model, self.model.get_text_features, inputs)

    def _features(self, tower: Any, project: Any, inputs: Mapping[str, Tensor]) -> Tensor:
        """Return projected or pooled features, as the config requests, as float32 rows on the CPU."""
        with inference():
            rows = hf.apply(project if self.config.features == "projected" else tower, self.config.model, inputs)
        if not isinstance(rows, Tensor):  # transformers 5 returns an output object even for projected features
            rows = rows.pooler_output
        return rows.float().cpu()

    def dim(self) -> Mapping[str, int]:
        config = self.model.config
        if self.config.features == "projected":
            return {"image": config.projection_dim, "text": config.projection_dim}
        return {"image": config.vision_config.hidden_size, "text": config.text_config.hidden_size}

    def describe(self) -> dict[str, Any]:
        towers = (self.model.config.vision_config, self.model.config.text_config)
        activation = ", ".join(sorted({tower.hidden_act for tower in towers}))
        processor = f"{type(self.processor).__name__}({self.processor.to_json_string()})"
        return super().describe() | {"activation": activation, "preprocessing": processor}


encoders.add("hf-clip", EncoderEntry(HFClipConfig, load, revision, hub.local_check(find)))
