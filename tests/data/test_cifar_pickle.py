import pickle
from pathlib import Path

import numpy as np
import pytest

from clip_geometry.data.cifar100 import read_pickle
from clip_geometry.registry import InputError


class _Touch:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return Path.touch, (self.path,)


def test_a_pickle_that_runs_code_is_refused(tmp_path):
    (tmp_path / "evil").write_bytes(pickle.dumps({"data": _Touch(tmp_path / "ran")}, protocol=2))
    with pytest.raises(InputError, match=r"is not one of CIFAR's pickles: it asks for"):
        read_pickle(tmp_path / "evil")
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("name", ["test", "meta"])
def test_it_reads_what_pickle_reads(cifar_python, name):
    path = cifar_python / "cifar-100-python" / name
    expected = pickle.loads(path.read_bytes(), encoding="latin1")
    ours = read_pickle(path)
    pixels, expected_pixels = ours.pop("data", None), expected.pop("data", None)
    assert ours == expected
    assert np.array_equal(pixels, expected_pixels)


@pytest.mark.parametrize("content", [b"", b"text", pickle.dumps({"data": [1, 2]})[:-4], pickle.dumps([1])])
def test_damaged_pickles(tmp_path, content):
    (tmp_path / "test").write_bytes(content)
    with pytest.raises(InputError, match=r"is not one of CIFAR's pickles: ."):
        read_pickle(tmp_path / "test")
