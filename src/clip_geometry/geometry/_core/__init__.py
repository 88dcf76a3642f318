"""What the measures share: rows, moments, distances, neighbours, streaming."""
