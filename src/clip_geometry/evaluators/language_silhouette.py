"""The silhouette of captions with their language as label: are languages clusters?"""

from dataclasses import replace

from clip_geometry.evaluators.base import evaluators
from clip_geometry.geometry import measures

for _variant in ("", "[cosine]"):
    _silhouette = measures[f"silhouette{_variant}"]
    evaluators.add(
        f"language_silhouette{_variant}",
        replace(
            _silhouette,
            name=f"language_silhouette{_variant}",
            group="languages",
            takes="languages",
            title=_silhouette.title.replace("the labels", "the languages"),
            summary="How much closer a caption lies to captions of its own language than to those of the nearest "
            "other one.",
            reading="At 0 or just below (−1/n if translations coincide) a row does not reveal its language; if it is "
            "higher, languages are clusters.",
            trap="Low is not aligned: centering each language removes the clusters and leaves translations as far "
            "apart as before. A language that the model cannot read collapses into a tight cluster.",
            direction="lower is less divided by language",
        ),
    )
