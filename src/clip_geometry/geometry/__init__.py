"""Geometry measures as plain functions of rows, and the registry that describes each measure.

Results follow the type of the input. Tensors give differentiable 0-d tensors on the device of the rows. Numpy arrays,
lists and tables give floats, or arrays for functions that return one number per row or direction.
"""

from clip_geometry.catalog import GROUPS, INVARIANCES
from clip_geometry.geometry.agreement import cknna, cycle_knn, information_imbalance, linear_cka, mutual_knn
from clip_geometry.geometry.collapse import NeuralCollapse, neural_collapse
from clip_geometry.geometry.cosine import (
    Cone,
    average_cosine,
    cone,
    cone_mean_cosine,
    conformity,
    conformity_std,
    inter_type_cosine,
    intra_type_cosine,
    matching_cosine,
    min_pairwise_cosine,
    random_cosine,
)
from clip_geometry.geometry.dimension import local_intrinsic_dimension, two_nn
from clip_geometry.geometry.gap import (
    energy_distance,
    gap_shift_share,
    modality_gap,
    relative_modality_gap,
    sliced_wasserstein,
)
from clip_geometry.geometry.hubness import Hubs, cross_hubs, hubness, hubs
from clip_geometry.geometry.isoscore import isoscore, isoscore_star, participation_ratio
from clip_geometry.geometry.isotropy import (
    IsotropyTest,
    PartitionIsotropy,
    bingham_test,
    partition_isotropy,
    partition_over,
    rayleigh_test,
    sphericity_test,
)
from clip_geometry.geometry.lisi import clisi, ilisi, lisi
from clip_geometry.geometry.measure import Measure, add_measure, by_group, measures, variant
from clip_geometry.geometry.silhouette import modality_silhouette, sampled_silhouette, silhouette, silhouette_samples
from clip_geometry.geometry.spectrum import (
    alpha_req,
    coordinate_spread,
    coordinate_std,
    effective_rank,
    nesum,
    singular_values,
    spectral_discrepancy,
)
from clip_geometry.geometry.uncertainty import PermutationTest, null_value, permutation_test, standard_error
from clip_geometry.geometry.uniformity import alignment, cross_uniformity, uniformity
from clip_geometry.registry import import_all

import_all(__name__)  # importing a module registers its measures, so a new file needs no entry here

__all__ = [
    "GROUPS",
    "INVARIANCES",
    "Cone",
    "Hubs",
    "IsotropyTest",
    "Measure",
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
    "sampled_silhouette",
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


def __dir__() -> list[str]:
    return __all__
