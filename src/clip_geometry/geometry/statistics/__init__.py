"""Statistics that measures are functions of. Each is computed once, shared, and supports all modes of computation."""

from clip_geometry.geometry.statistics.class_distances import ClassDistances as ClassDistances
from clip_geometry.geometry.statistics.class_distances import ModalityDistances as ModalityDistances
from clip_geometry.geometry.statistics.distributions import Projections as Projections
from clip_geometry.geometry.statistics.kernels import CrossKernelSums as CrossKernelSums
from clip_geometry.geometry.statistics.kernels import KernelSums as KernelSums
from clip_geometry.geometry.statistics.kernels import LinearKernels as LinearKernels
from clip_geometry.geometry.statistics.moments import Moments as Moments
from clip_geometry.geometry.statistics.neighbors import Neighbors as Neighbors
from clip_geometry.geometry.statistics.spectrum import Partition as Partition
from clip_geometry.geometry.statistics.spectrum import Spectrum as Spectrum
from clip_geometry.geometry.statistics.statistic import BlockedRows as BlockedRows
from clip_geometry.geometry.statistics.statistic import Statistic as Statistic
from clip_geometry.geometry.statistics.sums import Means as Means
from clip_geometry.geometry.statistics.sums import PairDistance as PairDistance
from clip_geometry.geometry.statistics.sums import UnitPairs as UnitPairs
from clip_geometry.geometry.statistics.sums import UnitSums as UnitSums
