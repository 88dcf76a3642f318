"""Embedding: data through an encoder into a store."""
