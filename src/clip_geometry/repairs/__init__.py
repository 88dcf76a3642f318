"""Repairs of a mixed index: maps of the rows, calibrated scores, neighborhoods, and fusion of separate indices."""

from importlib import import_module
from pathlib import Path

import yaml

from clip_geometry.repairs.base import Entry, InnerProduct, Known, Repair, Term, View, make_repair, repairs

__all__ = ["Entry", "InnerProduct", "Known", "Repair", "Term", "View", "make_repair", "repairs"]

for _name, _entry in yaml.safe_load(Path(__file__).with_name("catalog.yaml").read_text(encoding="utf-8")).items():
    _module, _, _class = _entry.pop("kind").partition(".")
    repairs.add(_name, Entry(_name, getattr(import_module(f"{__name__}.{_module}"), _class), **_entry))
