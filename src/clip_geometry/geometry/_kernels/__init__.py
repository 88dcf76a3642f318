"""Fused distances on GPUs. `distance_sums` imports Triton and is itself imported where it is used."""
