"""Fitted repairs as .safetensors files, which hold numbers and JSON but no executable code.

The JSON in the metadata, under clip_geometry_repair, has format, version, kind (class of the repair), name, parameters
and checksum. It also describes what the repair has learned, where applicable; the tensors are float64:

- maps: one entry for each affine map x ↦ x W + b, with unit_rows_in and renormalise as in `map_file`. map.K.W and
  map.K.b belong to map K; if identity is true, W is the identity and is omitted.
- views: the number of the map of each modality.
- terms: view, slope and offset of each kind (modality of the query, modality of the item).
- knots: the kinds that have a curve, each as [query, item]; knots.K, (2, p), are the cosines and values of the K-th.
- banks: the modalities that have a bank; bank.MODALITY are its rows.
"""

import inspect
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

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
    """The fields of an `Affine` other than its arrays."""

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
    banks: list[str] = []


def write_repair(repair: Repair, path: Path) -> None:
    """Write a fitted repair to one file."""
    kind = type(repair)
    if _kinds().get(kind.name) is not kind:
        raise InputError(f"{kind.__name__} is not registered as a repair, so its file could not be read")
    for attribute in attributes_of(kind):
        if not hasattr(repair, attribute):
            raise InputError(f"{repair.name} is not fitted yet; call fit first")
    views, terms, knots, bank = (getattr(repair, name, {}) for name in ("views_", "terms_", "knots_", "bank_"))
    maps = list({id(affine): affine for view in views for affine in view.maps.values()}.values())
    number = {id(affine): k for k, affine in enumerate(maps)}
    facts = {
        "kind": kind.name,
        "name": repair.name,
        "parameters": {name: getattr(repair, name) for name in inspect.signature(kind).parameters},
        "maps": [{field: getattr(affine, field) for field in _AffineFacts.model_fields} for affine in maps],
        "views": [{modality: number[id(affine)] for modality, affine in view.maps.items()} for view in views],
        "terms": [{"query": query, "item": item, **term._asdict()} for (query, item), term in terms.items()],
        "knots": list(knots),
        "banks": list(bank),
    }
    tensors = {f"map.{k}.b": affine.b for k, affine in enumerate(maps)}
    tensors |= {f"map.{k}.W": affine.W for k, affine in enumerate(maps) if not affine.identity}
    tensors |= {f"knots.{k}": np.stack(curve) for k, curve in enumerate(knots.values())}
    tensors |= {f"bank.{modality}": rows for modality, rows in bank.items()}
    write_facts(path, KEY, facts, tensors)


def read_repair(path: Path) -> Repair:
    """Read a fitted repair; raise InputError for a file that is damaged or is not a repair."""
    return read_facts(path, KEY, _RepairFacts, _fitted, what="repair", writer="Repair.save")


def _kinds() -> dict[str, type[Repair]]:
    return {entry.kind.name: entry.kind for entry in repairs.values()}


def _fitted(facts: _RepairFacts, tensors: Mapping[str, np.ndarray]) -> Repair:
    """Build the repair that a file describes; raise InputError if its parts do not fit together."""
    kind = _kinds().get(facts.kind)
    if kind is None:
        raise InputError(f"no repair is called {shown(facts.kind)}")
    if not all(np.isfinite(tensor).all() for tensor in tensors.values()):
        raise InputError("a number is not finite")
    repair = kind(**facts.parameters)
    repair.name = facts.name
    maps = [_affine(entry, f"map.{k}", tensors) for k, entry in enumerate(facts.maps)]
    learned = {
        "views_": [RepairView({modality: maps[k] for modality, k in view.items()}) for view in facts.views],
        "terms_": {(term.query, term.item): Term(term.view, term.slope, term.offset) for term in facts.terms},
        "knots_": {kind: tuple(tensors[f"knots.{k}"]) for k, kind in enumerate(facts.knots)},
        "bank_": {modality: tensors[f"bank.{modality}"] for modality in facts.banks},
    }
    for attribute in attributes_of(kind):
        setattr(repair, attribute, learned[attribute])
    # score two rows of each modality, to detect inconsistent parts on loading
    dimensions = {modality: len(affine.W) for modality, affine in learned["views_"][0].maps.items()}
    rows = {modality: np.linspace(1, 2, 2 * d).reshape(2, d) for modality, d in dimensions.items()}
    for modality, q in rows.items():
        for item, scores in repair.mixed(modality, q, rows).items():
            if scores.shape != (2, 2) or not np.isfinite(scores).all():
                raise InputError(f"it has no scores of {item} items for {modality} queries")
    return repair


def _affine(facts: _AffineFacts, name: str, tensors: Mapping[str, np.ndarray]) -> Affine:
    """Return the affine map x W + b that a file describes; raise InputError if the shapes do not fit."""
    b = tensors[f"{name}.b"]
    if facts.identity:
        require_memory(8 * b.size**2, f"{name}.W")
    weights = np.eye(b.size) if facts.identity else tensors[f"{name}.W"]
    if b.shape != weights.shape[1:]:
        raise InputError(f"{name} has W {weights.shape} and b {b.shape}")
    return Affine(weights, b, renormalise=facts.renormalise, unit_rows_in=facts.unit_rows_in)
