"""Repairs of a mixed index: maps of the rows, calibrated scores, neighborhoods, and fusion of separate indices."""

from importlib import import_module
from pathlib import Path

from clip_geometry import catalog
from clip_geometry.search.repairs.base import (
    InnerProduct,
    Known,
    Repair,
    RepairEntry,
    RepairView,
    Term,
    make_repair,
    repairs,
)

__all__ = ["InnerProduct", "Known", "Repair", "RepairEntry", "RepairView", "Term", "make_repair", "repairs"]

for _name, _entry in catalog.read(Path(__file__).parent).items():
    _module, _, _class = _entry["kind"].partition(".")
    _kind = getattr(import_module(f"{__name__}.{_module}"), _class)
    repairs.add(_name, RepairEntry(**{**_entry, "name": _name, "kind": _kind}))
