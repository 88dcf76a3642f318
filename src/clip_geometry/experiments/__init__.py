"""Experiments: a question each."""

from clip_geometry.experiments.base import Cell, Experiment, RunConfig, Workspace, experiments
from clip_geometry.experiments.geometry import Geometry
from clip_geometry.registry import import_all

import_all(__name__)

__all__ = ["Cell", "Experiment", "Geometry", "RunConfig", "Workspace", "experiments"]
