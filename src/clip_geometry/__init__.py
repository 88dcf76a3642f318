"""clip-geometry: measures, explains and changes the geometry of multimodal embeddings.

Public names are imported at first use, so that `import clip_geometry` is instant.
"""

from importlib import import_module
from typing import Any

_HOME = {
    "clip_geometry.data": ["load_dataset", "resolve_dataset"],
    "clip_geometry.diagnosis": ["Diagnosis", "Finding", "diagnose"],
    "clip_geometry.diagnosis.comparison": ["Candidate", "RepairComparison", "compare_repairs"],
    "clip_geometry.diagnosis.index": ["MixedIndex"],
    "clip_geometry.diagnosis.search": ["search_index"],
    "clip_geometry.embedding.loop": ["embed"],
    "clip_geometry.embeddings": ["Embeddings", "pair"],
    "clip_geometry.encoders": ["load_encoder", "paired_image_model", "resolve_encoder"],
    "clip_geometry.evaluators": [
        "class_generalization",
        "contrastive_loss",
        "cosine_distributions",
        "cosine_histograms",
        "ensemble",
        "language_distance",
        "linear_probe",
        "modality_separability",
        "neighborhood_preservation",
        "preserved_neighbors",
        "Relevance",
        "retrieval",
        "two_sided_retrieval",
        "two_sided_scores",
        "zero_shot",
    ],
    "clip_geometry.measuring.comparison": ["Change", "Comparison", "compare"],
    "clip_geometry.measurement": ["Estimate", "Measurement", "measure"],
    "clip_geometry.measuring.sets": ["MeasuredSets", "measure_sets"],
    "clip_geometry.explorer": ["Exploration", "explore"],
    "clip_geometry.formats": ["export_clip_retrieval", "export_parquet", "read_any", "read_embeddings"],
    "clip_geometry.formats.writers": ["export"],
    "clip_geometry.geometry.checked_silhouette": ["checked_silhouette"],
    "clip_geometry.geometry.sampled_silhouette": ["sampled_silhouette"],
    "clip_geometry.embedding.engines": ["open_engine"],
    "clip_geometry.geometry": [
        "Measure",
        "Moments",
        "add_measure",
        "alignment",
        "average_cosine",
        "cone",
        "conformity",
        "conformity_std",
        "coordinate_spread",
        "coordinate_std",
        "effective_rank",
        "hubness",
        "inter_type_cosine",
        "intra_type_cosine",
        "isoscore",
        "isoscore_star",
        "linear_cka",
        "local_intrinsic_dimension",
        "matching_cosine",
        "measures",
        "min_pairwise_cosine",
        "modality_gap",
        "modality_silhouette",
        "mutual_knn",
        "null_value",
        "objectives",
        "participation_ratio",
        "partition_isotropy",
        "partition_over",
        "permutation_test",
        "PermutationTest",
        "random_cosine",
        "relative_modality_gap",
        "silhouette",
        "silhouette_samples",
        "singular_values",
        "standard_error",
        "two_nn",
        "uniformity",
        "variant",
    ],
    "clip_geometry.losses": ["CosReg", "IStar"],
    "clip_geometry.registry": ["InputError"],
    "clip_geometry.repairs": ["Known", "Repair", "make_repair"],
    "clip_geometry.results": ["Record", "Results", "read_rows", "to_frame"],
    "clip_geometry.runner": ["run"],
    "clip_geometry.shipping.models": ["export_model"],
    "clip_geometry.embedding.reading": ["read_store"],
    "clip_geometry.transforms": [
        "Affine",
        "AllButTheTop",
        "Center",
        "ClusterCenter",
        "Compose",
        "FittedPipeline",
        "LeastSquares",
        "Normalize",
        "PCA",
        "Pipeline",
        "Procrustes",
        "RankWarning",
        "Scale",
        "Whiten",
        "parse_pipeline",
        "prepare",
    ],
}
_MODULE = {name: module for module, names in _HOME.items() for name in names}

__all__ = sorted(_MODULE)  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> Any:
    if name not in _MODULE:
        raise AttributeError(f"module 'clip_geometry' has no attribute {name!r}")
    return getattr(import_module(_MODULE[name]), name)


def __dir__() -> list[str]:
    return __all__
