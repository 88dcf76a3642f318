"""Experiments: a question each."""

from clip_geometry.experiments.base import Cell, Experiment, RunConfig, Workspace, experiments
from clip_geometry.experiments.geometry import Geometry

__all__ = ["Cell", "Experiment", "Geometry", "RunConfig", "Workspace", "experiments"]
