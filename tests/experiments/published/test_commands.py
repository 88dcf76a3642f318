"""The commands that the ledger calls the paper's own setup yield rows that its own rules call so.

Each command is run as it is printed, with rows made on the spot in place of those of models and data that cannot be had
here. They carry the origin that a store of that model and data would carry. Only their number is not that of the paper,
so `n` is checked on the config: nothing limits it.
"""

from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch

from clip_geometry.embeddings import Embeddings
from clip_geometry.results import read_rows
from clip_geometry_experiments.kit.base import RunFolder
from clip_geometry_experiments.published.comparing import compare
from clip_geometry_experiments.published.ledger import all_entries
from clip_geometry_experiments.run.runner import plan, resolve, run

ROOT = Path(__file__).parents[3]
D, CLASSES, N = 512, 100, 600
SMALL = {"clip_loss", "isotropy", "zero_shot", "generalization", "linear_probe", "geometry", "multilingual"}


class StandIn(RunFolder):
    """Rows of any model and data: classes and captions with a signal, and the origin that a store records."""

    def embeddings(self, model, data, *, limit, batch_size, only=None):
        assert limit is None  # the paper's own setup has all rows
        rng = np.random.default_rng([len(data.split), data.prompt is None])
        centres = np.random.default_rng(0).normal(size=(CLASSES, D))
        labels = np.arange(N) % CLASSES

        def options(of, name):
            return of.model_dump(mode="json", serialize_as_any=True, exclude_defaults=True, exclude=name)

        origin = {
            "model": model.model,
            "model_options": options(model, {"model"}),
            "dataset": data.name,
            "data_options": options(data, {"name", "split"}),
            "split": data.split,
        }
        ids = np.array([f"{k}" for k in range(N)])
        text = centres if data.prompt else centres[labels] + rng.normal(size=(N, D))
        own = {"labels": np.arange(CLASSES), "pair_on": "label"} if data.prompt else {"item_id": ids}
        images = Embeddings(
            centres[labels] + rng.normal(size=(N, D)), "image", item_id=ids, labels=labels, provenance=origin
        )
        texts = Embeddings(text, "text", provenance=origin, language=data.language, **own)
        return {side.modality: side for side in (images, texts) if only in (None, side.modality)}

    def revisions(self, model, data):
        return {}


@cache
def commands():
    """Experiment and command of every entry with a setup of the paper's own."""
    found = {}
    for entry in all_entries():
        if entry.paper == "tyshchuk2023" and entry.command:
            found.setdefault(entry.command, []).append(entry)
    return found


def configs(command):
    _, _, name, flag = command.split()
    assert flag == "--published"
    return plan(resolve(name, {}, smoke=False, published=True), name)


@pytest.fixture
def clone(tmp_path, monkeypatch):
    """The files of the authors' repository that authors.yaml reads, with made-up rows: 600 pairs and 100 classes."""
    rng = np.random.default_rng(0)
    classes = rng.normal(size=(CLASSES, D))

    def save(place, rows):
        path = tmp_path / "embeddings" / place
        path.parent.mkdir(parents=True, exist_ok=True)
        torch.save(torch.as_tensor(rows), path)

    labels = np.arange(N) % CLASSES
    for split in ("train", "test"):
        images = classes[labels] + rng.normal(size=(N, D))
        save(f"CIFAR100{split}/image/CLIP_ViT-B-32.pt", images.astype(np.float32))
        save(f"CIFAR100{split}/label/CLIP_ViT-B-32.pt", labels)
    save("CIFAR100test/text/CLIP_ViT-B-32.pt", (classes + 1).astype(np.float32))
    first = rng.normal(size=(N, D))
    save("coco_val2014/image/CLIP_ViT-B-32.pt", first.astype(np.float32))
    save("coco_val2014/text/CLIP_ViT-B-32_0.pt", (first + rng.normal(size=(N, D))).astype(np.float32))
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*rank")  # 100 prompts leave part of a map free
def test_one_config_yields_tables_1_to_4_of_the_authors_repository(clone):
    config = ROOT / "configs/tyshchuk2023/authors.yaml"
    changes = {"blocks": 0, "parts.0.random_bases": 2, "parts.3.draws": 2}  # errors cost time and say nothing here
    report = run(config, changes, runs=clone / "runs", device="cpu")
    rows = read_rows(report.parent)
    tables = ("table1_isotropy", "table2_clip_loss", "table3_zero_shot_cifar100", "table4_generalization")
    wanted = [entry for entry in all_entries() if entry.section in tables and "tyshchuk2023-authors" in entry.runs]
    assert len(wanted) == 12 + 10 + 15 + 6
    for line in compare(rows, "tyshchuk2023-authors", wanted):
        assert line.ours, f"{line.path}: no row stands beside it"
        assert not min((set(ours.unlike) - {"n"} for ours in line.ours), key=len), line.path
    assert "Table 4: maps fitted on 50 known classes" in report.read_text()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*rank")
@pytest.mark.parametrize("command", list(commands()))
def test_the_printed_command_is_the_paper_s_own_setup(command, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("rucoco.csv").write_text("caption\nтекст\n", encoding="utf-8")
    planned = [kind(config, StandIn(tmp_path)) for kind, config in configs(command)]
    if planned[0].config.experiment not in SMALL:
        pytest.skip(f"{planned[0].config.experiment} does not measure stored rows")
    selected = {v.where["measure"].partition(".")[0] for entry in commands()[command] for v in entry.variants}
    for each in planned:  # standard errors, other measures and more bases cost time and say nothing of the setup
        measures = [name for name in getattr(each.config, "measures", ()) if name.partition(".")[0] in selected]
        changes = {"blocks": 0, "random_bases": 2, "solver": "torch", "measures": measures}
        known = {key: value for key, value in changes.items() if key in type(each.config).model_fields}
        each.config = each.config.model_copy(update=known)
    rows = [row for each in planned for cell in each.cells() for row in cell.compute()]
    for entry in commands()[command]:
        (line,) = compare(rows, entry.runs[0], [entry])
        assert line.ours, f"{entry.path}: no row stands beside it"
        best = min((set(ours.unlike) - {"n"} for ours in line.ours), key=len)
        assert not best, f"{entry.path}: unlike in {sorted(best)}"
