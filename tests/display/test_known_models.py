"""The values of known models that stand beside a value: what is recorded, where it is shown, and that it is right."""

import os
import runpy
from pathlib import Path

import numpy as np
import pytest

from clip_geometry.cli import main
from clip_geometry.display.explained import known_models, values_of
from clip_geometry.measuring.records import CORE
from support.generated import generated_page

SCRIPT = Path(__file__).parents[2] / "scripts" / "known_models.py"


def test_every_measure_of_the_core_has_a_value_with_its_source():
    recorded = {each["measure"] for model in known_models().values() for each in model["numbers"]}
    assert recorded == set(CORE)
    assert all(model["source"].startswith("github.com/") for model in known_models().values())


def test_a_line_of_values():
    line = values_of("CLIP ViT-B/16 on COCO", ["modality_gap", "average_cosine", "no_such", "average_cosine"])
    assert line == "modality_gap 0.8514; average_cosine 0.5315 (image), 0.5152 (text)"
    assert values_of("CLIP ViT-B/32 on CIFAR-10", ["modality_gap"]) == ""


@pytest.mark.parametrize(("options", "shown"), [([], True), (["--raw"], False), (["--pipeline", "center"], False)])
def test_measure_shows_them_below_the_table(options, shown, tmp_path, monkeypatch, capsys):
    """Of the default pipeline only: with another, values differ for a reason that is not the model."""
    np.save(tmp_path / "image.npy", np.random.default_rng(0).normal(size=(60, 8)).astype(np.float32))
    arguments = ["clip-geometry", "measure", str(tmp_path / "image.npy"), "--measures", "average_cosine,isoscore"]
    monkeypatch.setattr("sys.argv", [*arguments, *options])
    with pytest.raises(SystemExit):
        main()
    line = "for comparison, CLIP ViT-B/16 on COCO (500 pairs): average_cosine 0.5315 (image), 0.5152 (text) ("
    assert (line in " ".join(capsys.readouterr().out.split())) == shown


@pytest.mark.slow
def test_the_values_are_those_of_the_data():
    """To 2e-5: values have six digits, and float32 rows are rounded differently on other processors."""
    if not os.environ.get("CLIP_GEOMETRY_DATA") or not SCRIPT.exists():
        pytest.skip("CLIP_GEOMETRY_DATA is not set")
    script, folder = runpy.run_path(str(SCRIPT)), Path(os.environ["CLIP_GEOMETRY_DATA"], "embeddings")
    assert script["MODELS"].keys() == known_models().keys()
    for title, (name, source) in script["MODELS"].items():
        recorded = known_models()[title]
        assert recorded["source"] == source
        measured = script["measured"](folder / name)
        assert [(each["measure"], each["set"], each["n"]) for each in measured] == [
            (each["measure"], each["set"], each["n"]) for each in recorded["numbers"]
        ]
        for ours, theirs in zip(measured, recorded["numbers"], strict=True):
            assert ours["value"] == pytest.approx(theirs["value"], abs=2e-5)
            assert ours.get("standard_error") == pytest.approx(theirs.get("standard_error"), abs=2e-5)


@pytest.mark.experiments
def test_the_page_of_measures_has_them():
    assert "| `modality_gap` | both | 0.8514 ± 0.0047 | 1.1361 ± 0.0048 |" in generated_page("measures.md")
