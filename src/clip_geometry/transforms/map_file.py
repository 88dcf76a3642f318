"""Fitted pipelines as .safetensors files, which hold numbers and JSON but no executable code.

Programs that do not use this package can read the affine maps as float64 tensors, MODALITY.W (d_in, d_out) and
MODALITY.b (d_out,), where MODALITY is image, text or any (for rows of every modality):

    from safetensors import safe_open
    with safe_open("map.safetensors", "np") as file:
        facts = json.loads(file.metadata()["clip_geometry"])["affine"]["text"]
        W, b = file.get_tensor("text.W"), file.get_tensor("text.b")
    if facts["unit_rows_in"]: x = x / np.linalg.norm(x, axis=1, keepdims=True)
    y = x @ W + b
    if facts["renormalise"]: y = y / np.linalg.norm(y, axis=1, keepdims=True)

If the chain of a modality is not affine, its entry gives the reason, {"not_affine": "…"}, and there are no tensors.
The JSON in the metadata also has format, version, steps, fitted_on, refusal, dimensions, chains (modality → indices
of transforms), transforms (name, parameters, attributes) and checksum; K.ATTRIBUTE are the arrays of transform K.
"""

import hashlib
import json
from collections.abc import Callable, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any, TypeVar, get_type_hints

import numpy as np
from pydantic import BaseModel, Field

from clip_geometry.files import write_atomically
from clip_geometry.io.reading import checked, first_line, parse_json, read_safetensors
from clip_geometry.registry import InputError, shown
from clip_geometry.steps import signature, transforms
from clip_geometry.transforms.pipeline import Pipeline

KEY = "clip_geometry"
FORMAT = 1

Facts = TypeVar("Facts", bound=BaseModel)
Built = TypeVar("Built")


def write_map(fitted: Pipeline, path: Path) -> None:
    """Write a fitted pipeline to one file."""
    unique = list(dict.fromkeys(transform for chain in fitted.chains.values() for transform in chain))
    tensors = {}
    descriptions = []
    for k, transform in enumerate(unique):
        state = {name: getattr(transform, name) for name in attributes_of(type(transform))}
        tensors |= {f"{k}.{name}": value for name, value in state.items() if isinstance(value, np.ndarray)}
        scalars = {name: value for name, value in state.items() if not isinstance(value, np.ndarray)}
        parameters = {name: getattr(transform, name) for name in signature(transform.name)}
        descriptions.append({"name": transform.name, "parameters": parameters, "attributes": scalars})
    affine = {}
    for modality in fitted.chains:
        try:
            affine_map = fitted.affine(modality)
        except InputError as error:
            affine[modality] = {"not_affine": str(error)}
        else:
            affine[modality] = {"unit_rows_in": affine_map.unit_rows_in, "renormalise": affine_map.renormalise}
            tensors |= {f"{modality}.W": affine_map.W, f"{modality}.b": affine_map.b}
    facts = {
        "steps": [str(step) for step in fitted.steps],
        "fitted_on": fitted.fitted_on,
        "refusal": fitted.refusal,
        "dimensions": fitted.dimensions,
        "chains": {modality: list(map(unique.index, chain)) for modality, chain in fitted.chains.items()},
        "transforms": descriptions,
        "affine": affine,
    }
    write_facts(path, KEY, facts, tensors)


def write_facts(path: Path, key: str, facts: Mapping[str, Any], tensors: Mapping[str, np.ndarray]) -> None:
    """Write JSON and float64 tensors to one .safetensors file, with a checksum."""
    from safetensors.numpy import save

    tensors = {name: np.ascontiguousarray(array, dtype=np.float64) for name, array in tensors.items()}
    facts = {"format": FORMAT, "version": version("clip-geometry"), **facts}
    write_atomically(path, save(tensors, {key: _text({**facts, "checksum": checksum(facts, tensors)})}))


Dimension = Annotated[int, Field(ge=1, le=10**6)]


class _TransformFacts(BaseModel):
    name: str
    parameters: dict[str, str | bool | int | float | None]
    attributes: dict[str, int | float]


class _MapFacts(BaseModel):
    """The JSON in the metadata, without `affine`, which is for other programs and is not read."""

    format: int
    version: str
    steps: list[str]
    fitted_on: str | None
    refusal: str | None
    dimensions: dict[str, tuple[Dimension, Dimension]]
    chains: dict[str, list[int]]
    transforms: list[_TransformFacts]


def read_map(path: Path) -> Pipeline:
    """Read a fitted pipeline; raise InputError for a file that is damaged or is not a pipeline."""
    return read_facts(path, KEY, _MapFacts, _pipeline_from, what="map", writer="fit")


def read_facts(
    path: Path,
    key: str,
    schema: type[Facts],
    build: Callable[[Facts, Mapping[str, np.ndarray]], Built],
    *,
    what: str,
    writer: str,
) -> Built:
    """Read a file that `write_facts` wrote; raise InputError for a file that is damaged or something else.

    Args:
        path: The file.
        key: Key of the JSON in the metadata.
        schema: Schema of the JSON.
        build: Makes the result from the JSON and the tensors; any error it raises means that the two disagree.
        what: What the file holds, for messages.
        writer: What writes such files, for messages.
    """
    expected = f"a {what} (.safetensors) written by {writer}"
    metadata, stored = read_safetensors(path, expected, framework="pt")
    if key not in metadata:
        raise InputError(
            f"{shown(path)} is a .safetensors file, but not a {what} of clip-geometry; give one that {writer} wrote"
        )
    tensors = {name: tensor.double().numpy() for name, tensor in stored.items()}  # all tensors are written in float64
    content = parse_json(metadata[key], f"the metadata of {shown(path)}", dict[str, Any])
    if content.pop("checksum", None) != checksum(content, tensors):
        raise InputError(f"{shown(path)} is damaged: its checksum does not match; copy it again or fit it again")
    if content.get("format") != FORMAT:
        raise InputError(
            f"{shown(path)} has format {shown(content.get('format'))} of clip-geometry "
            f"{shown(content.get('version'))}, but this version reads format {FORMAT}; install that version or fit the "
            f"{what} again"
        )
    facts = checked(content, f"the metadata of {shown(path)}", schema)
    try:
        return build(facts, tensors)
    except (InputError, KeyError, IndexError, TypeError, ValueError) as error:  # its parts disagree
        raise InputError(f"{shown(path)} contradicts itself ({first_line(error)}); fit the {what} again") from None


def _pipeline_from(facts: _MapFacts, tensors: Mapping[str, np.ndarray]) -> Pipeline:
    """Build the pipeline that a file describes; raise InputError if its parts do not fit together."""
    fitted = []
    for k, description in enumerate(facts.transforms):
        transform = transforms[description.name](**description.parameters)
        transform.check()
        for name in attributes_of(type(transform)):
            value = description.attributes[name] if name in description.attributes else tensors[f"{k}.{name}"]
            if not np.isfinite(value).all():
                raise InputError(f"{name} of {description.name} is not finite")
            setattr(transform, name, value)
        fitted.append(transform)
    if not facts.chains or facts.chains.keys() != facts.dimensions.keys():
        raise InputError("chains and dimensions have different modalities")
    chains = {modality: tuple(fitted[k] for k in chain) for modality, chain in facts.chains.items()}
    for modality, (d_in, d_out) in facts.dimensions.items():
        rows = np.linspace(1, 2, 2 * d_in).reshape(2, d_in)  # two rows, so that centering cannot make both zero
        for transform in chains[modality]:
            rows = transform.apply(rows)
        if np.shape(rows) != (2, d_out) or not np.isfinite(rows).all():
            raise InputError(f"the {modality} chain does not map {d_in} dimensions to {d_out}")
    return Pipeline(facts.steps, chains, facts.dimensions, facts.fitted_on, facts.refusal)


def attributes_of(kind: type) -> list[str]:
    """Return the learned attributes of a transform or repair class: its declared attributes that end in _."""
    return sorted(name for name in get_type_hints(kind) if name.endswith("_"))


def checksum(facts: Mapping[str, Any], tensors: Mapping[str, np.ndarray]) -> str:
    """Return the SHA-256 of the whole content, because safetensors itself detects truncation only."""
    digest = hashlib.sha256(_text(facts).encode())
    for name in sorted(tensors):
        array = np.ascontiguousarray(tensors[name])
        digest.update(f"\n{name} {array.dtype} {array.shape}\n".encode())
        digest.update(array.tobytes())
    return digest.hexdigest()


def _text(facts: Mapping[str, Any]) -> str:
    """Return JSON; NumPy numbers, which can come from parameters set in Python, become plain numbers."""
    return json.dumps(facts, ensure_ascii=False, default=lambda value: value.item())
