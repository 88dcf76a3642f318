"""Runs of configs: cells that resume, sweeps, parts, and the commands `run` and `init`."""
