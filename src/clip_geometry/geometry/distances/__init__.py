"""Exact distances between rows, computed in blocks, also where float32 products cancel."""
