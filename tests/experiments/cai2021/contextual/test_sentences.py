"""The layers of least and largest values are named, unless they tie."""

from clip_geometry_experiments.cai2021.contextual.figures import sentences


def rows(measure, values, error=None, **more):
    return [
        {"measure": measure, "value": value, "standard_error": error, "at": {"layer": layer}, "d": 128, **more}
        for layer, value in values.items()
    ]


CONE = rows("inter_type_cosine", {0: 0.01, 1: 0.3, 2: 0.6})
WITHIN = rows("intra_type_cosine", {0: 0.9, 1: 0.8, 2: 0.7})
CLUSTERS = [
    *rows("contextual.adjusted_inter", {0: -0.1, 2: 0.02}),
    *rows("contextual.clusters", {0: 4, 1: 2, 2: 4}),
]


def test_cones_clusters_and_dimensions():
    lid = rows("lid", {0: 4.0, 2: 9.0}, 0.25, null_value=45.5)
    cone, clusters, dimensions = sentences([("", [*CONE, *WITHIN, *CLUSTERS, *lid])])
    assert cone == (
        "Two words of different types have a mean cosine of 0.0100 (layer 0) to 0.6000 (layer 2) and two occurrences "
        "of one word of 0.7000 (layer 2) to 0.9000 (layer 0); without a common direction it is 0."
    )
    assert clusters.startswith(
        "After subtracting the mean of each of 2, 4 k-means clusters the cosine between types is −"
    )
    assert dimensions == (
        "The local intrinsic dimension is 4.00 ± 0.25 (layer 0) to 9.00 ± 0.25 (layer 2) of 128; rows of an isotropic "
        "Gaussian have 45.50 or more."
    )


def test_dimensions_within_their_errors_tie():
    (told,) = sentences([("", rows("lid", {0: 4.0, 2: 4.5}, 0.25))])
    assert "4.00 ± 0.25 to 4.50 ± 0.25 over the layers, equal within two standard errors of 128." in told
