"""Tyshchuk et al. 2023: On Isotropy of Multimodal Embeddings."""
