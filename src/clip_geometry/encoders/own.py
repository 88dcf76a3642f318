"""The user's own model as an encoder: a function, a torch module, or a model of open_clip or sentence-transformers."""

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
from clip_geometry.encoders.base import Encoder, EncoderConfig, Tokens
from clip_geometry.encoders.hf import token_counts
from clip_geometry.encoders.runtime import inference
from clip_geometry.registry import InputError, printable, shown

PREPARES = {"image": "preprocess", "text": "tokenizer"}  # modality → the option that converts its lists to tensors
ACCEPTED = "a function or module of lists, {'image': f, 'text': g}, a model with encode_image, or a SentenceTransformer"
PRECISIONS: Mapping[Any, Any] = {torch.bfloat16: "bf16", torch.float16: "fp16"}


class OwnConfig(EncoderConfig):
    """The config own:NAME of the user's own model.

    Attributes:
        revision: Identifies what the model computes; "" if no store needs it.
    """

    revision: str = Field(default="", exclude=True)  # the recipe of a store has it separately from the config


class OwnEncoder(Encoder):
    """The user's own model, neither moved nor changed; its modules are in eval mode within `evaluating`.

    Without `preprocess`, the model takes lists of RGB images; without `tokenizer`, it takes lists of texts.

    Args:
        model: The model, as for `embed`, like the options that are not listed here.
        modalities: The modalities of the data.
        keyed: Whether a store needs to identify the model.

    Raises:
        InputError: The model is not one of ACCEPTED, lacks an option that its modalities need, or cannot be identified.
    """

    def __init__(
        self,
        model: Any,
        modalities: Sequence[str],
        *,
        name: str | None = None,
        revision: str | None = None,
        preprocess: Callable[[Image.Image], Tensor] | None = None,
        tokenizer: Callable[[list[str]], Any] | None = None,
        keyed: bool = True,
    ):
        if isinstance(model, Mapping | nn.ModuleDict):
            if not len(model) or not set(model) <= set(PREPARES):
                raise InputError(f"the model has the parts {shown(list(model))}; expected 'image', 'text' or both")
            model = {modality: model[modality] for modality in PREPARES if modality in model}
        parts = list(model.values()) if isinstance(model, dict) else [model]
        for part in parts:
            if not callable(part) and not _encodes(part):
                raise InputError(f"the model is {shown(part)}; expected {ACCEPTED}, or the config or name of a model")
        self.transform: Any = preprocess
        self.tokenizer = tokenizer
        self.takes_images = preprocess is None
        self.context_length = getattr(tokenizer, "context_length", None)
        self._user_model = model
        self._towers = self._functions(modalities)
        self.modalities = frozenset(self._towers)
        self._dtypes = {modality: _dtype(_module(tower)) for modality, tower in self._towers.items()}
        modules = nn.ModuleList([module for module in map(_module, parts) if module is not None])
        self.model = model if isinstance(model, nn.Module) else modules
        tensors = (*self.model.parameters(), *self.model.buffers())
        self.device = tensors[0].device if tensors else torch.device("cpu")
        self._dim: dict[str, int] = {}

        name = "+".join(dict.fromkeys(map(_name, parts))) if name is None else str(name)
        if revision is None and keyed:
            revision = self._identified(parts, name)
        revision = str(revision or "")
        precision = PRECISIONS.get(next(filter(None, map(_dtype, modules)), None), "fp32")
        self.config = OwnConfig(model=f"own:{printable(name)[:200]}", revision=revision, precision=precision)
        self.weights = {"name": self.config.name, "revision": revision}

    def _functions(self, modalities: Sequence[str]) -> dict[str, Any]:
        """Return modality → function, to be called with a list or with the output of preprocess or tokenizer."""
        model = self._user_model
        prepares = {"image": self.transform, "text": self.tokenizer}
        if isinstance(model, dict):
            return {modality: _function(part) for modality, part in model.items()}
        if _is_sentence_transformer(model):
            if any(prepares.values()):
                raise InputError("a SentenceTransformer takes images and texts; leave out preprocess and tokenizer")
            supported = getattr(model, "modalities", ["text"])
            return {modality: _function(model) for modality in PREPARES if modality in supported}
        if not _encodes(model):
            # if only one modality has preprocessing, the model embeds only this modality
            prepared = [modality for modality, option in prepares.items() if option is not None]
            return dict.fromkeys(prepared or PREPARES, model)
        functions = {}
        for modality in modalities:
            encode = getattr(model, f"encode_{modality}", None)
            if encode is None:
                continue
            if not callable(prepares[modality]):
                option = PREPARES[modality]
                raise InputError(
                    f"{type(model).__name__}.encode_{modality} takes the output of a {option}; give {option}= the "
                    "model's own, such as the one that open_clip returns"
                )
            normalizes = "normalize" in inspect.signature(encode).parameters  # by default, in CoCa
            functions[modality] = partial(encode, normalize=False) if normalizes else encode
        return functions

    def _identified(self, parts: Sequence[Any], name: str) -> str:
        """Return a hash of the weights and of the descriptions of the modules, the preprocessing and the tokenizer."""
        facts = []
        for part in parts:
            module = _module(part)
            if module is None or isinstance(part, partial):
                raise InputError(
                    f"the model {shown(name)} is not a torch module whose weights identify it; give revision=…, a text "
                    "that changes whenever its rows change, or no folder"
                )
            facts.append([_name(part), _repr_without_addresses(module), _weights_checksum(module)])
            if _is_sentence_transformer(module):  # its repr does not include these
                names = ("prompts", "default_prompt_name", "max_seq_length", "truncate_dim")
                facts.append([str(getattr(module, attribute, None)) for attribute in names])
        options = (self.transform, self.tokenizer)
        kinds = [None if option is None else type(option).__qualname__ for option in options]
        sizes = {key: str(getattr(self.tokenizer, key, None)) for key in ("context_length", "vocab_size")}
        transform = None if self.transform is None else _repr_without_addresses(self.transform)
        return digest([facts, kinds, transform, sizes])

    @contextmanager
    def evaluating(self) -> Iterator[None]:
        """Put the modules into eval mode; restore the mode of each of them at the end."""
        modes = {module: module.training for module in self.model.modules()}
        self.model.eval()
        try:
            yield
        finally:
            for module, training in modes.items():
                module.training = training

    def preprocess(self, image: Image.Image) -> Tensor:
        pixels = super().preprocess(image)
        if not isinstance(pixels, Tensor):
            raise InputError(f"preprocess returned {type(pixels).__name__} for an image; a tensor was expected")
        return pixels.float() if pixels.dtype == torch.bfloat16 else pixels  # batches are in NumPy, without bfloat16

    def tokenize(self, texts: Sequence[str]) -> Tokens:
        inputs = list(texts) if self.tokenizer is None else self.tokenizer(list(texts))
        return Tokens((inputs, len(texts)), self._truncated(list(texts), inputs))

    def _truncated(self, texts: list[str], inputs: Any) -> int:
        """Return the number of texts that did not fit; 0 for models that do not report it."""
        if type(self.tokenizer).__module__.startswith("open_clip."):
            from clip_geometry.encoders.open_clip import count_truncated

            return count_truncated(self.tokenizer, texts, inputs, self.tokenizer.context_length)
        model: Any = self._user_model.get("text") if isinstance(self._user_model, dict) else self._user_model
        limit = getattr(model, "max_seq_length", None)
        if not _is_sentence_transformer(model) or limit is None:
            return 0
        long = [text for text in texts if len(text) + 2 > limit]
        return sum(count > limit for count in token_counts(model.tokenizer, long, 10**6)) if long else 0

    def image_features(self, pixels: Any) -> Tensor:
        return self._rows("image", pixels, len(pixels))

    def text_features(self, tokens: Tokens) -> Tensor:
        return self._rows("text", *tokens.inputs)

    def _rows(self, modality: str, batch: Any, count: int) -> Tensor:
        """Call the user's model on a batch, and return its rows as a float32 matrix (count, d) on the CPU."""
        if hasattr(batch, "to"):  # move to the model's device and to the precision of its weights
            batch = batch.to(self.device)
            dtype = self._dtypes[modality]
            if dtype and isinstance(batch, Tensor) and batch.is_floating_point():
                batch = batch.to(dtype)
        try:
            with inference():
                rows = self._towers[modality](batch)
        except Exception as error:
            error.add_note(
                f"{self.config.model} was called with a batch of {count} ({modality}); preprocess= and tokenizer= "
                "convert lists to tensors"
            )
            raise
        if isinstance(rows, list | tuple) and rows and all(isinstance(row, Tensor | np.ndarray) for row in rows):
            rows = torch.stack([torch.as_tensor(row) for row in rows])
        tensor = torch.as_tensor(rows) if isinstance(rows, Tensor | np.ndarray) else torch.empty(0, dtype=torch.bool)
        name = shown(self.config.model)
        if tensor.ndim != 2 or len(tensor) != count or not tensor.numel() or not tensor.is_floating_point():
            kind = f"{tensor.dtype} of shape {tuple(tensor.shape)}" if hasattr(rows, "shape") else type(rows).__name__
            raise InputError(
                f"the model {name} returned {kind} for a list of {count} ({modality}); a tensor or array ({count}, d) "
                "of floating-point numbers was expected"
            )
        d = tensor.shape[1]
        if self._dim.setdefault(modality, d) != d:
            raise InputError(
                f"the model {name} returned {d} columns for some {modality}s and {self._dim[modality]} for others"
            )
        return tensor.float().cpu()

    def dim(self) -> Mapping[str, int | None]:
        return {modality: self._dim.get(modality) for modality in sorted(self.modalities)}


def _encodes(model: Any) -> bool:
    return hasattr(model, "encode_image") or hasattr(model, "encode_text")


def _is_sentence_transformer(model: Any) -> bool:
    kinds = type(model).__mro__
    return hasattr(model, "encode") and any(kind.__module__.startswith("sentence_transformers.") for kind in kinds)


def _function(model: Any) -> Callable[[Any], Any]:
    """Return a function from a batch to rows: the model itself, or `encode` of a SentenceTransformer."""
    if not _is_sentence_transformer(model):
        return model
    return lambda batch: model.encode(
        batch, batch_size=len(batch), convert_to_tensor=True, show_progress_bar=False, normalize_embeddings=False
    )


def _without_partial(part: Any) -> Any:
    while isinstance(part, partial):
        part = part.func
    return part


def _module(part: Any) -> nn.Module | None:
    """Return the module if `part` is a module or a method of one, else None."""
    function = _without_partial(part)
    owner = getattr(function, "__self__", function)
    return owner if isinstance(owner, nn.Module) else None


def _dtype(module: nn.Module | None) -> torch.dtype | None:
    """Return the dtype in which a module computes, that of its first linear or convolutional layer.

    OpenAI's CLIP and open_clip keep other parameters, including the first ones, in float32.
    """
    layers = () if module is None else module.modules()
    weights = (getattr(layer, "weight", None) for layer in layers if not isinstance(layer, nn.Embedding))
    return next((w.dtype for w in weights if isinstance(w, Tensor) and w.ndim > 1 and w.is_floating_point()), None)


def _name(part: Any) -> str:
    part = _without_partial(part)
    return type(part).__name__ if isinstance(part, nn.Module) else getattr(part, "__qualname__", type(part).__name__)


def _repr_without_addresses(value: Any) -> str:
    return re.sub(r" at 0x[0-9a-fA-F]+", "", repr(value))


def _weights_checksum(module: nn.Module) -> str:
    """Return the SHA-256 checksum of all parameters and buffers."""
    checksum = hashlib.sha256()
    for key, value in sorted(module.state_dict().items()):
        if isinstance(value, Tensor):
            checksum.update(f"{key} {value.dtype} {tuple(value.shape)}\n".encode())
            try:
                content = value.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy()
            except (RuntimeError, NotImplementedError, TypeError):  # meta, sparse or quantized tensors
                raise InputError(f"the weights {shown(key)} of the model cannot be read; give revision=…") from None
            checksum.update(content.data)
    return checksum.hexdigest()
