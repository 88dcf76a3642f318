"""`match` on 500 COCO pairs: what docs/howto/match.md prints, and what has to hold on the half that was not fitted."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from scipy.special import expit
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score

import clip_geometry as cg

PAGE = (Path(__file__).parents[2] / "docs" / "howto" / "match.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def coco500(data):
    folder = data / "embeddings" / "coco500-clip-vit-b16"
    return [np.load(folder / f"{name}.npy") for name in ("image", "text")]


def test_the_page_prints_what_the_command_prints(coco500, tmp_path):
    for name, rows in zip(("image", "text"), coco500, strict=True):
        np.save(tmp_path / f"{name}.npy", rows)
    command, expected = re.findall(r"```sh\n(.*?)```.*?```text\n(.*?)```", PAGE, re.S)[0]
    program = [sys.executable, "-m", "clip_geometry", *shlex.split(command.splitlines()[-1])[1:]]
    environment = {**os.environ, "COLUMNS": "200"}
    done = subprocess.run(program, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True)
    said, wanted = " ".join(done.stdout.split()), " ".join(expected.split())
    verdict, table = wanted.split("false accepts cutoff")
    assert re.sub(r"[\d.]+", "#", verdict.strip()) in re.sub(r"[\d.]+", "#", said)
    found = [float(number) for number in re.findall(r"[\d.]*\d", said.split("image → text")[1])]
    for number, value in zip(re.findall(r"[\d.]*\d", table.split("image → text")[1]), found, strict=False):
        # rounding in float32 moves a result across a cutoff
        assert float(number) == pytest.approx(value, abs=1.5 if float(number) >= 1 else 0.01)
    example, script = re.findall(r"```python\n(.*?)```", PAGE, re.S)
    pytest.importorskip("faiss")
    program = [sys.executable, "-c", example]
    answers = subprocess.run(program, cwd=tmp_path, capture_output=True, text=True, check=True).stdout.split("\n")
    assert len(answers) == 21 and {answer.split()[0] for answer in answers if answer} == {"image", "nothing"}
    constants: dict = {}
    exec(compile(script.replace("match.json", str(tmp_path / "match.json")), "match.md", "exec"), constants)
    model = cg.read_match(tmp_path / "match.json")["text_to_image"]
    top, search = np.array([[0.36, 0.31], [0.3, 0.29]]), {"mean": np.full(2, 0.16), "std": np.full(2, 0.04)}
    np.testing.assert_allclose(
        constants["probability"](top, *search.values(), 300), model.probability(top, **search, m=300)
    )
    assert constants["cutoff"](0.05, 300) == pytest.approx(model.cutoff(0.05, m=300))


def first_results(queries, items, rng):
    """First results of queries half of whose items are in the index, in eight draws of the index."""
    columns = []
    for _ in range(8):
        chosen = rng.permutation(len(items))[: len(items) // 2]
        cosines = queries @ items[chosen].T
        top = -np.sort(-cosines, axis=1)[:, :10]
        right = chosen[cosines.argmax(1)] == np.arange(len(queries))
        columns.append((top, cosines.mean(1), cosines.std(1), right))
    return [np.concatenate(column) for column in zip(*columns, strict=True)]


@pytest.mark.parametrize("direction", ["image_to_text", "text_to_image"])
def test_on_the_other_half_probabilities_are_better_than_any_cosine(coco500, direction):
    """Five of the twenty splits of docs/match_scores.md: AUC, Brier score, and the rate of false accepts."""
    rows = []
    for seed in range(5):
        rng = np.random.default_rng(seed)
        order = rng.permutation(500)
        fitted = cg.match(*(x[order[:250]] for x in coco500), seed=seed)[direction]
        image, text = (x[order[250:]].astype(float) for x in coco500)
        queries, items = (image, text) if direction == "image_to_text" else (text, image)
        top, mean, std, right = first_results(queries, items, rng)
        p = fitted.probability(top, mean=mean, std=std, m=125)
        platt = LogisticRegression(C=1e4).fit(top[:, :1], right)  # even when fitted on the same half
        cosine = expit(platt.intercept_ + top[:, 0] * platt.coef_[0])
        false = (p > fitted.cutoff(0.05, m=125))[~right].mean()
        rows.append((roc_auc_score(right, p), *(np.square(each - right).mean() for each in (p, cosine)), false))
    auc, brier, flat, false = np.mean(rows, axis=0)
    assert auc > 0.83 and brier < flat - 0.02 and 0.03 < false < 0.08
