"""Measuring: turns sets of embeddings into records with a standard error and a null value."""
