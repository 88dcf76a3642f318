"""Shapes and types in geometry's signatures are checked while the tests run."""

from jaxtyping import install_import_hook

install_import_hook("clip_geometry.geometry", "beartype.beartype")
