"""Sentences state what the rows of the table state, and the figure draws every row in its place."""

from clip_geometry_experiments.studies.before_after.figures import PANELS, before_after_figure, draw_before_after
from clip_geometry_experiments.studies.before_after.sentences import Table, tell

OWN, FIRST = "retrieval[mixed].image.same_modality_at_10", "retrieval[mixed].image_to_text.r_at_1"
FIRST_OF_TEXT = "retrieval[mixed].text_to_image.r_at_1"
RECALL, RECALL_OF_TEXT = "retrieval.image_to_text.r_at_1", "retrieval.text_to_image.r_at_1"


def rows(name, n=414, errors=None, **values):
    """gap, cosine, score, own, first, recall, recall_of_text, silhouette, seen, held_out of a line of the table."""
    keys = {
        "gap": ("modality_gap", "both"),
        "silhouette": ("modality_silhouette", "both"),
        "cosine": ("average_cosine", "image"),
        "score": ("isoscore[unbiased]", "image"),
        "own": (OWN, "both"),
        "first": (FIRST, "both"),
        "first_of_text": (FIRST_OF_TEXT, "both"),
        "recall": (RECALL, "both"),
        "recall_of_text": (RECALL_OF_TEXT, "both"),
        "seen": ("zero_shot.top_1", "both"),
        "held_out": ("zero_shot.top_1", "both"),
    }
    found = []
    for key, value in values.items():
        measure, modality = keys[key]
        classes = {"seen": {"classes": "seen"}, "held_out": {"classes": "held out"}}.get(key, {})
        at = {"row": name, "modality": modality, **classes}
        error = (errors or {}).get(key)
        found.append(
            {"measure": measure, "value": value, "standard_error": error, "null_value": 0.0125, "n": n, "at": at}
        )
    return found


PLAIN = rows(
    "plain",
    gap=0.24,
    silhouette=0.02,
    cosine=0.2,
    score=0.025,
    own=0.81,
    first=0.134,
    recall=0.77,
    seen=0.9988,
    held_out=0.98,
)
CENTERED = rows(
    "centering",
    gap=0.017,
    silhouette=0.002,
    cosine=0.0004,
    score=0.027,
    own=0.7,
    first=0.37,
    recall=0.7,
    seen=0.96,
    held_out=0.87,
)
WHITE = rows(
    "whitening",
    gap=0.26,
    silhouette=0.02,
    cosine=0.012,
    score=0.64,
    own=1.0,
    first=0.0,
    recall=0.01,
    seen=0.02,
    held_out=0.017,
)
LEAST = rows(
    "squares",
    gap=0.013,
    silhouette=-0.001,
    cosine=0.2,
    score=0.025,
    own=0.45,
    first=0.7,
    recall=0.76,
    seen=0.99,
    held_out=0.96,
)
ALL = [*PLAIN, *CENTERED, *WHITE, *LEAST]


def says(sentence, *phrases):
    """All phrases, in this order."""
    places = [sentence.find(phrase) for phrase in phrases]
    assert -1 not in places and places == sorted(places), (sentence, dict(zip(phrases, places, strict=True)))
    assert sentence[0].isupper() or not sentence[0].isalpha()
    assert sentence.endswith(".") and "  " not in sentence and " ," not in sentence and " ." not in sentence


def test_what_is_told_of_a_model_and_its_maps():
    index, best, isotropic, accuracy, clusters, cone = tell(ALL, "plain")
    says(
        index,
        "81% of the ten rows",
        "even mix has 50%",
        "“centering”",
        "gap from 0.24 to 0.017",
        "70% are still images",
    )
    says(clusters, "silhouette", "is 0.020", "although 81% of the ten rows nearest to an image are images.")
    says(best, "On these pairs “squares” helps most", "comes first for 70% ± 2% of image queries, and 45% of the")
    says(best, "first ten results are of the query's modality; without a map, it comes first for 13% ± 2%.")
    says(best, "(image to text), is 77% without a map, 76% after “squares”: no loss beyond the standard error")
    says(cone, "“centering”", "from 0.20 to 0.000", "IsoScore at 0.027 (0.025 before)")
    says(
        isotropic,
        "IsoScore of 0.025",
        "over 99%",
        "“whitening” raises the IsoScore to 0.64, with 2% classified correctly",
    )
    says(accuracy, "over 99% of 414 unseen images of seen classes and 98% of 414 unseen images of held-out classes")
    says(accuracy, "correctly (chance 1.25%); after “centering” 96% and 87%: the held-out classes lose more, by ")
    says(accuracy, "points, the most of 3 that were compared, without a correction for choosing it.")


def test_maps_that_are_more_isotropic_without_a_loss_stand_beside_those_with_one():
    """One map with a loss does not show that isotropy costs accuracy: whitening with 8 directions keeps it."""
    eight = rows("eight", gap=0.06, own=0.56, score=0.96, seen=0.99, held_out=0.92)
    (said,) = (each for each in tell([*ALL, *eight], "plain") if each.startswith("More isotropic need not"))
    assert said.endswith("; no loss beyond the error is seen after “eight” (0.96, 99%).")


def test_nothing_is_told_that_the_rows_do_not_say():
    assert tell(PLAIN[:1], "plain") == []
    # a gap that no map closes, and accuracies that fall alike
    told = tell([*PLAIN, *rows("other", gap=0.2, own=0.6, seen=0.9, held_out=0.89)], "plain")
    assert told[0] == "81% of the ten rows nearest to an image are images, where an even mix has 50%."
    assert told[1].endswith("correctly (chance 1.25%).") and told[2].startswith("The silhouette with")


def test_maps_within_the_error_tie_and_what_recall_loses_stands_beside():
    """500 COCO pairs by CLIP ViT-B/16, some to fit on and some to score."""
    coco = [
        *rows("plain", n=50, own=1.0, first=0.0, recall=0.77, recall_of_text=0.75),
        *rows("Procrustes", n=50, errors={"first": 0.05}, own=0.55, first=0.17, recall=0.37, recall_of_text=0.4),
        *rows("squares", n=50, errors={"first": 0.06}, own=0.56, first=0.16, recall=0.75, recall_of_text=0.72),
    ]
    told = tell(coco, "plain")[1]
    says(told, "“Procrustes” and “squares”, a tie within two standard errors, help most", "for 17% ± 5% of image")
    says(told, "and 55% of the first ten", "; 16% ± 6% of image queries, and 56% of", "; without a map", "first for 0%")
    says(told, "(image to text and text to image), is 77% and 75% without a map,", "75% and 72% after “squares”: ")
    says(told, "37% and 40% after “Procrustes”; 75%", "“Procrustes” reduces recall beyond the standard error.")


def test_a_gain_within_the_error_is_no_help_and_a_loss_that_was_not_measured_is_said():
    plain = rows("plain", n=50, own=0.9, first=0.14)
    (_, told) = tell([*plain, *rows("map", n=50, own=0.8, first=0.18)], "plain")
    says(told, "Nothing here helps", "for 18% ± 5% of image queries with “map”, compared with 14% ± 5% without a map.")
    (_, told) = tell([*plain, *rows("map", n=50, own=0.8, first=0.8)], "plain")
    says(told, "On these pairs “map” helps most", "The effect on ordinary recall", "was not measured.")


def test_what_helps_most_helps_queries_of_both_modalities():
    """On the scenes of the quickstart, z-scores help image queries a little more than a posterior, and texts hardly."""
    told = tell(
        [
            *rows("plain", n=1000, own=0.78, first=0.16, first_of_text=0.37),
            *rows("z-score", n=1000, own=0.39, first=0.69, first_of_text=0.41),
            *rows("posterior", n=1000, own=0.58, first=0.66, first_of_text=0.67),
        ],
        "plain",
    )[1]
    says(
        told, "“posterior” helps most", "66% ± 1% and 67% ± 1% of image and text queries; without a map", "16% ± 1% and"
    )
    assert "z-score" not in told


def test_accuracies_within_the_error_are_told_as_no_loss():
    few = [
        *rows("plain", n=30, score=0.02, seen=0.9, held_out=0.9),
        *rows("m", n=30, score=0.2, seen=0.87, held_out=0.8),
    ]
    (told,) = tell(few, "plain")
    assert told.endswith("correctly (chance 1.25%).")


def test_modalities_that_are_clusters_are_not_called_hidden():
    clear = [*rows("plain", own=0.9, silhouette=0.4)]
    assert not any("silhouette" in sentence for sentence in tell(clear, "plain"))


def test_a_twin_is_no_map():
    twin = rows("untrained", gap=0.001, own=1.0, first=0.9, score=0.9, seen=0.01, held_out=0.01)
    assert tell([*twin, *ALL], "plain", ["untrained"]) == tell(ALL, "plain")


def test_every_number_is_drawn_on_its_line():
    table = Table(ALL)
    figure = before_after_figure(table, "plain")
    (gap,) = [line for axes in figure.axes[:1] for line in axes.lines if len(line.get_xdata()) == 4]
    assert list(gap.get_xdata()) == [0.24, 0.017, 0.26, 0.013]
    assert list(gap.get_ydata()) == [0, 1, 2, 3]
    assert [label.get_text() for label in figure.axes[0].get_yticklabels()] == [
        "plain",
        "centering",
        "whitening",
        "squares",
    ]


def test_the_reference_is_the_line_without_a_map_and_not_the_twin():
    figure = before_after_figure(Table([*rows("untrained", gap=1.2), *PLAIN]), "plain", PANELS[:1])
    lines = {tuple(line.get_xdata()) for line in figure.axes[0].lines}
    assert (0.24, 0.24) in lines and (0.0125, 0.0125) in lines and (1.2, 1.2) not in lines


def test_only_panels_with_numbers_are_drawn(tmp_path):
    (entry,) = draw_before_after(rows("plain", gap=0.2, seen=0.9), first="plain", folder=tmp_path, origin="Data.")
    assert entry.wide and entry.svg_path.is_file() and entry.png_path.is_file() and entry.caption.endswith("Data.")
    assert draw_before_after([], first="plain", folder=tmp_path, origin="") == []
    unknown = [{"measure": "uniformity", "value": 1, "at": {"row": "plain"}}]
    assert draw_before_after(unknown, first="plain", folder=tmp_path, origin="") == []
