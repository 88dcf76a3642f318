"""Linear probe on images after maps (Tyshchuk et al. 2023, Table 5)."""

from typing import ClassVar, Literal

from pydantic import Field, field_validator

from clip_geometry.evaluate import linear_probe
from clip_geometry.registry import InputError
from clip_geometry.results import Row
from clip_geometry_experiments.kit.base import experiments
from clip_geometry_experiments.kit.maps import MapConfig, ProbeConfig, ProbeExperiment


class LinearProbeConfig(ProbeConfig):
    """Config of the experiment `linear_probe`.

    Args:
        C: Inverse regularization strength, > 0, or "validation" to choose it on held-out rows.
        solver: Solver of `clip_geometry.evaluate.linear_probe`, "sklearn" or "torch".
        max_iter: Maximum number of iterations of the solver.
    """

    SCORED: ClassVar = ("train", "test")

    C: float | str = 1.0
    solver: Literal["sklearn", "torch"] = "sklearn"
    max_iter: int = Field(default=1000, ge=1)

    @field_validator("C")
    @classmethod
    def _strength(cls, C: float | str) -> float | str:
        if C != "validation" and (isinstance(C, str) or not C > 0):
            raise InputError(f"C is {C!r}; expected a positive number or 'validation'")
        return C


class LinearProbe(ProbeExperiment):
    Config = LinearProbeConfig
    drawn: ClassVar = {"linear_probe.top_1": "top 1", "linear_probe.top_5": "top 5"}
    in_brief: ClassVar = {"linear_probe.top_1": "accuracy of a linear probe"}

    def rows(self, map_config: MapConfig) -> list[Row]:
        config = self.config
        fitted = self.fitted(map_config)
        train, test = (self.sets(split)["image"] for split in ("train", "test"))
        if train.labels is None or test.labels is None:
            raise InputError(
                f"the probe {config.probe.name} has no labels, which a linear probe learns; choose labeled images"
            )
        rows = (fitted.transform({"image": side.vectors})["image"] for side in (train, test))
        x, y = (part.astype("float32") for part in rows)
        scores = linear_probe(
            x,
            train.labels,
            y,
            test.labels,
            C=config.C,
            solver=config.solver,
            max_iter=config.max_iter,
            seed=config.seed,
        )
        converged = scores["iterations"] < config.max_iter
        note = f"C = {scores['C']:g}, {config.solver}, {scores['iterations']:.0f} iterations"
        return self.share_rows(
            map_config,
            "linear_probe",
            {key: value for key, value in scores.items() if key not in ("loss", "iterations", "C")},
            {"image": test},
            fitted.fitted_on,
            d=x.shape[1],
            dtype="float32",
            note=note + ("" if converged else ", not converged"),
        )


experiments.add("linear_probe", LinearProbe)
