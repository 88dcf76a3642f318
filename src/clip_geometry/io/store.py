"""Stores of `embed`."""

from clip_geometry.embedding.store import is_store as recognizes
from clip_geometry.embedding.store import read_store as read

__all__ = ["read", "recognizes"]
