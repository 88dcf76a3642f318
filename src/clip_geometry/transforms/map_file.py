"""Fitted pipelines as .safetensors: numbers and JSON, nothing that is executed.

For programs without this package, the affine maps lie in the file as tensors: MODALITY.W (d_in, d_out) and
MODALITY.b (d_out,), float64, where MODALITY is image, text or any (for rows of every modality):

    from safetensors import safe_open
    with safe_open("map.safetensors", "np") as file:
        facts = json.loads(file.metadata()["clip_geometry"])["affine"]["text"]
        W, b = file.get_tensor("text.W"), file.get_tensor("text.b")
    if facts["unit_rows_in"]: x = x / np.linalg.norm(x, axis=1, keepdims=True)
    y = x @ W + b
    if facts["renormalise"]: y = y / np.linalg.norm(y, axis=1, keepdims=True)

A modality whose chain is no affine map has the reason there instead, {"not_affine": "…"}, and no tensors.
The metadata's JSON further holds format, version, steps, fitted_on, refusal, dimensions, chains (modality → numbers
of transforms), transforms (name, parameters, attributes) and checksum; K.ATTRIBUTE are the arrays of transform K.
"""

import hashlib
import json
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any, get_type_hints

import numpy as np

from clip_geometry.files import existing_file, first_line, write_atomically
from clip_geometry.registry import InputError
from clip_geometry.transforms.base import Transform, transforms
from clip_geometry.transforms.fitted import FittedPipeline
from clip_geometry.transforms.step import parse_pipeline

KEY = "clip_geometry"
FORMAT = 1


def write_map(fitted: FittedPipeline, path: Path) -> None:
    """`fitted` as a file, in one piece."""
    from safetensors.numpy import save

    unique = list({id(each): each for chain in fitted.chains.values() for each in chain}.values())
    number = {id(each): k for k, each in enumerate(unique)}
    tensors, described = {}, []
    for k, transform in enumerate(unique):
        arrays, scalars = _state(transform)
        tensors |= {f"{k}.{name}": array for name, array in arrays.items()}
        described.append({"name": transform.name, "parameters": transform.get_params(), "attributes": scalars})
    affine, weights = _affine_parts(fitted)
    tensors = {name: np.ascontiguousarray(array, dtype=np.float64) for name, array in (tensors | weights).items()}
    facts = {
        "format": FORMAT,
        "version": version("clip-geometry"),
        "steps": [str(step) for step in fitted.steps],
        "fitted_on": fitted.fitted_on,
        "refusal": fitted.refusal,
        "dimensions": dict(fitted.dimensions),
        "chains": {modality: [number[id(each)] for each in chain] for modality, chain in fitted.chains.items()},
        "transforms": described,
        "affine": affine,
    }
    text = _text({**facts, "checksum": checksum(facts, tensors)})
    write_atomically(path, save(tensors, {KEY: text}))


def read_map(path: Path) -> FittedPipeline:
    """The fitted pipeline of a file. Raises InputError, one sentence, for one that is damaged or something else."""
    path = existing_file(path, "a map (.safetensors) written by fit")
    metadata, tensors = _contents(path)
    if KEY not in metadata:
        raise InputError(f"{path} is a .safetensors file but no map of clip-geometry: give one that fit wrote")
    facts = _sound_facts(metadata[KEY], tensors)
    if facts is None:
        raise InputError(f"{path} is damaged, its checksum does not hold: copy it again or fit it again")
    if facts["format"] != FORMAT:
        raise InputError(
            f"{path} has format {facts['format']} of clip-geometry {facts['version']}, and this version reads format "
            f"{FORMAT}: install that version or fit the map again"
        )
    built = [_restored(described, k, tensors) for k, described in enumerate(facts["transforms"])]
    return FittedPipeline(
        steps=parse_pipeline(facts["steps"]),
        chains={modality: tuple(built[k] for k in chain) for modality, chain in facts["chains"].items()},
        dimensions={modality: (d_in, d_out) for modality, (d_in, d_out) in facts["dimensions"].items()},
        fitted_on=facts["fitted_on"],
        refusal=facts["refusal"],
    )


def _contents(path: Path) -> tuple[dict[str, str], dict[str, np.ndarray]]:
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(str(path), framework="np") as file:
            return file.metadata() or {}, {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, OSError, TypeError) as error:
        raise InputError(
            f"{path} is no readable map (.safetensors), damaged or something else ({first_line(error)}): "
            "copy it again or fit it again"
        ) from None


def _sound_facts(text: str, tensors: Mapping[str, np.ndarray]) -> dict[str, Any] | None:
    """The metadata's JSON if its checksum holds."""
    try:
        facts = json.loads(text)
        return facts if facts.pop("checksum") == checksum(facts, tensors) else None
    except (ValueError, KeyError, AttributeError):  # no JSON, or none of ours
        return None


def _attributes(kind: type) -> list[str]:
    """What a transform of that kind learns: the declared attributes that end in _."""
    return sorted(name for name in get_type_hints(kind) if name.endswith("_"))


def _state(transform: Transform) -> tuple[dict[str, np.ndarray], dict[str, int | float]]:
    state = {name: getattr(transform, name) for name in _attributes(type(transform))}
    arrays = {name: value for name, value in state.items() if isinstance(value, np.ndarray)}
    return arrays, {name: value for name, value in state.items() if name not in arrays}


def _restored(described: Mapping[str, Any], k: int, tensors: Mapping[str, np.ndarray]) -> Transform:
    transform = transforms[described["name"]].make(**described["parameters"])
    for name in _attributes(type(transform)):
        scalars = described["attributes"]
        setattr(transform, name, scalars[name] if name in scalars else tensors[f"{k}.{name}"])
    return transform


def _affine_parts(fitted: FittedPipeline) -> tuple[dict[str, dict[str, Any]], dict[str, np.ndarray]]:
    """What the file says of each modality's affine map, and the W and b of those that are one."""
    facts: dict[str, dict[str, Any]] = {}
    weights: dict[str, np.ndarray] = {}
    for modality in fitted.chains:
        try:
            found = fitted.affine(modality)
        except InputError as error:
            facts[modality] = {"not_affine": str(error)}
            continue
        facts[modality] = {"unit_rows_in": found.unit_rows_in, "renormalise": found.renormalise}
        weights |= {f"{modality}.W": found.W, f"{modality}.b": found.b}
    return facts, weights


def checksum(facts: Mapping[str, Any], tensors: Mapping[str, np.ndarray]) -> str:
    """SHA-256 of everything in the file; safetensors itself notices only what is cut short."""
    digest = hashlib.sha256(_text(facts).encode())
    for name in sorted(tensors):
        array = np.ascontiguousarray(tensors[name])
        digest.update(f"\n{name} {array.dtype} {array.shape}\n".encode())
        digest.update(array.tobytes())
    return digest.hexdigest()


def _text(facts: Mapping[str, Any]) -> str:
    """JSON; numpy's numbers, as parameters given in Python may be, become plain ones."""
    return json.dumps(facts, ensure_ascii=False, default=lambda value: value.item())
