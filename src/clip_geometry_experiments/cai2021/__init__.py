"""Cai et al. 2021: Isotropy in the Contextual Embedding Space."""
