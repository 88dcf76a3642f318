"""The geometry of one model on one set of pairs: the registered measures and the standard figures."""

from clip_geometry.experiments.kit.base import experiments
from clip_geometry.experiments.kit.geometry import GeometryConfig, GeometryExperiment


class Geometry(GeometryExperiment):
    Config = GeometryConfig
    summary = "every measure of one model's image and text embeddings, with figures"


experiments.add("geometry", Geometry)
