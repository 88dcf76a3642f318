"""Folders in transformers' layout: config, weights and tokenizer; quietly, without code of theirs, and with errors of
one sentence."""

import inspect
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from clip_geometry.encoders.runtime import bounded
from clip_geometry.reading import first_line, read_json
from clip_geometry.registry import InputError, shown

# of what every config has, under these names or others: a model of a billion layers takes hours to describe
LIMITS = {"num_hidden_layers": (1, 1000), "num_attention_heads": (1, 2**10), "hidden_size": (1, 2**17)}
WEIGHTS = ("model.safetensors", "pytorch_model.bin")


def read_config(folder: Path, what: str, key: str | None = "model_type") -> dict[str, Any]:
    """The folder's config.json, which must have `key`, a string; `what` names in the error what it should hold."""
    path = folder / "config.json"
    if not path.exists():
        raise InputError(f"{shown(folder)} has no config.json; {what} was expected")
    values = read_json(path, what)
    if not isinstance(values, dict) or not (key is None or isinstance(values.get(key), str)):
        with_key = "" if key is None else f" with the key {key!r}"
        raise InputError(f"{shown(path)} is no JSON object{with_key}; {what} was expected")
    return values


@contextmanager
def quiet() -> Iterator[None]:
    """No progress bars and no reports of transformers on what a checkpoint has besides: what matters is an error."""
    from transformers.utils import logging

    before, bar = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(before)
        if bar:
            logging.enable_progress_bar()


@contextmanager
def one_sentence(problem: str) -> Iterator[None]:
    """Whatever a library raises for what a model's files hold is an InputError that begins with `problem`."""
    try:
        yield
    except InputError:
        raise
    except BaseException as error:
        # the class in which Rust's panics arrive derives from BaseException alone
        if isinstance(error, Exception) or type(error).__name__ == "PanicException":
            why = f"{type(error).__name__}: {first_line(error)}"
            if "trust_remote_code" in str(error):
                why = "it needs Python code of its own, which is never run"
            raise InputError(f"{problem} ({why})") from None
        raise


def read_settings(folder: Path, name: str) -> Any:
    """transformers' object for config.json, one of its own classes."""
    from transformers import AutoConfig

    read_config(folder, "a config of transformers")  # with limits that transformers' own reader has not
    loader: Any = AutoConfig
    with quiet(), one_sentence(f"{shown(folder)} holds no config of a transformer"):
        settings = loader.from_pretrained(str(folder), trust_remote_code=False)
        parts = [settings, *(getattr(settings, part, None) for part in settings.sub_configs)]
    for part in parts:
        attention = getattr(part, "_attn_implementation", None)
        if "/" in str(attention):  # transformers would fetch it from the hub, and run it
            raise InputError(f"the config of {name} names code of the hub, attention {shown(attention)}; take it out")
        for key, (least, most) in LIMITS.items():
            size = getattr(part, key, least)
            if isinstance(size, int) and not least <= size <= most:
                raise InputError(f"the config of {name} has {key} {shown(size)}; {least} to {most} were expected")
    return settings


def from_settings(kind: Any, settings: Any, name: str, seed: int | None = None) -> Any:
    """A freshly initialised model on the CPU; kind: CLIPModel, AutoModel, … The caller's random numbers stay."""

    def build() -> Any:
        if hasattr(kind, "from_config"):
            return kind.from_config(settings, trust_remote_code=False)
        return kind(settings)

    with quiet(), one_sentence(f"transformers cannot build what the config of {name} describes"):
        with torch.device("meta"), bounded(name):
            build()
        with torch.random.fork_rng(devices=[]):
            if seed is not None:
                torch.default_generator.manual_seed(seed)
            return build()


def load_model(loader: Any, folder: Path, name: str, settings: Any = None) -> Any:
    """`loader.from_pretrained`, where a parameter that the weights lack is an InputError.

    transformers only warns, and fills what is missing with random numbers. A pooler that can be left out is left
    out: text encoders here pool for themselves, and many checkpoints have none. settings: config.json's, changed.
    """
    settings = settings or read_settings(folder, name)
    with quiet(), one_sentence(f"the weights of {name} cannot be loaded"), bounded(name):
        # no code of the model's own, not even after a question on the terminal
        model, report = loader.from_pretrained(
            str(folder), config=settings, output_loading_info=True, trust_remote_code=False, weights_only=True
        )
    missing = set(report["missing_keys"])
    if drop_pooler(model):
        missing = {key for key in missing if not key.startswith("pooler.")}
    if missing:
        raise InputError(
            f"the weights of {name} lack {len(missing)} parameters of the architecture, {min(missing)!r} among them"
        )
    return model


def apply(model: Any, name: str, inputs: Mapping[str, Any], **options: Any) -> Any:
    """`model(**inputs)`. A config can be wrong in what only the computation needs; RuntimeError, of memory, stays."""
    try:
        return model(**inputs, **options)
    except (AttributeError, IndexError, TypeError, ValueError) as error:
        raise InputError(f"the config of {name} does not fit its model ({first_line(error)})") from error


def drop_pooler(model: Any) -> bool:
    """Takes the pooler out of a model that can be built without; whether there was one."""
    optional = "add_pooling_layer" in inspect.signature(type(model).__init__).parameters
    if not optional or getattr(model, "pooler", None) is None:
        return False
    model.pooler = None
    return True


def load_tokenizer(folder: Path, config: Any = None, *, padding: bool = True) -> Any:
    """The folder's tokenizer. config: of the model it belongs to, where that is not config.json beside it. padding:
    whether it must have a token for that, which those of decoders lack."""
    from transformers import AutoTokenizer

    loader: Any = AutoTokenizer
    with quiet(), one_sentence(f"{shown(folder)} holds no tokenizer that transformers can load"):
        tokenizer = loader.from_pretrained(str(folder), config=config, trust_remote_code=False)
        without_padding = padding and tokenizer.pad_token_id is None
    if without_padding:
        raise InputError(f"the tokenizer in {folder} has no padding token, so texts cannot be embedded in batches")
    return tokenizer
