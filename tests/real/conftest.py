import os
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def data():
    """The folder of real data, see docs/data.md."""
    folder = os.environ.get("CLIP_GEOMETRY_DATA")
    if not folder:
        pytest.skip("CLIP_GEOMETRY_DATA is not set; docs/data.md says how to build such a folder")
    return Path(folder)


@pytest.fixture(scope="session")
def coco500(data):
    import numpy as np

    folder = data / "embeddings" / "coco500-clip-vit-b16"
    return np.load(folder / "image.npy"), np.load(folder / "text.npy")
