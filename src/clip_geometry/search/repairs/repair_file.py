"""Fitted repairs as .safetensors: numbers and JSON, nothing that is executed.

The JSON in the metadata, under clip_geometry_repair, has format, version, kind (class of repair), name, parameters and
checksum, and what the repair learned, as far as it has it; the tensors are float64:

- maps: one entry for each affine map x ↦ x W + b, with unit_rows_in and renormalise as in `map_file`. map.K.W and
  map.K.b are those of map K; where identity is true, W is the identity and is left out.
- views: the map (its number) of each modality.
- terms: view, slope and offset of each kind (modality of the query, modality of the item).
- knots: the kinds that have a curve, [query, item] each; knots.K, (2, p), are the cosines and values of the K-th.
- banks: attribute → modalities; ATTRIBUTE.MODALITY are its rows.
"""

import inspect
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from pydantic import BaseModel, Field

from clip_geometry.io.reading import require_memory
from clip_geometry.registry import InputError, shown
from clip_geometry.search.repairs import Repair, RepairView, Term, repairs
from clip_geometry.transforms import Affine
from clip_geometry.transforms.map_file import attributes_of, read_facts, write_facts

KEY = "clip_geometry_repair"

Number = Annotated[int, Field(ge=0)]


class _AffineFacts(BaseModel):
    """The fields of an `Affine` beside its arrays."""

    identity: bool
    renormalise: bool
    unit_rows_in: bool


class _TermFacts(BaseModel):
    query: str
    item: str
    view: Number
    slope: float
    offset: float


class _RepairFacts(BaseModel):
    """The JSON in the metadata."""

    format: int
    version: str
    kind: str
    name: str
    parameters: dict[str, str | bool | int | float | None]
    maps: list[_AffineFacts] = []
    views: list[dict[str, Number]] = []
    terms: list[_TermFacts] = []
    knots: list[tuple[str, str]] = []
    banks: dict[str, list[str]] = {}


def write_repair(repair: Repair, path: Path) -> None:
    """Write a fitted repair as one file."""
    kind = type(repair)
    if _kinds().get(kind.name) is not kind:
        raise InputError(f"{kind.__name__} is not registered as a repair, so a file of it could not be read")
    facts: dict[str, Any] = {
        "kind": kind.name,
        "name": repair.name,
        "parameters": {name: getattr(repair, name) for name in inspect.signature(kind).parameters},
        "banks": {},
    }
    tensors: dict[str, np.ndarray] = {}
    for attribute in attributes_of(kind):
        if not hasattr(repair, attribute):
            raise InputError(f"{repair.name} is not fitted yet; call fit first")
        value = getattr(repair, attribute)
        if attribute == "views_":
            unique = list({id(each): each for view in value for each in view.maps.values()}.values())
            number = {id(each): k for k, each in enumerate(unique)}
            facts["maps"] = [{field: getattr(each, field) for field in _AffineFacts.model_fields} for each in unique]
            for k, each in enumerate(unique):
                tensors |= {f"map.{k}.b": each.b} if each.identity else {f"map.{k}.W": each.W, f"map.{k}.b": each.b}
            facts["views"] = [{modality: number[id(each)] for modality, each in view.maps.items()} for view in value]
        elif attribute == "terms_":
            facts["terms"] = [{"query": q, "item": x, **term._asdict()} for (q, x), term in value.items()]
        elif attribute == "knots_":
            facts["knots"] = list(value)
            tensors |= {f"knots.{k}": np.stack(curve) for k, curve in enumerate(value.values())}
        else:
            facts["banks"][attribute] = list(value)
            tensors |= {f"{attribute}.{modality}": rows for modality, rows in value.items()}
    write_facts(path, KEY, facts, tensors)


def read_repair(path: Path) -> Repair:
    """Read a fitted repair; raise InputError for a file that is damaged or something else."""
    return read_facts(path, KEY, _RepairFacts, _fitted, what="repair", writer="Repair.save")


def _kinds() -> dict[str, type[Repair]]:
    return {entry.kind.name: entry.kind for entry in repairs.values()}


def _fitted(facts: _RepairFacts, tensors: Mapping[str, np.ndarray]) -> Repair:
    if (kind := _kinds().get(facts.kind)) is None:
        raise InputError(f"no repair is called {shown(facts.kind)}")
    if not all(np.isfinite(tensor).all() for tensor in tensors.values()):
        raise InputError("a number is not finite")
    repair = kind(**facts.parameters)
    repair.name = facts.name
    for attribute in attributes_of(kind):
        if attribute == "views_":
            maps = [_affine(each, f"map.{k}", tensors) for k, each in enumerate(facts.maps)]
            value = [RepairView({modality: maps[k] for modality, k in view.items()}) for view in facts.views]
        elif attribute == "terms_":
            value = {(term.query, term.item): Term(term.view, term.slope, term.offset) for term in facts.terms}
        elif attribute == "knots_":
            value = {kind: tuple(tensors[f"knots.{k}"]) for k, kind in enumerate(facts.knots)}
        else:
            value = {modality: tensors[f"{attribute}.{modality}"] for modality in facts.banks[attribute]}
        setattr(repair, attribute, value)
    # score two rows of each modality, so that parts that do not fit each other are found now
    learned, dimensions = vars(repair), {}
    if "views_" in learned:
        dimensions = {modality: len(each.W) for modality, each in learned["views_"][0].maps.items()}
    elif "bank_" in learned:
        dimensions = {modality: rows.shape[1] for modality, rows in learned["bank_"].items()}
    rows = {modality: np.linspace(1, 2, 2 * d).reshape(2, d) for modality, d in dimensions.items()}
    for modality, q in rows.items():
        for item, scores in repair.mixed(modality, q, rows).items():
            if scores.shape != (2, 2) or not np.isfinite(scores).all():
                raise InputError(f"it has no scores of {item} items for {modality} queries")
    return repair


def _affine(facts: _AffineFacts, name: str, tensors: Mapping[str, np.ndarray]) -> Affine:
    b = tensors[f"{name}.b"]
    if facts.identity:
        require_memory(8 * b.size**2, f"{name}.W")
    weights = np.eye(b.size) if facts.identity else tensors[f"{name}.W"]
    if b.shape != weights.shape[1:]:
        raise InputError(f"{name} has W {weights.shape} and b {b.shape}")
    return Affine(weights, b, renormalise=facts.renormalise, unit_rows_in=facts.unit_rows_in)
