"""Embedding of a data set by an encoder into a store."""
