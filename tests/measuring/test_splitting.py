import numpy as np
import pytest

from clip_geometry.embeddings import Embeddings
from clip_geometry.measuring.given import split_by
from clip_geometry.registry import InputError


def test_a_column_of_lists_does_not_group():
    values = np.empty(4, dtype=object)
    values[:] = [[1, 2]] * 4
    sets = {"image": Embeddings(np.eye(4), "image", metadata={"g": values})}
    with pytest.raises(InputError, match=r"column 'g' of image embeddings holds .* to group by"):
        list(split_by(sets, "g"))
