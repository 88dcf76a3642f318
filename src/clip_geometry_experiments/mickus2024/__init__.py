"""Mickus et al. 2024."""
