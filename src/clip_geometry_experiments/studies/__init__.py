"""Our own studies: trainings of small models, the repair table, intra-modal retrieval."""
