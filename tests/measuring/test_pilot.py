"""mteb's four-modality pilot (embeddings-benchmark/mteb#5359): its numbers from its arrays, by file and by call."""

from itertools import combinations

import numpy as np
import pytest

import clip_geometry as cg
from clip_geometry.cli import main

NAMES = ("text", "image", "audio_human", "audio_tts")


@pytest.fixture
def embeddings():
    """As the script holds them: (120, d) float32, aligned by item, not unit length; each modality around its offset."""
    rng = np.random.default_rng(0)
    items, lengths = rng.normal(size=(120, 48)), rng.uniform(5, 20, size=(120, 1))
    offsets = {name: size * rng.normal(size=48) for name, size in zip(NAMES, (0.5, 0.8, 1.2, 1.0), strict=True)}
    offsets["audio_tts"] = 0.9 * offsets["audio_human"] + 0.2 * offsets["audio_tts"]  # the two voices lie together
    return {
        name: (lengths * (items + offset + 0.5 * rng.normal(size=(120, 48)))).astype(np.float32)
        for name, offset in offsets.items()
    }


def script_gap(one, other):
    """1 − cos of the two centroids, of raw rows."""
    a, b = one.astype(np.float64).mean(0), other.astype(np.float64).mean(0)
    return 1 - a @ b / (np.linalg.norm(a) * np.linalg.norm(b))


def script_spread(rows):
    """1 − mean off-diagonal cosine."""
    unit = rows.astype(np.float64) / np.linalg.norm(rows.astype(np.float64), axis=1, keepdims=True)
    cosines = unit @ unit.T
    return 1 - cosines[~np.eye(len(rows), dtype=bool)].mean()


def test_the_numbers_of_the_script_by_call_and_by_command(embeddings, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    np.savez("pilot.npz", **embeddings)
    names = "modality_gap[cosine],average_cosine"
    called = cg.measure(embeddings, pipeline=None, measures=names, blocks=10)
    argv = "clip-geometry measure pilot.npz --raw --blocks 10 --json pilot.jsonl --measures"
    monkeypatch.setattr("sys.argv", [*argv.split(), names])
    with pytest.raises(SystemExit):
        main()
    assert "modality_gap[cosine]" in capsys.readouterr().out
    for result in (called, cg.Measurement(cg.read_rows("pilot.jsonl"))):
        for one, other in combinations(NAMES, 2):
            expected = script_gap(embeddings[one], embeddings[other])
            assert result["modality_gap[cosine]", one, other].value == pytest.approx(expected, rel=1e-9)
            assert 0 < result["modality_gap[cosine]", one, other].standard_error < 0.1
        for name in NAMES:
            spread = 1 - result["average_cosine", name].value  # the same of raw and of unit rows
            assert spread == pytest.approx(script_spread(embeddings[name]), rel=1e-9)
