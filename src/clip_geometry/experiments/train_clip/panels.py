"""What the figures of a training show: a panel for each measure, or for two that belong together."""

from typing import Any, NamedTuple

from clip_geometry.report.style import COLOUR, LINE

SEPARABILITY = "modality_separability.logistic_regression.cross_validated"
BOTH = "#24292F"  # of numbers that are of both modalities together
SECOND = "#AA4499"  # a second such number in a panel
DASHED = (0, (5, 1.5))


class Line(NamedTuple):
    """A curve of a panel. key: measure, modality, classes."""

    key: tuple[str, str, str]
    name: str
    colour: str
    style: Any


class Panel(NamedTuple):
    """limits: of its axis, None for those of the curves; a lower limit gives way to curves below it. decimals: of the
    first and the last value above it."""

    label: str
    lines: tuple[Line, ...]
    limits: tuple[float | None, float | None] = (None, None)
    decimals: int = 2
    log: bool = False


def _each(measure: str) -> tuple[Line, ...]:
    """Of images and of texts."""
    return tuple(
        Line((measure, modality, "all"), f"{modality}s", COLOUR[modality], LINE[modality])
        for modality in ("image", "text")
    )


def _both(measure: str, name: str = "", colour: str = BOTH, style: Any = "-", classes: str = "all") -> Line:
    return Line((measure, "both", classes), name, colour, style)


MAIN = (
    Panel("modality gap", (_both("modality_gap"),), (0, None)),
    Panel(
        "modalities apart",
        (_both("modality_silhouette", "silhouette"), _both(SEPARABILITY, "separability", SECOND, DASHED)),
        (0, 1.03),
    ),
    Panel("average cosine", _each("average_cosine"), (0, None)),
    Panel("class silhouette", _each("silhouette")),
    # the whole range, for what it is: in most trainings a flat line near 0
    Panel("IsoScore", _each("isoscore"), (0, 1), decimals=3),
    Panel(
        "zero-shot accuracy",
        (
            _both("zero_shot.top_1", "seen", classes="seen"),
            _both("zero_shot.top_1", "held out", SECOND, DASHED, "held out"),
        ),
        (0, 1.03),
    ),
)
MORE = (
    Panel("IsoScore, log axis", _each("isoscore"), decimals=3, log=True),
    Panel("I1", _each("isotropy_i1"), (0, 1.03)),
    Panel("I2", _each("isotropy_i2"), (0, None)),
    Panel("cone half angle, °", _each("cone_half_angle"), (0, None), decimals=0),
    Panel("uniformity", _each("uniformity")),
    Panel("alignment", (_both("alignment"),), (0, None)),
    Panel("relative gap", (_both("relative_modality_gap"),), (0, None)),
    Panel("loss", (_both("train_clip.loss"),), (0, None)),
    Panel("temperature", (_both("train_clip.temperature"),), (0, None), decimals=3),
    Panel("classifier accuracy", _each("train_clip.accuracy"), (0, 1.03)),
)
