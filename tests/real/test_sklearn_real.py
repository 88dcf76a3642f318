"""The search on real embeddings in docs/howto/sklearn.md: its code, run, gives its table."""

import re
from pathlib import Path

import numpy as np
import pytest
import sklearn
from sklearn.model_selection import GridSearchCV, GroupKFold

from clip_geometry.training.sklearn import PipelineTransformer, scorer


@pytest.mark.slow
def test_the_search_on_coco500(coco500, tmp_path, monkeypatch):
    page = (Path(__file__).parents[2] / "docs" / "howto" / "sklearn.md").read_text(encoding="utf-8")
    (code,) = re.findall(r"```py\n(.*?)```", page, re.S)
    table = re.findall(r"^\| .* \| ([\d.]+) \| ([\d.]+) \| ([\d.]+) \|$", page, re.M)
    (tmp_path / "coco500").mkdir()
    for name, rows in zip(("image", "text"), coco500, strict=True):
        np.save(tmp_path / "coco500" / f"{name}.npy", rows)
    monkeypatch.chdir(tmp_path)
    known = {
        "np": np,
        "sklearn": sklearn,
        "GridSearchCV": GridSearchCV,
        "GroupKFold": GroupKFold,
        "PipelineTransformer": PipelineTransformer,
        "scorer": scorer,
    }
    exec(code, known)
    found = np.stack([known["search"].cv_results_[f"mean_test_{name}"] for name in known["names"]], axis=1)
    assert np.abs(found - np.array(table, float)).max() < 0.0051  # two digits; recall moves in steps of 0.002
    assert "all_but_the_top(64)" in known["search"].best_params_["steps"]
