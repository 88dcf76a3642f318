"""Rudman and Eickhoff 2024: stable isotropic regularization."""
