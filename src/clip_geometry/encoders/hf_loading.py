"""Folders in transformers' layout: config, weights and tokenizer; quietly, and with errors of one sentence."""

import inspect
import json
import pickle
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from clip_geometry.files import first_line
from clip_geometry.registry import InputError

WEIGHTS = ("model.safetensors", "pytorch_model.bin")


def read_config(folder: Path, what: str, key: str | None = "model_type") -> dict[str, Any]:
    """The folder's config.json, which must have `key`; `what` names in the error what the folder should hold."""
    path = folder / "config.json"
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except OSError:
        raise InputError(f"{folder} has no config.json; {what} was expected") from None
    except ValueError:
        values = None
    if not isinstance(values, dict) or (key is not None and key not in values):
        with_key = "" if key is None else f" with the key {key!r}"
        raise InputError(f"{path} is no JSON object{with_key}; {what} was expected")
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


def load_model(loader: Any, folder: Path, name: str) -> Any:
    """`loader.from_pretrained`, where a parameter that the weights lack is an InputError.

    transformers only warns, and fills what is missing with random numbers. A pooler that can be left out is left
    out: text encoders here pool for themselves, and many checkpoints have none.
    """
    try:
        with quiet():
            # no code of the model's own, not even after a question on the terminal
            model, report = loader.from_pretrained(str(folder), output_loading_info=True, trust_remote_code=False)
    except (OSError, RuntimeError, ValueError, KeyError, ImportError, pickle.UnpicklingError) as error:
        raise InputError(f"the weights of {name} cannot be loaded: {first_line(error)}") from None
    missing = set(report["missing_keys"])
    if drop_pooler(model):
        missing = {key for key in missing if not key.startswith("pooler.")}
    if missing:
        raise InputError(
            f"the weights of {name} lack {len(missing)} parameters of the architecture, {min(missing)!r} among them"
        )
    return model


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
    try:
        with quiet():
            tokenizer = loader.from_pretrained(str(folder), config=config, trust_remote_code=False)
    except (OSError, ValueError, KeyError, TypeError, ImportError) as error:
        raise InputError(f"{folder} holds no tokenizer that transformers can load: {first_line(error)}") from None
    if padding and tokenizer.pad_token_id is None:
        raise InputError(f"the tokenizer in {folder} has no padding token, so texts cannot be embedded in batches")
    return tokenizer
