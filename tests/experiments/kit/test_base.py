"""Labels name what differs."""

from clip_geometry_experiments.kit.base import distinct_labels


def test_shared_parts_are_left_out_unless_labels_become_equal():
    assert distinct_labels(["cola, a model", "rte, a model"]) == ["cola", "rte"]
    assert distinct_labels(["a, b", "b, a"]) == ["a, b", "b, a"] and distinct_labels(["a, b"]) == ["a, b"]
