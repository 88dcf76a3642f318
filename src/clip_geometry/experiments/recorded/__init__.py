"""The rows of another run, from a file: shown again, by the figures of the experiment that made them."""

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import Field

from clip_geometry.encoders.shipped import model_path
from clip_geometry.experiments.kit.base import Cell, Experiment, RunConfig, experiments
from clip_geometry.experiments.kit.explained import read_explanations
from clip_geometry.experiments.train_clip.rows import curves_of
from clip_geometry.files import sha256_of
from clip_geometry.registry import InputError
from clip_geometry.results import Row, read_rows

if TYPE_CHECKING:
    from clip_geometry.report.gallery import FigureEntry

OWN = ("cell", "cell_row", "cell_rows")


class RecordedConfig(RunConfig):
    """rows: a results.jsonl, a run folder, or `shipped/NAME/training.jsonl` of a model that the package brings.
    measures: those that the table shows, null for all.
    """

    rows: str = Field(min_length=1)
    measures: tuple[str, ...] | None = None


class Recorded(Experiment):
    """Nothing is computed: the rows are those of the file. So far of a training by train_clip."""

    Config = RecordedConfig
    explanations = read_explanations(Path(__file__).parents[1] / "train_clip" / "numbers.yaml")
    summary = "the rows of an earlier training shown again, from a file"

    @cached_property
    def path(self) -> Path:
        return model_path(self.config.rows)

    @cached_property
    def _file(self) -> Path:
        path = self.path / "results.jsonl" if self.path.is_dir() else self.path
        if not path.is_file():
            raise InputError(
                f"rows is {self.config.rows!r}, but there is no file {path}; give the results of a training"
            )
        return path

    def cells(self) -> Iterator[Cell]:
        yield Cell({"experiment": "recorded", "sha256": sha256_of(self._file)}, self._rows)

    def _rows(self) -> list[Row]:
        rows: list[Row] = [
            {key: value for key, value in row.items() if key not in OWN} for row in read_rows(self._file)
        ]
        if not any("trajectory" in row for row in rows):
            raise InputError(f"{self._file} has no curves of a training; expected the rows of a run of train_clip")
        return rows

    def tabled(self, row: Row) -> bool:
        wanted = self.config.measures
        return wanted is None or row["measure"] in wanted

    def facts(self) -> Mapping[str, Any]:
        first = next(row for row in self._recorded if "trajectory" in row)
        return {
            "rows": self.config.rows,
            "trained": f"{first['steps'][-1]} steps, {len(first['steps'])} states measured",
            "measured on": self._data(first),
            "batch norm in these": first["model_options"].get("batch_norm", "eval"),
            "seed": first["seed"],
        }

    @cached_property
    def _recorded(self) -> list[Row]:
        return self.finished_rows()

    def _data(self, row: Row) -> str:
        from clip_geometry.report.origin import with_options

        return ", ".join(filter(None, (with_options(row["dataset"], row["data_options"]), row["split"])))

    @classmethod
    def sentences(cls, planned: "Sequence[Recorded]") -> list[str]:
        from clip_geometry.experiments.train_clip.sentences import tell

        return tell(planned[0].finished_rows()) if len(planned) == 1 else []

    def figures(self, folder: Path, *, prefix: str = "", group: str = "") -> "list[FigureEntry]":
        from clip_geometry.experiments.train_clip.report import draw_train_clip

        arms: dict[str, list[Row]] = {}
        for row in self._recorded:
            arms.setdefault(str(row["at"].get("arm", "")), []).append(row)
        first = next(row for row in self._recorded if "trajectory" in row)
        origin = f"{self._data(first)}; pipeline: normalize; seed {first['seed']}; rows of {self.config.rows}."
        curves = {arm: curves_of(rows) for arm, rows in arms.items()}
        return draw_train_clip(curves, folder=folder, origin=origin, prefix=prefix, group=group)[:1]  # the main one

    def label(self) -> str:
        return self.config.rows


experiments.add("recorded", Recorded)
