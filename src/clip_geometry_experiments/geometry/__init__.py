"""The geometry of one model on one set of pairs: the registered measures and the standard figures."""

from clip_geometry_experiments.kit.base import experiments
from clip_geometry_experiments.kit.geometry import GeometryExperiment


class Geometry(GeometryExperiment):
    """A cell is one measure."""


experiments.add("geometry", Geometry)
