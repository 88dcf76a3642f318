"""The measures: free functions of rows, and the table that says what each of them means.

What comes out has the kind of what went in: rows that are tensors give differentiable 0-d tensors on the device of the
rows; numpy arrays, lists and tables give floats, and arrays where there is a number for each row or direction.
"""

from clip_geometry.catalog import GROUPS as GROUPS
from clip_geometry.catalog import INVARIANCES as INVARIANCES
from clip_geometry.geometry.agreement import cknna as cknna
from clip_geometry.geometry.agreement import cycle_knn as cycle_knn
from clip_geometry.geometry.agreement import information_imbalance as information_imbalance
from clip_geometry.geometry.agreement import linear_cka as linear_cka
from clip_geometry.geometry.agreement import mutual_knn as mutual_knn
from clip_geometry.geometry.collapse import NeuralCollapse as NeuralCollapse
from clip_geometry.geometry.collapse import neural_collapse as neural_collapse
from clip_geometry.geometry.cosine import Cone as Cone
from clip_geometry.geometry.cosine import average_cosine as average_cosine
from clip_geometry.geometry.cosine import cone as cone
from clip_geometry.geometry.cosine import cone_mean_cosine as cone_mean_cosine
from clip_geometry.geometry.cosine import conformity as conformity
from clip_geometry.geometry.cosine import conformity_std as conformity_std
from clip_geometry.geometry.cosine import inter_type_cosine as inter_type_cosine
from clip_geometry.geometry.cosine import intra_type_cosine as intra_type_cosine
from clip_geometry.geometry.cosine import matching_cosine as matching_cosine
from clip_geometry.geometry.cosine import min_pairwise_cosine as min_pairwise_cosine
from clip_geometry.geometry.cosine import random_cosine as random_cosine
from clip_geometry.geometry.dimension import local_intrinsic_dimension as local_intrinsic_dimension
from clip_geometry.geometry.dimension import two_nn as two_nn
from clip_geometry.geometry.gap import energy_distance as energy_distance
from clip_geometry.geometry.gap import gap_shift_share as gap_shift_share
from clip_geometry.geometry.gap import modality_gap as modality_gap
from clip_geometry.geometry.gap import relative_modality_gap as relative_modality_gap
from clip_geometry.geometry.gap import sliced_wasserstein as sliced_wasserstein
from clip_geometry.geometry.hubness import Hubs as Hubs
from clip_geometry.geometry.hubness import cross_hubs as cross_hubs
from clip_geometry.geometry.hubness import hubness as hubness
from clip_geometry.geometry.hubness import hubs as hubs
from clip_geometry.geometry.isoscore import isoscore as isoscore
from clip_geometry.geometry.isoscore import isoscore_star as isoscore_star
from clip_geometry.geometry.isoscore import participation_ratio as participation_ratio
from clip_geometry.geometry.isotropy import IsotropyTest as IsotropyTest
from clip_geometry.geometry.isotropy import PartitionIsotropy as PartitionIsotropy
from clip_geometry.geometry.isotropy import bingham_test as bingham_test
from clip_geometry.geometry.isotropy import partition_isotropy as partition_isotropy
from clip_geometry.geometry.isotropy import partition_over as partition_over
from clip_geometry.geometry.isotropy import rayleigh_test as rayleigh_test
from clip_geometry.geometry.isotropy import sphericity_test as sphericity_test
from clip_geometry.geometry.lisi import clisi as clisi
from clip_geometry.geometry.lisi import ilisi as ilisi
from clip_geometry.geometry.lisi import lisi as lisi
from clip_geometry.geometry.measure import Measure as Measure
from clip_geometry.geometry.measure import add_measure as add_measure
from clip_geometry.geometry.measure import by_group as by_group
from clip_geometry.geometry.measure import measures as measures
from clip_geometry.geometry.measure import variant as variant
from clip_geometry.geometry.silhouette import modality_silhouette as modality_silhouette
from clip_geometry.geometry.silhouette import sampled_silhouette as sampled_silhouette
from clip_geometry.geometry.silhouette import silhouette as silhouette
from clip_geometry.geometry.silhouette import silhouette_samples as silhouette_samples
from clip_geometry.geometry.spectrum import alpha_req as alpha_req
from clip_geometry.geometry.spectrum import coordinate_spread as coordinate_spread
from clip_geometry.geometry.spectrum import coordinate_std as coordinate_std
from clip_geometry.geometry.spectrum import effective_rank as effective_rank
from clip_geometry.geometry.spectrum import nesum as nesum
from clip_geometry.geometry.spectrum import singular_values as singular_values
from clip_geometry.geometry.spectrum import spectral_discrepancy as spectral_discrepancy
from clip_geometry.geometry.statistics.moments import Moments as Moments
from clip_geometry.geometry.uncertainty import PermutationTest as PermutationTest
from clip_geometry.geometry.uncertainty import null_value as null_value
from clip_geometry.geometry.uncertainty import permutation_test as permutation_test
from clip_geometry.geometry.uncertainty import standard_error as standard_error
from clip_geometry.geometry.uniformity import alignment as alignment
from clip_geometry.geometry.uniformity import cross_uniformity as cross_uniformity
from clip_geometry.geometry.uniformity import uniformity as uniformity
from clip_geometry.registry import import_all

import_all(__name__)  # a new file registers its measures by being there
