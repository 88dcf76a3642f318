"""Rows as a distribution: distances of two, tests and fits of one."""
