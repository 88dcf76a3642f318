"""Checks of rows and labels, and iteration over rows in blocks, whether they are in memory or streamed."""
