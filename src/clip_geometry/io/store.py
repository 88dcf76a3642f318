"""Stores of `embed`."""

from clip_geometry.embedding.reading import is_store as recognizes
from clip_geometry.embedding.reading import read_store as read

__all__ = ["read", "recognizes"]
