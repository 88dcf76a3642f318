import pytest

import clip_geometry as cg
from clip_geometry.search.checks import Context, checks
from support.clip_like import clip_like


@pytest.fixture
def clean():
    return clip_like(400)


@pytest.fixture
def run():
    """Runs one check on arrays or Embeddings: its findings."""

    def call(name, sets, other=None, **fields):
        def as_sets(arrays):
            return {k: x if isinstance(x, cg.Embeddings) else cg.Embeddings(x, k, **fields) for k, x in arrays.items()}

        context = Context(as_sets(sets), other=None if other is None else as_sets(other), seed=3)
        return list(checks[name].function(context))

    return call
