"""`cg.predicted_cone`: how narrow the cone of a freshly initialized model's embeddings is, from wide-network theory."""

from clip_geometry.initialization.prediction import PredictedCone, Stage, predicted_cone
from clip_geometry.initialization.statistics import (
    CAPTIONS,
    PHOTOGRAPHS,
    ImageStatistics,
    TextStatistics,
    image_statistics,
    text_statistics,
)

__all__ = [
    "CAPTIONS",
    "PHOTOGRAPHS",
    "ImageStatistics",
    "PredictedCone",
    "Stage",
    "TextStatistics",
    "image_statistics",
    "predicted_cone",
    "text_statistics",
]
