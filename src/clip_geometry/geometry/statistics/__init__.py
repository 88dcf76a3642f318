"""What measures are functions of: each statistic is computed once and shared, and knows every mode of its own."""

from clip_geometry.geometry.statistics.class_distances import ClassDistances, MeanDistances, ModalityDistances
from clip_geometry.geometry.statistics.distance_means import DistanceMeans
from clip_geometry.geometry.statistics.kernel_sums import CrossKernelSums, KernelSums
from clip_geometry.geometry.statistics.linear_kernels import LinearKernels
from clip_geometry.geometry.statistics.moments import Moments
from clip_geometry.geometry.statistics.neighbors import Neighbors, PairedNeighbors
from clip_geometry.geometry.statistics.partition import Partition
from clip_geometry.geometry.statistics.projections import Projections
from clip_geometry.geometry.statistics.spectrum import Spectrum
from clip_geometry.geometry.statistics.statistic import Dealt, Statistic
from clip_geometry.geometry.statistics.sums import Means, PairDistance, UnitPairs, UnitSums

__all__ = [
    "ClassDistances",
    "CrossKernelSums",
    "Dealt",
    "DistanceMeans",
    "KernelSums",
    "LinearKernels",
    "MeanDistances",
    "Means",
    "ModalityDistances",
    "Moments",
    "Neighbors",
    "PairDistance",
    "PairedNeighbors",
    "Partition",
    "Projections",
    "Spectrum",
    "Statistic",
    "UnitPairs",
    "UnitSums",
]
