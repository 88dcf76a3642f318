"""Repairs of a mixed index: maps of the rows, calibrated scores, neighborhoods, and fusion of separate indices."""

from clip_geometry.registry import import_all
from clip_geometry.repairs.base import Entry, InnerProduct, Known, Repair, Term, View, make_repair, repairs

import_all(__name__)

__all__ = ["Entry", "InnerProduct", "Known", "Repair", "Term", "View", "make_repair", "repairs"]
