"""Runs in a paper's own setup, with stand-ins of the models and data that it downloads."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from clip_geometry.registry import InputError
from clip_geometry.results import read_rows
from clip_geometry_experiments.run.config import shipped_configs
from clip_geometry_experiments.run.runner import needs_of, own_setups, plan, resolve, run_papers, statement

OWN = [name for name, path in shipped_configs().items() if needs_of(path)]
CONFIG = """
name: {name}
experiment: geometry
model: scenes-clip/fresh
figures: []
pairs: {{name: scenes, size: 4}}
measures: [modality_gap]
published:
  downloads: {{a model: 0.5, another: null}}
  fetch: {{images: 2}}
  hours: 1.5
  {change}
"""


@pytest.fixture
def papers(tmp_path):
    """A folder of two configs, one of which lacks its data."""
    folder = tmp_path / "paper"
    folder.mkdir()
    for name, change in (("first", "pairs: {name: scenes, size: 6}"), ("second", "pairs: missing.json")):
        (folder / f"{name}.yaml").write_text(CONFIG.format(name=name, change=change))
    (folder / "without.yaml").write_text("name: without\n")
    return folder


def test_a_folder_runs_what_has_its_data_and_continues(papers, tmp_path, capsys):
    given = {"runs": tmp_path / "runs", "device": "cpu", "command": ""}
    (report,), (failed,) = run_papers(papers, {}, **given)
    assert failed == "second" and re.search(r"second did not run: .*missing\.json", capsys.readouterr().err)
    rows = read_rows(report.parent)
    assert rows[0]["n"] == 12  # six images and six texts
    before = (report.parent / "results.jsonl").read_bytes()
    assert run_papers(papers, {}, **given)[0] == [report]
    assert (report.parent / "results.jsonl").read_bytes() == before


def test_the_statement_counts_each_download_once(papers):
    text = str(statement(own_setups(papers)))
    assert "2 configs" in text and "0.5 GB of downloads, 2 GB to fetch" in text and "about 3 hours" in text
    assert text.count("a model: 0.5 GB") == 1 and "another: size unknown" in text


def test_a_config_without_the_section_has_no_setup(papers):
    with pytest.raises(InputError, match="has no config with a section 'published'"):
        own_setups(papers / "without.yaml")
    with pytest.raises(InputError, match="no section 'published'"):
        resolve(papers / "without.yaml", {}, smoke=False, published=True)


@pytest.mark.parametrize("name", OWN)
def test_the_own_setup_of_each_config_is_valid(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CLIP_GEOMETRY_DATA", str(tmp_path))
    for file in ("rucoco.csv", "222/model.bin", "words/222/model.bin", "words/en.complete.csv", "glove.840B.300d.txt",
                 "glove.twitter.27B.100d.txt", "GoogleNews-vectors-negative300.bin"):  # fmt: skip
        Path(file).parent.mkdir(parents=True, exist_ok=True)
        Path(file).write_text("caption\na\n")
    own = plan(resolve(name, {}, smoke=False, published=True), name)
    assert all("scenes" not in str(getattr(config, "model", "")) for _, config in own)
    is_default = resolve(name, {}, smoke=False, published=True) == resolve(name, {}, smoke=False)
    assert is_default == (name in ("mickus2024/polarity", "mickus2024/pos"))


def test_papers_have_their_own_setups():
    assert {name.partition("/")[0] for name in OWN} == {"tyshchuk2023", "mickus2024", "rudman2024", "cai2021"}


@pytest.mark.slow
def test_table_1_from_the_hub_and_coco(tmp_path):
    """Random weights in the layout of the hub's cache and a COCO-shaped file: the whole way to the recorded rows."""
    import open_clip
    from safetensors.torch import save_file

    snapshot = tmp_path / "hub/hub/models--timm--vit_base_patch32_clip_224.openai/snapshots" / ("0" * 40)
    snapshot.mkdir(parents=True)
    (snapshot.parents[1] / "refs").mkdir()
    (snapshot.parents[1] / "refs/main").write_text("0" * 40)
    save_file(open_clip.create_model("ViT-B-32-quickgelu").state_dict(), snapshot / "open_clip_model.safetensors")
    rng, images, captions = np.random.default_rng(0), [], []
    for folder in ("annotations", "val2014"):
        (tmp_path / folder).mkdir()
    for k in range(24):
        name = f"COCO_val2014_{k:012d}.jpg"
        Image.fromarray(rng.integers(0, 255, (24, 32, 3), dtype=np.uint8)).save(tmp_path / "val2014" / name)
        images.append({"id": k, "file_name": name, "width": 32, "height": 24})
        captions += [{"id": 5 * k + j, "image_id": k, "caption": f"image {k}, caption {j}"} for j in range(5)]
    (tmp_path / "annotations/captions_val2014.json").write_text(json.dumps({"images": images, "annotations": captions}))
    command = [sys.executable, "-m", "clip_geometry", "run", "tyshchuk2023/isotropy", "--published"]
    command += ["random_bases=2", "pipeline=[normalize]"]  # whitening takes 129 rows
    environment = os.environ | {"HF_HOME": str(tmp_path / "hub"), "HF_HUB_OFFLINE": "1"}
    outcome = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert outcome.returncode == 0, outcome.stderr
    assert "0.6 GB of downloads, 6.5 GB to fetch" in outcome.stdout
    (recorded,) = (tmp_path / "runs/reproduction").iterdir()
    rows = [json.loads(line) for line in recorded.read_text().splitlines()]
    assert {row["model"] for row in rows} == {"open_clip:ViT-B-32-quickgelu/openai"}
    assert {row["n"] for row in rows} == {24}
    shutil.rmtree(tmp_path / "hub")
