"""Is this index broken? Checks of a folder of embeddings, each finding with its evidence, consequence and remedy."""
