"""The experiment `geometry`: the registered measures and standard figures of one model on one set of pairs."""

from clip_geometry_experiments.kit.base import experiments
from clip_geometry_experiments.kit.geometry import GeometryExperiment


class Geometry(GeometryExperiment):
    """Measures the geometry of one model on one set of pairs. A cell is one measure."""


experiments.add("geometry", Geometry)
