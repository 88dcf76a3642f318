"""A model of the user's own program as an encoder: functions, modules, open_clip's models, sentence-transformers'."""

import hashlib
import inspect
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np
import torch
from PIL import Image
from pydantic import Field
from torch import Tensor, nn

from clip_geometry.config import digest
from clip_geometry.data.images import rgb
from clip_geometry.encoders.base import Encoder, EncoderConfig, Tokens
from clip_geometry.encoders.hf import token_counts
from clip_geometry.encoders.runtime import inference, model_facts
from clip_geometry.registry import InputError, printable, shown

PREPARES = {"image": "preprocess", "text": "tokenizer"}  # modality → the option that makes tensors of its lists
MODALITIES = tuple(PREPARES)
ACCEPTED = (
    "a function or module that takes a list of images or texts, {'image': f, 'text': g}, a model with encode_image and "
    "encode_text, or a SentenceTransformer"
)
PRECISIONS: Mapping[Any, Any] = {torch.bfloat16: "bf16", torch.float16: "fp16"}


class OwnConfig(EncoderConfig):
    """own:NAME, a model of the user's own program. revision: identifies what it computes; "" if no store needs it."""

    revision: str = Field(default="", exclude=True)  # the recipe of a store has it beside the config


def own_encoder(
    model: Any,
    modalities: Sequence[str],
    *,
    name: str | None = None,
    revision: str | None = None,
    preprocess: Callable[[Image.Image], Tensor] | None = None,
    tokenizer: Callable[[list[str]], Any] | None = None,
    keyed: bool = True,
) -> "OwnEncoder":
    """The encoder of a model. modalities: those of the data. keyed: whether a store needs to identify the model.

    Other arguments are those of `embed`. Raises InputError where the model is none of ACCEPTED, lacks what its
    modalities need, or cannot be identified.
    """
    for option, value in (("name", name), ("revision", revision)):
        if not isinstance(value, str | int | None) or value == "":
            raise InputError(f"{option} is {shown(value)}; a text was expected")
    if isinstance(model, Mapping | nn.ModuleDict):
        if not len(model) or not set(model) <= set(MODALITIES):
            raise InputError(f"the model has the parts {shown(list(model))}; expected 'image', 'text' or both")
        model = {modality: model[modality] for modality in MODALITIES if modality in model}
    parts = list(model.values()) if isinstance(model, dict) else [model]
    for part in parts:
        _require_callable(part)
    towers = _towers(model, modalities, {"image": preprocess, "text": tokenizer})
    name = "+".join(dict.fromkeys(map(_name, parts))) if name is None else str(name)
    if "<lambda>" in name:
        if keyed:
            raise InputError("the model is a lambda, which has no name; give name=… and, as it changes, revision=…")
        name = "lambda"
    if revision is None and keyed:
        revision = _revision(parts, name, preprocess, tokenizer)
    modules = [each for part in parts if (each := _module(part)) is not None]
    kinds = filter(None, map(_dtype, modules))
    config = OwnConfig(
        model=f"own:{printable(name)[:200]}",
        revision=str(revision or ""),
        precision=PRECISIONS.get(next(kinds, None), "fp32"),
    )
    return OwnEncoder(config, towers, modules, preprocess, tokenizer, model)


# --- what the model is


def _towers(model: Any, modalities: Sequence[str], prepares: Mapping[str, Any]) -> Mapping[str, Any]:
    """Modality → what is called with lists, or with what its preprocess or tokenizer makes of them."""
    if isinstance(model, dict):
        return {modality: _function(each) for modality, each in model.items()}
    if _is_sentence_transformer(model):
        if any(option is not None for option in prepares.values()):
            raise InputError("a SentenceTransformer takes images and texts itself; leave out preprocess and tokenizer")
        return {each: _function(model) for each in MODALITIES if each in getattr(model, "modalities", ["text"])}
    if not (hasattr(model, "encode_image") or hasattr(model, "encode_text")):
        # whoever prepares one modality has a model of that
        prepared = [modality for modality, option in prepares.items() if option is not None]
        return dict.fromkeys(prepared or MODALITIES, model)
    found = {}
    for modality in modalities:
        encode, option = getattr(model, f"encode_{modality}", None), PREPARES[modality]
        if encode is None:
            continue
        if not callable(prepares[modality]):
            raise InputError(
                f"{type(model).__name__}.encode_{modality} takes what a {option} gives; give {option}= the model's "
                "own, as open_clip.create_model_and_transforms and open_clip.get_tokenizer return them"
            )
        raw = "normalize" in inspect.signature(encode).parameters  # CoCa's normalize by default
        found[modality] = partial(encode, normalize=False) if raw else encode
    return found


def _require_callable(part: Any) -> None:
    encodes = hasattr(part, "encode_image") or hasattr(part, "encode_text")
    if type(part).__module__.startswith("transformers.") and not encodes:
        raise InputError(
            f"{type(part).__name__} of transformers is called with keywords, not with a list; give functions of lists, "
            "{'image': f, 'text': g}, or the name of its folder, hf-clip:PATH or hf-text:PATH"
        )
    if not callable(part) and not encodes:
        raise InputError(f"the model is {shown(part)}; expected {ACCEPTED}, or the config or name of a model")


def _is_sentence_transformer(model: Any) -> bool:
    return hasattr(model, "encode") and any(
        kind.__module__.startswith("sentence_transformers.") for kind in type(model).__mro__
    )


def _function(model: Any) -> Callable[[Any], Any]:
    if _is_sentence_transformer(model):
        return lambda batch: model.encode(
            batch, batch_size=len(batch), convert_to_tensor=True, show_progress_bar=False, normalize_embeddings=False
        )
    return model


def _inner(part: Any) -> Any:
    while isinstance(part, partial):
        part = part.func
    return part


def _module(part: Any) -> nn.Module | None:
    """The module that a part is, or whose method it is."""
    part = _inner(part)
    owner = getattr(part, "__self__", part)
    return owner if isinstance(owner, nn.Module) else None


def _dtype(module: nn.Module) -> torch.dtype | None:
    """What a module computes in: the dtype of its first linear or convolutional layer. OpenAI's CLIP and open_clip keep
    other parameters, the first ones among them, in float32."""
    weights = (getattr(each, "weight", None) for each in module.modules() if not isinstance(each, nn.Embedding))
    return next((w.dtype for w in weights if isinstance(w, Tensor) and w.ndim > 1 and w.is_floating_point()), None)


def _name(part: Any) -> str:
    part = _inner(part)
    return type(part).__name__ if isinstance(part, nn.Module) else getattr(part, "__qualname__", type(part).__name__)


def _revision(parts: Sequence[Any], name: str, preprocess: Any, tokenizer: Any) -> str:
    """A hash of the weights and of how the modules, the preprocessing and the tokenizer describe themselves."""
    found = []
    for part in parts:
        module = _module(part)
        if module is None or isinstance(part, partial):
            raise InputError(
                f"the model {shown(name)} is no torch module whose weights identify it; give revision=…, a text that "
                "changes whenever its rows do, or no folder"
            )
        found.append([_name(part), _described(module), _weights(module)])
        if _is_sentence_transformer(module):
            names = ("prompts", "default_prompt_name", "max_seq_length", "truncate_dim")
            found.append([str(getattr(module, each, None)) for each in names])
    facts = {key: str(getattr(tokenizer, key, None)) for key in ("context_length", "vocab_size")}
    kinds = [None if each is None else type(each).__qualname__ for each in (preprocess, tokenizer)]
    return digest([found, kinds, None if preprocess is None else _described(preprocess), facts])


def _described(thing: Any) -> str:
    return re.sub(r" at 0x[0-9a-fA-F]+", "", repr(thing))


def _weights(module: nn.Module) -> str:
    """SHA-256 of all parameters and buffers."""
    found = hashlib.sha256()
    for key, value in sorted(module.state_dict().items()):
        if isinstance(value, Tensor):
            found.update(f"{key} {value.dtype} {tuple(value.shape)}\n".encode())
            try:
                content = value.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy()
            except (RuntimeError, NotImplementedError, TypeError):  # on the meta device, sparse, quantized
                raise InputError(f"the weights {shown(key)} of the model cannot be read; give revision=…") from None
            found.update(content.data)
    return found.hexdigest()


# --- the encoder


class OwnEncoder(Encoder):
    """A model of the user's own program, where it is and as it is; modules are in eval mode while it is `evaluating`.

    Without `preprocess` the model takes lists of RGB images, without `tokenizer` lists of texts.
    """

    def __init__(
        self,
        config: OwnConfig,
        towers: Mapping[str, Callable[[Any], Any]],
        modules: Sequence[nn.Module],
        preprocess: Callable[[Image.Image], Tensor] | None,
        tokenizer: Callable[[list[str]], Any] | None,
        model: Any,
    ):
        self.config = config
        self.towers = towers
        self.modules = modules
        self.modalities = frozenset(towers)
        self.model = model
        self.takes_images = preprocess is None
        self._preprocess, self._tokenizer = preprocess, tokenizer
        tensors = (value for module in modules for value in (*module.parameters(), *module.buffers()))
        self.device = next((value.device for value in tensors), torch.device("cpu"))
        modules_of = {modality: _module(tower) for modality, tower in towers.items()}
        self._dtypes = {modality: module and _dtype(module) for modality, module in modules_of.items()}
        self._dim: dict[str, int] = {}
        self._revision = config.revision

    @contextmanager
    def evaluating(self) -> Iterator[None]:
        """Modules in eval mode; afterwards each is in the mode that it was in."""
        before = {each: each.training for module in self.modules for each in module.modules()}
        for module in self.modules:
            module.eval()
        try:
            yield
        finally:
            for each, training in before.items():
                each.training = training

    def preprocess(self, image: Image.Image) -> Tensor:
        assert self._preprocess is not None
        pixels = self._preprocess(rgb(image))
        if not isinstance(pixels, Tensor):
            raise InputError(f"preprocess gave {type(pixels).__name__} for an image; a tensor was expected")
        return pixels.float() if pixels.dtype == torch.bfloat16 else pixels  # numpy, which holds batches, has none

    def tokenize(self, texts: Sequence[str]) -> Tokens:
        given = list(texts)
        inputs = given if self._tokenizer is None else self._tokenizer(given)
        return Tokens((inputs, len(given)), self._truncated(given, inputs))

    def _truncated(self, texts: list[str], inputs: Any) -> int:
        """Number of texts that did not fit; 0 for the models that do not say."""
        tokenizer: Any = self._tokenizer
        if type(tokenizer).__module__.startswith("open_clip."):
            from clip_geometry.encoders.open_clip import count_truncated

            return count_truncated(tokenizer, texts, inputs, tokenizer.context_length)
        model: Any = self.model.get("text") if isinstance(self.model, dict) else self.model
        most = model.max_seq_length if _is_sentence_transformer(model) else None
        if most is None:
            return 0
        long = [text for text in texts if len(text) + 2 > most]
        return sum(count > most for count in token_counts(model.tokenizer, long, 10**6)) if long else 0

    def image_features(self, pixels: Any) -> Tensor:
        return self._rows("image", pixels if self.takes_images else self._placed("image", pixels), len(pixels))

    def text_features(self, tokens: Tokens) -> Tensor:
        inputs, count = tokens.inputs
        return self._rows("text", self._placed("text", inputs) if hasattr(inputs, "to") else inputs, count)

    def _placed(self, modality: str, inputs: Any) -> Any:
        """The inputs on the device of the model, floating-point tensors in the precision of its weights."""
        placed, dtype = inputs.to(self.device), self._dtypes[modality]
        return placed.to(dtype) if dtype and isinstance(placed, Tensor) and placed.is_floating_point() else placed

    def _rows(self, modality: str, batch: Any, count: int) -> Tensor:
        try:
            with inference():
                rows = self.towers[modality](batch)
        except Exception as error:
            what = f"a list of {count} ({modality})" if isinstance(batch, list) else f"a batch of {count} ({modality})"
            error.add_note(f"{self.config.model} was called with {what}; preprocess= and tokenizer= make tensors of it")
            raise
        if isinstance(rows, list | tuple) and rows and all(isinstance(row, Tensor | np.ndarray) for row in rows):
            rows = torch.stack([torch.as_tensor(row) for row in rows])
        given = torch.as_tensor(rows) if isinstance(rows, Tensor | np.ndarray) else None
        shape = () if given is None else tuple(given.shape)
        if given is None or len(shape) != 2 or shape[0] != count or not shape[1] or not given.is_floating_point():
            what = type(rows).__name__ if given is None else f"{given.dtype} of shape {shape}"
            raise InputError(
                f"the model {shown(self.config.model)} gave {what} for a list of {count} ({modality}); a tensor or "
                f"array ({count}, d) of floating-point numbers was expected"
            )
        if self._dim.setdefault(modality, given.shape[1]) != given.shape[1]:
            raise InputError(
                f"the model {shown(self.config.model)} gave {given.shape[1]} columns for some {modality}s and "
                f"{self._dim[modality]} for others"
            )
        return given.float().cpu()

    def describe(self) -> Mapping[str, Any]:
        scale, bias = (getattr(self.model, name, None) for name in ("logit_scale", "logit_bias"))
        return model_facts(
            nn.ModuleList(self.modules),
            {"name": self.config.name, "revision": self._revision},
            {modality: self._dim.get(modality) for modality in sorted(self.modalities)},
            preprocessing=None if self._preprocess is None else _described(self._preprocess),
            tokenizer=None if self._tokenizer is None else type(self._tokenizer).__name__,
            context_length=getattr(self._tokenizer, "context_length", None),
            logit_scale=scale.exp().item() if isinstance(scale, Tensor) and scale.numel() == 1 else None,
            logit_bias=bias.item() if isinstance(bias, Tensor) and bias.numel() == 1 else None,
        )
