"""Models and tokenizers of Hugging Face transformers, loaded or initialized without running code from their folders.

Progress bars and warnings are silenced, and every failure is an InputError with a one-sentence message.
"""

import inspect
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal

import torch

from clip_geometry.config import digest
from clip_geometry.encoders import hub
from clip_geometry.encoders.base import FreshOption, SeededConfig, Tokens
from clip_geometry.encoders.runtime import bounded, seeded
from clip_geometry.files import sha256_of
from clip_geometry.io.reading import first_line, read_json
from clip_geometry.registry import InputError, shown

# limits of the sizes that every config has, under these or other names: describing a billion layers would take hours
LIMITS = {"num_hidden_layers": (1, 1000), "num_attention_heads": (1, 2**10), "hidden_size": (1, 2**17)}
WEIGHTS = ("model.safetensors", "pytorch_model.bin")
UNLIMITED = 10**6  # transformers uses 1e30 if a tokenizer states no limit
DAMAGED = "the tokenizer fails because its files are damaged or incomplete"


class HFConfig(SeededConfig, FreshOption):
    """Options of a transformers model, either with its weights or initialized randomly.

    zero_bias has no effect if transformers already initializes the biases to zero.
    """


# --- config, model, weights


def read_config(folder: Path, what: str) -> dict[str, Any]:
    """Read the folder's config.json; `what` names the expected content in errors."""
    path = folder / "config.json"
    if not path.exists():
        raise InputError(f"{shown(folder)} has no config.json; {what} was expected")
    return read_json(path, what, dict[str, Any])


def read_encoder_config(folder: Path, what: str, elsewhere: Mapping[str, str]) -> None:
    """Raise InputError unless the folder holds an encoder.

    Args:
        folder: The model folder.
        what: The expected content, for errors.
        elsewhere: Model type → the name that loads it, for types that another family loads.
    """
    values = read_config(folder, what)
    kind = str(values.get("model_type"))
    if kind in elsewhere:
        raise InputError(f"{shown(folder)} holds a model of type {kind!r}; load it by {elsewhere[kind]}")
    if "model_type" not in values or values.get("is_encoder_decoder") or "vision_config" in values:
        raise InputError(f"{shown(folder)} holds a model of type {shown(kind)}, not {what} (BERT, …)")


@contextmanager
def one_sentence(problem: str) -> Iterator[None]:
    """Convert any error that a library raises about a model's files to an InputError that begins with `problem`.

    Progress bars and transformers' reports on unused weights are silenced, because real problems raise an error.
    """
    from transformers.utils import logging

    verbosity = logging.get_verbosity()
    has_bar = logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    except InputError:
        raise
    except BaseException as error:
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":  # a panic of Rust
            raise
        why = f"{type(error).__name__}: {first_line(' '.join(str(error).split()))}"
        if "trust_remote_code" in str(error):
            why = "it needs its own Python code, which is never run"
        raise InputError(f"{problem} ({why})") from None
    finally:
        logging.set_verbosity(verbosity)
        if has_bar:
            logging.enable_progress_bar()


def read_settings(folder: Path, name: str) -> Any:
    """Return config.json as an object of transformers' config class, after checking its sizes and code references."""
    from transformers import AutoConfig

    read_config(folder, "a config of transformers")  # our reader has limits that transformers lacks
    loader: Any = AutoConfig
    with one_sentence(f"{shown(folder)} has no config of a transformer"):
        settings = loader.from_pretrained(str(folder), trust_remote_code=False)
        configs = [settings, *(getattr(settings, key, None) for key in settings.sub_configs)]
    for config in configs:
        attention = getattr(config, "_attn_implementation", None)
        if "/" in str(attention):  # transformers would download and run it
            raise InputError(f"the config of {name} names code on the hub, attention {shown(attention)}; remove it")
        for key, (minimum, maximum) in LIMITS.items():
            size = getattr(config, key, minimum)
            if isinstance(size, int) and not minimum <= size <= maximum:
                raise InputError(f"the config of {name} has {key} {shown(size)}; {minimum} to {maximum} were expected")
    return settings


def from_settings(kind: Any, settings: Any, name: str, seed: int = 0) -> Any:
    """Return a randomly initialized model on the CPU, without changing the global generator.

    Args:
        kind: CLIPModel, AutoModel, …
        settings: The config of the model.
        name: Name of the model, for errors.
        seed: Seed of the initialization.
    """

    def build() -> Any:
        if hasattr(kind, "from_config"):
            return kind.from_config(settings, trust_remote_code=False)
        return kind(settings)

    with one_sentence(f"transformers cannot build the model that the config of {name} describes"):
        with torch.device("meta"), bounded(name):
            build()
        with seeded(seed):
            return build()


def load_model(loader: Any, folder: Path, name: str, settings: Any = None) -> Any:
    """Call `loader.from_pretrained` and raise InputError if a parameter is missing from the weights.

    transformers only warns and fills missing parameters with random numbers. An optional pooler is removed: the text
    encoders in this package do their own pooling, and many checkpoints have no pooler.

    Args:
        loader: CLIPModel, AutoModel, …
        folder: The model folder.
        name: Name of the model, for errors.
        settings: The config of the model, possibly changed. Default: config.json.
    """
    settings = settings or read_settings(folder, name)
    with one_sentence(f"the weights of {name} cannot be loaded"), bounded(name):
        # never run custom code of the model, not even after a question on the terminal
        model, report = loader.from_pretrained(
            str(folder), config=settings, output_loading_info=True, trust_remote_code=False, weights_only=True
        )
    missing = set(report["missing_keys"])
    if drop_pooler(model):
        missing = {key for key in missing if not key.startswith("pooler.")}
    if missing:
        raise InputError(
            f"the weights of {name} lack {len(missing)} parameters of the architecture, including {min(missing)!r}"
        )
    return model


def apply(model: Any, name: str, inputs: Mapping[str, Any], **options: Any) -> Any:
    """Call `model(**inputs)` and raise InputError if the computation shows that the config is wrong.

    RuntimeError, which torch raises when memory runs out, is not converted.
    """
    try:
        return model(**inputs, **options)
    except (AttributeError, IndexError, TypeError, ValueError) as error:
        raise InputError(f"the config of {name} does not fit its model ({first_line(error)})") from error


def drop_pooler(model: Any) -> bool:
    """Remove the pooler of a model that can be built without one; return whether there was one."""
    optional = "add_pooling_layer" in inspect.signature(type(model).__init__).parameters
    if not optional or getattr(model, "pooler", None) is None:
        return False
    model.pooler = None
    return True


def build(
    kind: Any, folder: Path, weights: Path | None, config: HFConfig, settings: Any = None
) -> tuple[Any, dict[str, Any]]:
    """Load a model, or initialize it if `weights` is None.

    Args:
        kind: CLIPModel, AutoModel, …
        folder: The model folder.
        weights: The weights file.
        config: The options of the model.
        settings: The config of the model, possibly changed. Default: config.json.

    Returns:
        (the model on the CPU in float32, facts about its weights).
    """
    settings = settings or read_settings(folder, config.model)
    if weights is not None:
        return load_model(kind, folder, config.model, settings), {"name": weights.name, "sha256": sha256_of(weights)}
    model = from_settings(kind, settings, config.model, config.seed)
    drop_pooler(model)
    return model.float(), config.initialized(model)


def weights_of(config: HFConfig) -> Path | None:
    """Return the weights file, downloaded if necessary; None for a fresh model."""
    return None if config.fresh else hub.first_file(config.name, WEIGHTS)


def revision_of(folder: Path, weights: Path | None) -> str:
    """Return a checksum of config, tokenizer and weights.

    For a fresh model it has the versions that the initialization depends on instead of the weights.
    """
    facts: dict[str, Any] = {"folder": hub.folder_digest(folder)}
    if weights is None:
        facts["versions"] = {name: version(name) for name in ("torch", "transformers")}
    else:
        facts["weights"] = sha256_of(weights)
    return digest(facts)


# --- tokenizer


def load_tokenizer(folder: Path, config: Any = None, *, padding: bool = True) -> Any:
    """Load the folder's tokenizer.

    Args:
        folder: The folder.
        config: Config of the model, if it is not the config.json in the folder.
        padding: Whether a padding token is required, which decoders often lack.
    """
    from transformers import AutoTokenizer

    loader: Any = AutoTokenizer
    with one_sentence(f"{shown(folder)} has no tokenizer that transformers can load"):
        tokenizer = loader.from_pretrained(str(folder), config=config, trust_remote_code=False)
        if padding and tokenizer.pad_token_id is None:
            raise InputError(f"the tokenizer in {folder} has no padding token, so texts cannot be embedded in batches")
    return tokenizer


def tokenize(tokenizer: Any, texts: Sequence[str], limit: int, padding: Literal["longest", "max_length"]) -> Tokens:
    """Return token ids and attention mask of texts, truncated to `limit` tokens including start and end."""
    with one_sentence(DAMAGED):
        encoded = tokenizer(list(texts), padding=padding, truncation=True, max_length=limit, return_tensors="pt")
    inputs = {"input_ids": encoded["input_ids"], "attention_mask": encoded["attention_mask"]}
    lengths = inputs["attention_mask"].sum(dim=1)
    if not lengths.all():
        raise InputError(f"the text {shown(texts[int(lengths.argmin())])} has no tokens, so it has no embedding")
    # only texts that reach the limit can have been truncated, so only these are tokenized again, in full
    suspects = [text for text, length in zip(texts, lengths.tolist(), strict=True) if length >= limit]
    full_lengths = [len(tokenizer(text, truncation=False, verbose=False)["input_ids"]) for text in suspects]
    return Tokens(inputs, sum(length > limit for length in full_lengths))


def token_counts(tokenizer: Any, texts: Sequence[str], limit: int) -> list[int]:
    """Return the number of tokens of each text after truncation to `limit`.

    Sorting by characters instead would be off by a fifth, which becomes padding.
    """
    with one_sentence(DAMAGED):
        encoded = tokenizer(list(texts), truncation=True, max_length=limit, return_attention_mask=False)
    return [len(ids) for ids in encoded["input_ids"]]


def check_ids(ids: torch.Tensor, embedding: Any, name: str) -> None:
    """Raise InputError if a token is outside the model's vocabulary, where torch would raise an IndexError."""
    highest = int(ids.max())
    if highest >= embedding.num_embeddings:
        raise InputError(
            f"the tokenizer of {name} gives the token {highest}, but the model has {embedding.num_embeddings} tokens; "
            "its folder holds files of two models"
        )


def context_length(tokenizer: Any, model: Any, name: str) -> int:
    """Return the largest number of tokens that both the tokenizer and the model's position embeddings support."""
    positions = getattr(model.config, "max_position_embeddings", None)
    for key, module in model.named_modules():
        if key.endswith("position_embeddings") and isinstance(module, torch.nn.Embedding):
            # RoBERTa and related models count positions from padding_idx + 1, so 2 of their 514 cannot be used
            positions = module.num_embeddings - (0 if module.padding_idx is None else module.padding_idx + 1)
            break
    stated = [limit for limit in (tokenizer.model_max_length, positions) if limit is not None]
    limits = [int(limit) for limit in stated if isinstance(limit, int | float) and 0 < limit < UNLIMITED]
    if not limits or not all(isinstance(limit, int | float) for limit in stated):
        raise InputError(
            f"the tokenizer and the config of {name} state {shown(stated)} as the number of tokens of a text; set "
            "model_max_length in its tokenizer_config.json"
        )
    return min(limits)
