"""The measures: free functions of rows, and the table that says what each of them means."""

from clip_geometry.geometry.cone import Cone, cone
from clip_geometry.geometry.cosine import average_cosine, matching_cosine, min_pairwise_cosine, random_cosine
from clip_geometry.geometry.gap import modality_gap, modality_silhouette, relative_modality_gap
from clip_geometry.geometry.isoscore import isoscore, isoscore_star, participation_ratio
from clip_geometry.geometry.measure import GROUPS, INVARIANCES, Measure, add_measure, by_group, measures, variant
from clip_geometry.geometry.moments import Moments
from clip_geometry.geometry.null import null_value
from clip_geometry.geometry.partition import PartitionIsotropy, partition_isotropy
from clip_geometry.geometry.silhouette import silhouette, silhouette_samples
from clip_geometry.geometry.spread import coordinate_spread, coordinate_std, effective_rank, singular_values

__all__ = [
    "GROUPS",
    "INVARIANCES",
    "Cone",
    "Measure",
    "Moments",
    "PartitionIsotropy",
    "add_measure",
    "average_cosine",
    "by_group",
    "cone",
    "coordinate_spread",
    "coordinate_std",
    "effective_rank",
    "isoscore",
    "isoscore_star",
    "matching_cosine",
    "measures",
    "min_pairwise_cosine",
    "modality_gap",
    "modality_silhouette",
    "null_value",
    "participation_ratio",
    "partition_isotropy",
    "random_cosine",
    "relative_modality_gap",
    "silhouette",
    "silhouette_samples",
    "singular_values",
    "variant",
]
