"""The rows of an earlier training, read from a file and shown with the figures of the experiment that wrote them."""

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import Field

from clip_geometry.encoders.hub import model_path
from clip_geometry.files import sha256_of
from clip_geometry.registry import InputError
from clip_geometry.results import Row, read_rows
from clip_geometry_experiments.kit.base import Cell, Experiment, RunConfig, experiments

if TYPE_CHECKING:
    from clip_geometry_experiments.report.gallery import FigureEntry

OWN = ("cell", "cell_row", "cell_rows")
MAKER = "train_clip"  # the experiment whose records are shown


class RecordedConfig(RunConfig):
    """Config of the experiment `recorded`.

    Args:
        rows: A results.jsonl, a run folder, or `shipped/NAME/training.jsonl` of a shipped model.
        measures: The measures that the table shows, null for all.
    """

    rows: str = Field(min_length=1)
    measures: tuple[str, ...] | None = None


class _ExplanationsOfMaker(Mapping[str, Any]):
    """The explanations of the experiment that made the rows, which is imported when one is asked for."""

    def __getitem__(self, name: str) -> Any:
        return experiments[MAKER].explanations[name]

    def __iter__(self) -> Iterator[str]:
        return iter(experiments[MAKER].explanations)

    def __len__(self) -> int:
        return len(experiments[MAKER].explanations)


class Recorded(Experiment):
    """Computes nothing: the rows are those of the file, a training by train_clip."""

    Config = RecordedConfig
    summary = "the rows of an earlier training shown again, from a file"

    explanations = _ExplanationsOfMaker()

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
        from clip_geometry.display.origin import data_words

        first = next(row for row in self._recorded if "trajectory" in row)
        return {
            "rows": self.config.rows,
            "trained": f"{first['steps'][-1]} steps, {len(first['steps'])} states measured",
            "measured on": data_words(first),
            "batch norm in these": first["model_options"].get("batch_norm", "eval"),
            "seed": first["seed"],
        }

    @cached_property
    def _recorded(self) -> list[Row]:
        return self.finished_rows()

    @classmethod
    def sentences(cls, planned: "Sequence[Recorded]") -> list[str]:
        maker: Any = experiments[MAKER]
        return maker.sentences_of(planned[0].finished_rows()) if len(planned) == 1 else []

    def figures(self, folder: Path, *, prefix: str = "", group: str = "") -> "list[FigureEntry]":
        from clip_geometry.display.origin import data_words

        arms: dict[str, list[Row]] = {}
        for row in self._recorded:
            arms.setdefault(str(row["at"].get("arm", "")), []).append(row)
        first = next(row for row in self._recorded if "trajectory" in row)
        origin = f"{data_words(first)}; pipeline: normalize; seed {first['seed']}; rows of {self.config.rows}."
        maker: Any = experiments[MAKER]
        return maker.figures_of(arms, folder, origin=origin, prefix=prefix, group=group)[:1]  # the main one

    def label(self) -> str:
        return self.config.rows


experiments.add("recorded", Recorded)
