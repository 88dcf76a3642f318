"""Models in the layout of transformers."""
