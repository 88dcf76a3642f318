"""The records of another run, from a file, shown with the figures of the experiment that made them."""

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import Field

from clip_geometry.encoders.shipped import model_path
from clip_geometry.experiments.kit.base import Cell, Experiment, RunConfig, experiments
from clip_geometry.files import sha256_of
from clip_geometry.registry import InputError
from clip_geometry.results import Row, read_rows

if TYPE_CHECKING:
    from clip_geometry.report.gallery import FigureEntry

OWN = ("cell", "cell_row", "cell_rows")
MAKER = "train_clip"  # the experiment whose records are shown


class RecordedConfig(RunConfig):
    """Keys of the experiment.

    Args:
        rows: a results.jsonl, a run folder, or `shipped/NAME/training.jsonl` of a model in the package.
        measures: what the table shows, null for all.
    """

    rows: str = Field(min_length=1)
    measures: tuple[str, ...] | None = None


class Recorded(Experiment):
    """Computes nothing: the records are those of the file, of a training by train_clip."""

    Config = RecordedConfig
    summary = "the rows of an earlier training shown again, from a file"

    @property
    def explanations(self) -> Mapping[str, Any]:  # pyright: ignore[reportIncompatibleVariableOverride]
        return experiments[MAKER].explanations

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
        rows = [{key: value for key, value in row.items() if key not in OWN} for row in read_rows(self._file)]
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
        maker: Any = experiments[MAKER]
        return maker.sentences_of(planned[0].finished_rows()) if len(planned) == 1 else []

    def figures(self, folder: Path, *, prefix: str = "", group: str = "") -> "list[FigureEntry]":
        arms: dict[str, list[Row]] = {}
        for row in self._recorded:
            arms.setdefault(str(row["at"].get("arm", "")), []).append(row)
        first = next(row for row in self._recorded if "trajectory" in row)
        origin = f"{self._data(first)}; pipeline: normalize; seed {first['seed']}; rows of {self.config.rows}."
        maker: Any = experiments[MAKER]
        return maker.figures_of(arms, folder, origin=origin, prefix=prefix, group=group)[:1]  # the main one

    def label(self) -> str:
        return self.config.rows


experiments.add("recorded", Recorded)
