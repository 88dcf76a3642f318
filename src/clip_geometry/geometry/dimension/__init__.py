"""Intrinsic dimension from the distances and angles of neighbors."""
