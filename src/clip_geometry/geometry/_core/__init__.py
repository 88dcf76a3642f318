"""What the measures share: rows, moments, distances, neighbors, streaming."""
