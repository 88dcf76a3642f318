"""What the numbers of the semantic map mean, for the report."""

from dataclasses import dataclass

INFINITY = float("inf")


@dataclass(frozen=True)
class Explained:
    """What the report tells of a number (`report.table.Explanation`)."""

    name: str
    title: str
    summary: str
    reading: str
    trap: str
    formula: str
    range: tuple[float | str, float | str]
    direction: str
    reference: str
    group: str = "maps"
    unit: str = ""


NUMBERS = (
    Explained(
        name="semantic_map.trustworthiness",
        title="Trustworthiness of a map",
        summary="How far the nearest neighbours of a point on the map are neighbours among the embeddings.",
        reading="1: every neighbour on the map is one among the rows; about 1/2: the map is as good as random.",
        trap="It sees small neighbourhoods only (k = 10): a map may score high and tear clusters apart.",
        formula="1 − 2/(nk(2n − 3k − 1)) Σ_i Σ_{j ∈ kNN_map(i)} max(0, rank_rows(i, j) − k)",
        range=(0, 1),
        direction="higher is truer",
        reference="Venna & Kaski 2001, ICANN; scikit-learn manifold.trustworthiness",
    ),
    Explained(
        name="semantic_map.kl_divergence",
        title="KL divergence of t-SNE",
        summary="What t-SNE minimises: the divergence of the neighbour distribution on the map from that of the rows.",
        reading="0 would be a perfect map.",
        trap="Not comparable between perplexities or sizes: the distribution that is fitted is another.",
        formula="Σ p_ij log(p_ij/q_ij)",
        range=(0, INFINITY),
        direction="lower fits better",
        unit="nats",
        reference="van der Maaten & Hinton 2008, JMLR 9",
    ),
    Explained(
        name="semantic_map.disparity",
        title="Disparity of both maps",
        summary="What of the squares is left when the images' map is moved, turned and scaled onto the texts'.",
        reading="0: both maps are one picture; near 1 (disparity_shuffled): they have nothing in common.",
        trap="t-SNE places clusters arbitrarily: even two maps of the same rows differ (disparity_of_repeats).",
        formula="1 − (‖XᵀY‖_*)², X and Y centred, ‖X‖_F = ‖Y‖_F = 1",
        range=(0, 1),
        direction="lower agrees better",
        reference="Gower 1975, Psychometrika 40; scipy.spatial.procrustes",
    ),
    Explained(
        name="semantic_map.disparity_shuffled",
        title="Disparity of both maps, pairs shuffled",
        summary="The disparity that the same two maps have where images and texts are paired at random.",
        reading="Near 1: what unrelated maps give.",
        trap="Of the first start of t-SNE only.",
        formula="mean over 20 permutations of the pairs",
        range=(0, 1),
        direction="read beside the disparity",
        reference="Gower 1975, Psychometrika 40",
    ),
    Explained(
        name="semantic_map.disparity_of_repeats",
        title="Disparity of maps of the same rows",
        summary="How far two maps of the same rows differ whose starts differ by a hundredth.",
        reading="0: t-SNE finds one map; high: the places of its clusters are chance.",
        trap="No error of any other number; where it is high, a single picture tells little of what lies far apart.",
        formula="mean over pairs of starts of the disparity",
        range=(0, 1),
        direction="lower repeats better",
        reference="Gower 1975, Psychometrika 40",
    ),
    Explained(
        name="semantic_map.mutual_knn",
        title="Neighbours that both maps share",
        summary="The share of the ten nearest points that the images' and the texts' map agree on.",
        reading="1: the same neighbourhoods; k/(n − 1): unrelated maps. Read it beside mutual_knn of the rows.",
        trap="It depends on k/n: compare equal n and k only.",
        formula="mean_i |kNN_image(i) ∩ kNN_text(i)|/k on the planes, Euclidean",
        range=(0, 1),
        direction="higher agrees better",
        reference="Huh et al. 2024, arXiv:2405.07987",
    ),
)
EXPLANATIONS = {each.name: each for each in NUMBERS}
