"""The figure of a monitored training has the numbers of each kind of log."""

import csv
import json

import numpy as np
import pytest
import torch

from clip_geometry.registry import InputError
from clip_geometry.training import GeometryMonitor, plot_training

STEPS = (5, 10, 15)
GAP, IMAGE, TEXT = (0.9, 0.8, 0.7), (3.0, 4.0, 5.0), (2.0, 2.5, 2.0)
NUMBERS = {"modality_gap": GAP, "effective_rank/image": IMAGE, "effective_rank/text": TEXT}


def rows(prefix="geometry/", step="step"):
    """A row per step, between rows of the trainer that have no numbers of the monitor."""
    for k, number in enumerate(STEPS):
        yield {"loss": 0.5, step: number - 1}
        yield {
            **{prefix + name: values[k] for name, values in NUMBERS.items()},
            step: number,
            f"{prefix}invalid_rows": 0,
        }


def log_history(folder):
    return [*rows(), {"train_runtime": 3.2}]


def mapping(folder):
    return {row["step"]: row for row in rows()}


def history_of_wandb(folder):
    return [{**row, "_step": 3 * row["geometry/step"]} for row in rows(step="geometry/step")]


def trainer_state(folder):
    (folder / "trainer_state.json").write_text(json.dumps({"log_history": log_history(folder)}))
    return folder / "trainer_state.json"


def json_lines(folder):
    (folder / "log.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows()))
    return str(folder / "log.jsonl")


def _written(path, found):
    names = dict.fromkeys(name for row in found for name in row)
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, names)
        writer.writeheader()
        writer.writerows(found)
    return path


def lightning_csv(folder):
    return _written(folder / "metrics.csv", list(rows()))


def tensorboard(folder):
    pytest.importorskip("tensorboard", reason="tensorboard is not installed")
    from torch.utils.tensorboard import SummaryWriter

    with SummaryWriter(str(folder / "events")) as writer:
        for row in rows("train/geometry/"):
            for name, value in row.items():
                writer.add_scalar(name, value, row["step"])
    return folder / "events"


SOURCES = [
    log_history, mapping, history_of_wandb, trainer_state, json_lines, lightning_csv, tensorboard,
]  # fmt: skip


@pytest.mark.parametrize("source", SOURCES, ids=lambda source: source.__name__)
def test_every_log_gives_its_curves(source, tmp_path):
    figure = plot_training(source(tmp_path))
    assert [axes.get_title(loc="left") for axes in figure.axes] == ["Modality gap", "Effective rank"]
    drawn = {line.get_gid(): line.get_xydata() for axes in figure.axes for line in axes.lines}
    for name, values in NUMBERS.items():
        found = drawn.pop(name if "/" in name else f"{name}/")
        assert found == pytest.approx(np.column_stack([STEPS, values]), rel=1e-6)  # event files are float32
    assert not drawn
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["image", "text"]


def test_the_alarm_is_shaded():
    on = {1: 0, 2: 1, 3: 1, 4: 0, 5: 0, 6: 1}
    logged = {step: {"geometry/modality_gap": 0.5, "geometry/collapse": float(value)} for step, value in on.items()}
    (axes,) = plot_training(logged).axes
    spans = [(patch.get_x(), patch.get_x() + patch.get_width()) for patch in axes.patches if patch.get_gid() == "alarm"]
    assert spans == [(2, 3), (6, 6)]
    starts = [line.get_xdata()[0] for line in axes.lines if line.get_gid() == "alarm goes on"]
    assert starts == [2, 6]  # the last one, at which a loop may stop, has a shade without width


def test_numbers_that_are_not_defined_are_left_out_and_measures_chosen():
    logged = {1: {"modality_gap": 0.5, "isoscore/image": float("nan")}, 2: {"modality_gap": 0.4, "isoscore/image": 0.2}}
    figure = plot_training(logged, measures=["isoscore"])
    (line,) = figure.axes[0].lines
    assert line.get_xydata().tolist() == [[2, 0.2]]


def test_a_file_of_lines_survives_a_crash(tmp_path):
    """A monitor writes it line by line; a line that a crash cut off is left out, with a warning."""
    path = tmp_path / "curves.jsonl"
    monitor = GeometryMonitor(path, every=1, batches=1)
    image, text = torch.randn(2, 50, 8, generator=torch.Generator().manual_seed(0))
    for step in (1, 2, 3):
        monitor.step(step, image=image + step, text=text)
    whole = path.read_text()
    assert len(whole.splitlines()) == 3
    path.write_text(whole[:-5])
    with pytest.warns(UserWarning, match="the last line of the log is cut off"):
        figure = plot_training(path, measures=["modality_gap"])
    assert figure.axes[0].lines[0].get_xdata().tolist() == [1, 2]
    path.write_text(whole.replace("{", "", 1))
    with pytest.raises(InputError, match="line 1 is not JSON"):
        plot_training(path)


def test_a_training_run_again_replaces_what_it_logged_again(tmp_path):
    path = tmp_path / "curves.jsonl"
    for gap, steps in ((0.5, (20, 40, 60)), (0.25, (40, 60, 80)), (0.125, (20,))):  # resumed, then from the beginning
        with path.open("a") as log:
            log.writelines(json.dumps({"step": step, "modality_gap": gap}) + "\n" for step in steps)
        if gap == 0.25:
            with pytest.warns(UserWarning, match="run again from step 40"):
                figure = plot_training(path)
            expected = [[20, 0.5], [40, 0.25], [60, 0.25], [80, 0.25]]
            assert figure.axes[0].lines[0].get_xydata().tolist() == expected
    with pytest.warns(UserWarning, match="run again from step"):
        assert plot_training(path).axes[0].lines[0].get_xydata().tolist() == [[20, 0.125]]


def test_what_cannot_be_drawn_is_one_sentence(tmp_path):
    (tmp_path / "broken.jsonl").write_text("{")
    (tmp_path / "log.txt").write_text("")
    (tmp_path / "empty").mkdir()
    for source, reason in (
        ([{"loss": 1.0, "step": 1}], "no numbers of a monitor"),
        ([1.0], "expected a mapping of name"),
        (tmp_path / "nowhere", "cannot be read as the log of a training: .*No such file"),
        (tmp_path / "broken.jsonl", "line 1 is not JSON"),
        (None, "source = None; expected a path"),
        (tmp_path / "log.txt", "unknown ending"),
        (tmp_path / "empty", "event files of 0 runs"),
    ):
        with pytest.raises(InputError, match=reason):
            plot_training(source)
    with pytest.raises(InputError, match="did you mean 'modality_gap'"):
        plot_training({1: {"modality_gap": 0.5}}, measures=["modality_gp"])
