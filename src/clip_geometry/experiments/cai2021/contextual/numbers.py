"""What the contextual experiment tells beside the registered measures."""

from clip_geometry.experiments.kit.explained import INFINITY, explainer

SOURCE = "Cai et al. 2021, openreview:xYGNO86OWDH"


_number = explainer("contextual", reference=SOURCE, group="clusters")


_CLUSTERS = (
    "The clusters are those of k-means, found in the same rows; with one cluster, where no silhouette is good enough, "
    "it is the cosine of centred rows and says nothing of clusters."
)
NUMBERS = (
    _number(
        "adjusted_inter",
        "Cosine between types, adjusted",
        "The mean cosine of rows of two different types inside a cluster, after the cluster's mean was subtracted.",
        "Near 0 where the plain one is high: the cone was an offset, or a few clusters, and the inside is isotropic.",
        _CLUSTERS,
        "mean over clusters c, each counted once, of (‖Σm_t‖² − Σ‖m_t‖²)/(T(T − 1)), m_t the mean unit row of w − μ_c "
        "of type t in c",
        -1,
        1,
        direction="lower is more isotropic",
    ),
    _number(
        "adjusted_intra",
        "Cosine within types, adjusted",
        "The mean cosine of two rows of one type inside a cluster, after the cluster's mean was subtracted.",
        "High: a word keeps its own direction in every context. Near 0: context decides.",
        _CLUSTERS,
        "mean over clusters c, each counted once, of the mean over types of (‖Σ_t u‖² − n_t)/(n_t(n_t − 1)), u the "
        "unit rows of w − μ_c",
        -1,
        1,
        direction="higher is more clustered",
    ),
    _number(
        "clusters",
        "Number of clusters",
        "The k from 2 on whose k-means clusters have the best silhouette; 1 where that is too low.",
        "1: no division into a few clusters is better than none.",
        "k-means finds clusters in anything, and the threshold is a choice: a silhouette of .1 is not much.",
        "argmax over k of the mean Euclidean silhouette of a sample; 1 where it is below the threshold",
        1,
        INFINITY,
    ),
    _number(
        "silhouette",
        "Best silhouette of k-means clusters",
        "The mean silhouette of the clusters for the best k that was tried.",
        "Below .1 the rows count as one cluster.",
        "It is chosen as the largest of several, and Euclidean: a few coordinates of large variance decide it.",
        "max over k of mean_i (b_i − a_i)/max(a_i, b_i)",
        -1,
        1,
        direction="higher is more clustered",
    ),
    _number(
        "million_rows",
        "Rows, in millions",
        "How many rows there are, the n of Table 3.",
        "The local intrinsic dimension depends on it: the more rows, the nearer the 100th neighbour.",
        "Copies are counted here, and left out where neighbours are looked for.",
        "n / 10⁶",
        0,
        INFINITY,
        group="neighbours",
    ),
    _number(
        "columns",
        "Columns",
        "The dimension of the space, the m of Table 3.",
        "An upper bound of every dimension that is measured.",
        "Most spaces use far fewer.",
        "d",
        1,
        INFINITY,
        group="neighbours",
    ),
)
EXPLANATIONS = {each.name: each for each in NUMBERS}
"""What the report explains, by measure."""
