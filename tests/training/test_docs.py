"""The code of docs/howto/training.md runs, and leaves its curves where it says: real event files and runs."""

import copy
import re
import sys
import warnings
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from torch import nn

pytest.importorskip("torchmetrics", reason="torchmetrics is not installed")

from clip_geometry.geometry import isoscore
from clip_geometry.training import CollapseWarning

PAGE = Path(__file__).parents[2] / "docs" / "howto" / "training.md"
CORE = {
    "modality_gap", "relative_modality_gap", "alignment", "retrieval.image_to_text.r_at_1",
    "retrieval.text_to_image.r_at_1", "invalid_rows", "collapse",
    *(f"{name}/{modality}" for modality in ("image", "text") for name in (
        "average_cosine", "isoscore", "isoscore[unbiased]", "effective_rank", "effective_rank[uncentred]", "uniformity",
        "coordinate_spread",
    )),
}  # fmt: skip


def blocks():
    if not PAGE.exists():
        return {}
    found = {}
    for section in re.split(r"^## ", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE):
        for k, code in enumerate(re.findall(r"```python\n(.*?)```", section, re.DOTALL)):
            found[section.partition("\n")[0], k] = code
    return found


BLOCKS = blocks()
USED = set()


def run(section, number=0, **names):
    """Runs a block with the names that it takes for given → all of its names."""
    if not BLOCKS:
        pytest.skip("docs/ is not part of an installed package")
    USED.add((section, number))
    exec(compile(BLOCKS[section, number], str(PAGE), "exec"), names)
    return names


def events(folder):
    """Scalars of the event files below a folder: tag → [(step, value)]."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    found = {}
    for path in {each.parent for each in Path(folder).rglob("events.out.tfevents.*")}:
        accumulator = EventAccumulator(str(path))
        accumulator.Reload()
        for tag in accumulator.Tags()["scalars"]:
            found[tag] = [(event.step, event.value) for event in accumulator.Scalars(tag)]
    return found


@pytest.fixture
def writer(tmp_path, monkeypatch):
    pytest.importorskip("tensorboard", reason="tensorboard is not installed")
    from torch.utils.tensorboard import SummaryWriter

    monkeypatch.chdir(tmp_path)
    with SummaryWriter("events") as writer:
        yield writer


@pytest.fixture
def clip():
    """A small model of open_clip and what its training loop has."""
    import open_clip

    torch.manual_seed(0)
    vision = {"image_size": 32, "patch_size": 16, "layers": 1, "width": 16, "head_width": 8}
    text = {"context_length": 8, "vocab_size": 50, "width": 16, "heads": 2, "layers": 1}
    model = open_clip.CLIP(embed_dim=16, vision_cfg=vision, text_cfg=text)
    shades = torch.randint(1, 49, (256, 3), generator=torch.Generator().manual_seed(0))
    images = (shades / 25 - 1)[:, :, None, None].expand(-1, -1, 32, 32).contiguous()
    tokens = torch.cat([shades, torch.full((256, 1), 49), torch.zeros(256, 4, dtype=torch.long)], 1)
    pairs = torch.utils.data.TensorDataset(images, tokens)
    optimizer, clip_loss = torch.optim.AdamW(model.parameters(), lr=3e-3), open_clip.ClipLoss()

    def train_step(model, images, texts):
        optimizer.zero_grad()
        clip_loss(*model(images, texts)).backward()
        optimizer.step()

    loader = [batch for _ in range(6) for batch in torch.utils.data.DataLoader(pairs, batch_size=32)]  # 48 steps
    return {"model": model, "loader": loader, "optimizer": optimizer, "clip_loss": clip_loss, "train_step": train_step}


def test_a_plain_loop_leaves_its_curves_in_the_event_file(clip, writer, tmp_path):
    before = {name: value.clone() for name, value in clip["model"].state_dict().items()}
    names = run("A plain loop, as in open_clip", 0, writer=writer, **clip)
    writer.flush()
    curves = events(tmp_path / "events")
    assert set(curves) == {f"geometry/{name}" for name in CORE}
    assert all([step for step, _ in curve] == [20, 40] for curve in curves.values())
    last = names["monitor"].values
    assert curves["geometry/modality_gap"][-1][1] == pytest.approx(last["modality_gap"], rel=1e-6)  # float32 there
    assert curves["geometry/relative_modality_gap"][1][1] < curves["geometry/relative_modality_gap"][0][1] < 1
    assert any(not torch.equal(value, before[name]) for name, value in clip["model"].state_dict().items())


def test_a_probe_is_measured_as_measure_does(clip, writer, tmp_path):
    import clip_geometry as cg

    images, texts = (torch.cat(each) for each in zip(*clip["loader"][:2], strict=True))
    names = run("A plain loop, as in open_clip", 1, writer=writer, probe_images=images, probe_texts=texts, **clip)
    writer.flush()
    curves = events(tmp_path / "events")
    assert set(curves) == {f"geometry/{name}" for name in CORE}
    names["monitor"].measure(48, names["model"])
    with torch.no_grad():
        rows = names["embed"](names["model"].eval())
    expected = cg.measure(*(each.numpy() for each in rows.values()), measures=["isoscore", "alignment"], blocks=0)
    assert names["monitor"].values["alignment"] == pytest.approx(expected["alignment", "both"].value, rel=1e-12)
    assert names["monitor"].values["isoscore/text"] == pytest.approx(expected["isoscore", "text"].value, rel=1e-10)


@pytest.mark.slow
def test_transformers_trainer_fine_tunes_minilm_with_istar(tmp_path, monkeypatch):
    from support.minilm import minilm

    pytest.importorskip("accelerate", reason="accelerate, which transformers' Trainer needs, is not installed")
    pytest.importorskip("tensorboard", reason="tensorboard is not installed")
    from transformers import AutoModelForSequenceClassification, AutoTokenizer, TrainingArguments

    monkeypatch.chdir(tmp_path)
    torch.manual_seed(0)
    folder = str(minilm())
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForSequenceClassification.from_pretrained(folder, output_hidden_states=True)
    things, places = (
        ("dog", "cat", "horse", "car", "boat", "train", "cup", "chair"),
        ("street", "field", "room", "lake"),
    )
    texts = [f"a photo of a {thing} by the {place}" for thing in things for place in places]
    tokens = tokenizer(texts, padding=True, return_tensors="pt")
    labels = torch.tensor([k // 12 for k in range(32)]).clamp(max=1)
    train = [{**{name: each[k] for name, each in tokens.items()}, "labels": labels[k]} for k in range(len(texts))]
    arguments = TrainingArguments(
        "output", max_steps=15, per_device_train_batch_size=8, learning_rate=5e-5, logging_steps=5,
        report_to="tensorboard", use_cpu=True, save_strategy="no", disable_tqdm=True,
    )  # fmt: skip
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*pin_memory")
        names = run("transformers", 0, model=model, arguments=arguments, train=train, probe=dict(tokens))
    curves = events("output")
    geometry = {tag: curve for tag, curve in curves.items() if "geometry/" in tag}
    assert {tag.removeprefix("train/geometry/") for tag in geometry} == {
        "invalid_rows", "collapse", *(name for name in CORE if name.endswith("/text"))
    }  # fmt: skip
    assert all([step for step, _ in curve] == [5, 10, 15] for curve in geometry.values())
    history = [each for each in names["trainer"].state.log_history if "geometry/isoscore/text" in each]
    assert [each["step"] for each in history] == [5, 10, 15]
    assert curves["train/loss"] and names["istar"].covariance is not None
    scores = [value for _, value in curves["train/geometry/isoscore/text"]]
    assert scores[0] != scores[-1]


@pytest.mark.slow
def test_lightning_logs_to_its_loggers(tmp_path, monkeypatch):
    pytest.importorskip("lightning", reason="lightning is not installed")
    pytest.importorskip("tensorboard", reason="tensorboard is not installed")
    from lightning.pytorch import LightningModule
    from lightning.pytorch.loggers import TensorBoardLogger

    monkeypatch.chdir(tmp_path)
    torch.manual_seed(0)

    class Towers(LightningModule):
        def __init__(self):
            super().__init__()
            self.image, self.text = nn.Sequential(nn.Linear(8, 8), nn.Dropout(0.5)), nn.Linear(8, 8)

        def training_step(self, batch, number):
            assert self.image[1].training
            return (self.image(batch[0]) - self.text(batch[0])).square().mean()

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=0.1)

    data = torch.utils.data.TensorDataset(torch.randn(200, 8))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Lightning's advice on workers and steps
        names = run(
            "Lightning", 0, module=Towers(), probe=torch.randn(100, 8), logger=TensorBoardLogger("events"),
            loader=torch.utils.data.DataLoader(data, batch_size=10),
        )  # fmt: skip
    curves = events("events")
    assert {tag.removeprefix("geometry/") for tag in curves if tag.startswith("geometry/")} == CORE
    assert all(
        [step for step, _ in curve] == [5, 10, 15, 20] for tag, curve in curves.items() if tag.startswith("geometry/")
    )
    alignment = [value for _, value in curves["geometry/alignment"]]
    assert alignment == sorted(alignment, reverse=True)
    assert float(names["trainer"].callback_metrics["geometry/alignment"]) == pytest.approx(alignment[-1], rel=1e-6)


@pytest.mark.slow
def test_sentence_transformers_evaluator_returns_its_numbers(tmp_path, monkeypatch):
    from support.minilm import minilm

    sentence_transformers = pytest.importorskip(
        "sentence_transformers", reason="sentence-transformers is not installed"
    )
    monkeypatch.chdir(tmp_path)
    model = sentence_transformers.SentenceTransformer(str(minilm()), device="cpu")
    capitals = {"France": "Paris", "Italy": "Rome", "Japan": "Tokyo", "Peru": "Lima", "Kenya": "Nairobi"}
    capitals |= {"Cuba": "Havana", "Spain": "Madrid", "Egypt": "Cairo", "Norway": "Oslo"}
    capitals |= {"Poland": "Warsaw", "Iran": "Tehran", "Chile": "Santiago"}
    questions = [f"What is the capital of {name}?" for name in capitals]
    answers = [f"{city} is where the government of {name} sits." for name, city in capitals.items()]
    names = run("sentence-transformers", 0, model=model, questions=questions, answers=answers)
    evaluator = names["evaluator"]
    values = evaluator(model, "output", epoch=1.0, steps=7)
    assert evaluator.primary_metric == "qa_retrieval.image_to_text.r_at_1" and values[evaluator.primary_metric] == 1
    assert 0 < values["qa_relative_modality_gap"] < 0.5 and values["qa_effective_rank/question"] > 5


def test_a_run_of_weights_and_biases_gets_the_numbers(clip, monkeypatch):
    """By a module in the place of wandb's, whose service takes seconds to start."""
    rows = []

    class Run:
        step = 0

        def define_metric(self, name, step_metric):
            assert (name, step_metric) == ("geometry/*", "geometry/step")

        def log(self, row, step=None):
            rows.append(row)

        def finish(self):
            pass

    monkeypatch.setitem(sys.modules, "wandb", SimpleNamespace(init=lambda **options: Run()))
    names = run("Weights & Biases", 0, **clip)
    assert [row["geometry/step"] for row in rows] == [20, 40]
    assert {f"geometry/{name}" for name in CORE} <= rows[0].keys()
    assert rows[1]["geometry/modality_gap"] == names["monitor"].values["modality_gap"]


def test_the_curves_are_those_of_tensorboard(writer, tmp_path):
    for step in (8, 16):
        for name in (
            "modality_gap",
            "effective_rank/image",
            "effective_rank/text",
            "isoscore/image",
            "uniformity/text",
        ):
            writer.add_scalar(f"geometry/{name}", step + len(name), step)
    writer.flush()
    figure = run("Plot the curves", 0)["figure"]
    assert [axes.get_title(loc="left") for axes in figure.axes] == ["Modality gap", "Effective rank", "IsoScore"]
    drawn = {line.get_gid(): line.get_xydata().tolist() for axes in figure.axes for line in axes.lines}
    assert drawn["effective_rank/text"] == [[8, 27], [16, 35]] and len(drawn) == 4
    assert (tmp_path / "curves.png").stat().st_size > 10_000


def test_without_a_logger_a_file_of_lines_is_drawn(clip, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run("Plot the curves", 1, torch=torch, **clip)
    assert len((tmp_path / "curves.jsonl").read_text().splitlines()) == 2
    assert (tmp_path / "curves.png").stat().st_size > 10_000


def test_torchmetrics_prints_its_numbers(clip, capsys):
    run("torchmetrics", 0, **clip)
    printed = capsys.readouterr().out
    assert "'modality_gap'" in printed and "'effective_rank/image'" in printed


def test_an_own_alarm_takes_its_thresholds(writer):
    monitor = run("The collapse alarm", 0, writer=writer)["monitor"]
    rows = torch.randn(20, 2, 60, 6, generator=torch.Generator().manual_seed(0))
    rows[14:, 0] = rows[14:, 0, :, :1]
    monitor.every = monitor.batches = 1
    with pytest.warns(CollapseWarning, match="^collapse at step 15: effective_rank/image is 1, "):
        for step, (image, text) in enumerate(rows):
            monitor.step(step, image=image, text=text)


@pytest.mark.slow
def test_a_penalty_for_each_tower_makes_rows_more_isotropic(clip, monkeypatch):
    section, images = "Change the geometry while training", torch.cat([images for images, _ in clip["loader"][:8]])
    block, scores = BLOCKS[section, 0], {}
    assert "IStar(1.0" in block
    for strength in ("1.0", "0.0"):
        monkeypatch.setitem(BLOCKS, (section, 0), block.replace("IStar(1.0", f"IStar({strength}"))
        model = copy.deepcopy(clip["model"])
        run(
            "Change the geometry while training",
            0,
            **clip | {"model": model, "optimizer": torch.optim.AdamW(model.parameters(), lr=3e-3)},
        )
        with torch.no_grad():
            scores[strength] = isoscore(model.encode_image(images, normalize=True)).item()
    assert scores["1.0"] > 1.5 * scores["0.0"]


def test_istar_is_a_penalty_with_a_gradient():
    names = run("Change the geometry while training", 1)
    names["penalty"].backward()
    assert 0 < names["states"].grad.abs().max() < 1


def test_every_block_has_a_test():
    tests = Path(__file__).read_text(encoding="utf-8")
    named = {(section, int(k)) for section, k in re.findall(r'run\(\s*"([^"]+)",?\s*(\d)?', tests) if k}
    assert set(BLOCKS) <= named
