"""The measures: free functions of rows, and the table that says what each of them means.

What comes out has the kind of what went in: rows that are tensors give differentiable 0-d tensors on the device of the
rows; numpy arrays, lists and tables give floats, and arrays where there is a number for each row or direction.
"""

from clip_geometry.catalog import GROUPS, INVARIANCES
from clip_geometry.geometry.agreement.imbalance import information_imbalance
from clip_geometry.geometry.agreement.neighbors import cknna, cycle_knn
from clip_geometry.geometry.agreement.similarity import linear_cka, mutual_knn
from clip_geometry.geometry.clusters.collapse import NeuralCollapse, neural_collapse
from clip_geometry.geometry.clusters.silhouette import silhouette, silhouette_samples
from clip_geometry.geometry.clusters.type_cosine import inter_type_cosine, intra_type_cosine
from clip_geometry.geometry.cone import Cone, cone, cone_mean_cosine
from clip_geometry.geometry.conformity import conformity, conformity_std
from clip_geometry.geometry.cosine import average_cosine, matching_cosine, min_pairwise_cosine, random_cosine
from clip_geometry.geometry.dimension.nearest import local_intrinsic_dimension, two_nn
from clip_geometry.geometry.distributions.energy import energy_distance
from clip_geometry.geometry.distributions.isotropy_tests import (
    IsotropyTest,
    bingham_test,
    rayleigh_test,
    sphericity_test,
)
from clip_geometry.geometry.distributions.sliced_wasserstein import gap_shift_share, sliced_wasserstein
from clip_geometry.geometry.distributions.spectral import spectral_discrepancy
from clip_geometry.geometry.gap import modality_gap, modality_silhouette, relative_modality_gap
from clip_geometry.geometry.isoscore import isoscore, isoscore_star, participation_ratio
from clip_geometry.geometry.measure import Measure, add_measure, by_group, measures, variant
from clip_geometry.geometry.neighborhoods.hubness import hubness
from clip_geometry.geometry.neighborhoods.hubs import Hubs, cross_hubs, hubs
from clip_geometry.geometry.neighborhoods.lisi import clisi, ilisi, lisi
from clip_geometry.geometry.null import null_value
from clip_geometry.geometry.partition import PartitionIsotropy, partition_isotropy, partition_over
from clip_geometry.geometry.spectrum import alpha_req, nesum
from clip_geometry.geometry.spread import coordinate_spread, coordinate_std, effective_rank, singular_values
from clip_geometry.geometry.statistics.moments import Moments
from clip_geometry.geometry.uncertainty import PermutationTest, permutation_test, standard_error
from clip_geometry.geometry.uniformity import alignment, cross_uniformity, uniformity
from clip_geometry.registry import import_all

import_all(__name__)  # a new file registers its measures by being there

__all__ = [
    "GROUPS",
    "INVARIANCES",
    "Cone",
    "Hubs",
    "IsotropyTest",
    "Measure",
    "Moments",
    "NeuralCollapse",
    "PartitionIsotropy",
    "PermutationTest",
    "add_measure",
    "alignment",
    "alpha_req",
    "average_cosine",
    "bingham_test",
    "by_group",
    "cknna",
    "clisi",
    "cone",
    "cone_mean_cosine",
    "conformity",
    "conformity_std",
    "coordinate_spread",
    "coordinate_std",
    "cross_hubs",
    "cross_uniformity",
    "cycle_knn",
    "effective_rank",
    "energy_distance",
    "gap_shift_share",
    "hubness",
    "hubs",
    "ilisi",
    "information_imbalance",
    "inter_type_cosine",
    "intra_type_cosine",
    "isoscore",
    "isoscore_star",
    "linear_cka",
    "lisi",
    "local_intrinsic_dimension",
    "matching_cosine",
    "measures",
    "min_pairwise_cosine",
    "modality_gap",
    "modality_silhouette",
    "mutual_knn",
    "nesum",
    "neural_collapse",
    "null_value",
    "participation_ratio",
    "partition_isotropy",
    "partition_over",
    "permutation_test",
    "random_cosine",
    "rayleigh_test",
    "relative_modality_gap",
    "silhouette",
    "silhouette_samples",
    "singular_values",
    "sliced_wasserstein",
    "spectral_discrepancy",
    "sphericity_test",
    "standard_error",
    "two_nn",
    "uniformity",
    "variant",
]
