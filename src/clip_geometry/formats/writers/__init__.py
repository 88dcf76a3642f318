"""Writers of embeddings for other programs, one file each."""

from clip_geometry.formats.writers.base import Writer, export, writers

__all__ = ["Writer", "export", "writers"]
