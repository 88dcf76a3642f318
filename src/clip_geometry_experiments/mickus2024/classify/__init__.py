"""Embeddings trained under a classifier (Mickus et al. 2024): do clusters form, and does isotropy fall with them?"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np

from clip_geometry.config import digest
from clip_geometry.display.origin import option_words
from clip_geometry.encoders.runtime import resolve_device
from clip_geometry.results import Row
from clip_geometry_experiments.kit.base import (
    Cell,
    Experiment,
    distinct_labels,
    experiments,
    numbered_labels,
    origin_words,
    read_explanations,
)
from clip_geometry_experiments.kit.training import Checkpoint
from clip_geometry_experiments.mickus2024.classify import training
from clip_geometry_experiments.mickus2024.classify.figures import draw_classify, draw_tasks, first_relation, sentences
from clip_geometry_experiments.mickus2024.classify.task import ClassifyConfig, Loaded, load
from clip_geometry_experiments.mickus2024.classify.training import (
    SHUFFLED,
    correlated,
    curves_of,
    deviation_rows,
    layer_correlation_rows,
    size_rows,
    state_row,
)
from clip_geometry_experiments.report.figures import FigureEntry, save_drawings
from clip_geometry_experiments.tasks import Task, load_task


class Classify(Experiment):
    """Figures 2-4 and Tables 1-3 of Mickus et al. 2024: the embeddings are parameters, trained under one linear layer.

    A cell is a seed. Each record of a cell holds all recorded states of one number in `trajectory`, at updates 0,
    every, … and the last; the value of the record is the last state. Every seed is trained a second time with shuffled
    labels. The last cell pools the seeds.
    """

    Config = ClassifyConfig
    explanations = read_explanations(Path(__file__).with_name("numbers.yaml"))
    explanations |= read_explanations(Path(__file__).with_name("objectives.yaml"))

    @cached_property
    def _task(self) -> Task | None:
        return None if self.config.task is None else load_task(self.config.task)

    @cached_property
    def loaded(self) -> Loaded:
        return load(self.config, self.workspace, self._task)

    # --- cells

    def cells(self) -> Iterator[Cell]:
        config = self.config
        for shuffled in (False, True) if config.shuffled else (False,):
            suffix = f", {SHUFFLED}" if shuffled else ""
            for seed in config.seeds:
                define = {"measure": "classify", "of": f"a seed{suffix}", "classifier_seed": seed, **self._shared}
                rows = partial(self._seed_rows, digest(define), seed, shuffled=shuffled)
                yield Cell(define, rows, f"seed {seed}{suffix}")
        define = {"measure": "classify", "of": "all seeds", "seeds": list(config.seeds), **self._shared}
        yield Cell(define | ({"null": SHUFFLED} if config.shuffled else {}), self._pooled_rows, "all seeds")

    @cached_property
    def _shared(self) -> dict[str, Any]:
        """Everything that the numbers depend on besides the seeds."""
        config = self.config
        unused = ("task",) if config.task is None else ("data", "modality")
        shared = config.settings("seeds", "shuffled", *unused) | self.workspace.revisions(config.model, config.items)
        return shared if self._task is None else shared | {"task_revision": self._task.revision}

    def _seed_rows(self, key: str, seed: int, *, shuffled: bool) -> list[Row]:
        """Train one seed and return its result rows.

        `key` is the key of the cell, which names the checkpoint. With `shuffled`, the labels are permuted at random,
        and only the measures that enter correlations are recorded.
        """
        config, loaded = self.config, self.loaded
        trainer = training.ClassificationTrainer(
            loaded.trained.shuffled(seed) if shuffled else loaded.trained,
            config,
            updates=config.updates,
            seed=seed,
            unseen=None if shuffled else loaded.unseen,
            device=resolve_device(getattr(self.workspace, "device", "auto")),
        )
        measures = correlated(config.measures) if shuffled else config.measures
        trajectory = trainer.run(
            self._recorded.tolist(),
            training.ClassificationCallback(measures, config.sample, config.seed),
            checkpoint=Checkpoint.of(self.workspace.folder, key),
            name=f"{loaded.task.name}, seed {seed}{', ' + SHUFFLED if shuffled else ''}",
        )
        if shuffled:
            trajectory = {
                place._replace(examples=SHUFFLED): values
                for place, values in trajectory.items()
                if place.layer != "output"
            }
        rows: list[Row] = [state_row(config, loaded, place, values, seed) for place, values in trajectory.items()]
        rows += [] if shuffled else layer_correlation_rows(config, curves_of(rows), seed)
        return [{**loaded.context, "updates": config.updates, "seeds": 1, **row} for row in rows]

    def _pooled_rows(self) -> list[Row]:
        """Compute the pooled rows from the records of the seeds, which are already written."""
        config = self.config
        curves = curves_of(self.finished_rows())
        rows = [
            *layer_correlation_rows(config, curves, "all"),
            *deviation_rows(config, curves),
            *size_rows(config, self.loaded.trained),
        ]
        return [{**self.loaded.context, "updates": config.updates, "seeds": len(config.seeds), **row} for row in rows]

    # --- the report

    @property
    def _recorded(self) -> np.ndarray:
        """The updates of the recorded states."""
        return np.array(training.recorded_updates(self.config.updates, self.config.measure_every))

    def drawings(self) -> Mapping[str, Any]:
        return draw_classify(curves_of(self.finished_rows()), self._recorded)

    def origin(self) -> str:
        trained = self.loaded.trained
        sizes = f"{len(trained.examples)} examples of {len(trained.items)} items"
        return f"{self.label()}; {sizes}; seeds {', '.join(map(str, self.config.seeds))}."

    @classmethod
    def sentences(cls, planned: "Sequence[Classify]") -> list[str]:
        curves = [curves_of(run.finished_rows()) for run in planned]
        return sentences(dict(zip(cls._labels(planned), curves, strict=True)))

    @classmethod
    def _labels(cls, planned: "Sequence[Classify]") -> list[str]:
        """Label several runs by the options that differ between them or from the defaults."""
        changed = {name for run in planned for name in run.config.options()}
        return numbered_labels(distinct_labels([run.label(changed) for run in planned]))

    @classmethod
    def together(cls, planned: "Sequence[Classify]", folder: Path) -> list[FigureEntry]:
        """Draw the figures of several runs (for example, of several tasks) in one."""
        tasks = {
            label: (run._recorded, first_relation(curves_of(run.finished_rows())))
            for label, run in zip(cls._labels(planned), planned, strict=True)
        }
        origin = f"Adam with lr {planned[0].config.lr:g}."
        return save_drawings(draw_tasks(tasks), folder, origin=origin, group="all runs together")

    def label(self, named: Collection[str] = ()) -> str:
        """Describe the run; options in `named` are included even at their defaults."""
        model, _, pipeline = origin_words(self.loaded.context)
        model = f"words:{Path(model).name}" if model.startswith("words:") else model
        options = option_words(self.config.options(named))
        return ", ".join(filter(None, (self.loaded.task.name, model, pipeline, options)))


experiments.add("classify", Classify)
