import numpy as np
import pytest

import clip_geometry as cg
from support.clip_like import clip_like


@pytest.fixture(scope="session")
def sets():
    return {name: rows.astype(np.float32) for name, rows in clip_like(120).items()}


@pytest.fixture(scope="session")
def scenes():
    return cg.data.load_dataset("scenes", size=60)


@pytest.fixture(scope="session")
def exploration(scenes):
    """60 scenes with rows that are not theirs, and labels, captions and images that are."""
    rows = clip_like(60)
    given = {
        side.modality: cg.Embeddings(
            rows[side.modality].astype(np.float32), side.modality, item_id=list(side.item_id), labels=side.labels
        )
        for side in scenes.sides
    }
    return cg.explore(given, data=scenes, repairs=["center", "procrustes", "posterior"], umap=False)
