"""Runs of configs: cells that resume, sweeps, configs with several parts, and the commands `run` and `init`."""
