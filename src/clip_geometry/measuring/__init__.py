"""Measuring: sets of embeddings in, records with a standard error and a null value out."""
