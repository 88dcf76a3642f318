"""Triton kernels. Each module imports Triton and is itself imported where it is used, never with the package."""
