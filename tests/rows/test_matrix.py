import numpy as np
import pytest
import torch
from jaxtyping import TypeCheckError

from clip_geometry.registry import InputError
from clip_geometry.rows.matrix import (
    as_aligned,
    as_codes,
    as_matrix,
    as_rows,
    as_two_sets,
    as_values,
    blocks,
    mean_row,
    require_spread,
    unit_rows,
)
from clip_geometry.rows.streamed import StreamedRows


def test_shapes_in_signatures_are_checked_in_the_tests():
    with pytest.raises(TypeCheckError):
        mean_row(torch.ones(3))


@pytest.mark.parametrize(
    ("read", "given"), [(as_rows, np.asarray), (as_matrix, np.asarray), (as_matrix, StreamedRows.of)]
)
def test_too_few_rows_or_columns_are_refused(read, given):
    x = given(np.ones((4, 3)))
    assert len(read(x, least=4, least_d=3)) == 4
    with pytest.raises(InputError, match="y has 4 rows; expected at least 5"):
        read(x, name="y", least=5)
    with pytest.raises(InputError, match="y has 3 columns; expected at least 4"):
        read(x, name="y", least_d=4)


@pytest.mark.parametrize("given", [np.asarray, StreamedRows.of])
def test_two_sets_that_do_not_go_together_are_refused(given):
    x, shorter, narrower = (given(np.ones(shape)) for shape in ((4, 3), (3, 3), (4, 2)))
    for read in (as_aligned, as_two_sets):
        assert [len(rows) for rows in read(x, x, streams=True)] == [4, 4]
        with pytest.raises(InputError, match="a has dimension 3 and b has 2; expected the same dimension"):
            read(x, narrower, ("a", "b"), streams=True)
        assert read(x, narrower, one_space=False, streams=True)[1].shape[1] == 2
    with pytest.raises(InputError, match="a has 4 rows and b has 3; expected pairs, row i with row i"):
        as_aligned(x, shorter, ("a", "b"), streams=True)
    assert len(as_two_sets(x, shorter, streams=True)[1]) == 3
    if given is StreamedRows.of:
        with pytest.raises(InputError, match="the 4 rows of x are streamed, but all are needed in memory"):
            as_two_sets(x, x)


@pytest.mark.parametrize("missing", [None, float("nan"), np.datetime64("NaT")])
def test_labels_without_a_value_are_refused(missing):
    assert as_values(["a", 1.5, "b"]) == ["a", 1.5, "b"]
    with pytest.raises(InputError, match="labels lack a value in row 2"):
        as_values(["a", 1.5, missing])


@pytest.mark.parametrize("rows", [[8500], [3, 8500, 8501], slice(8000, 8600)])
def test_chosen_rows_of_a_stream_are_checked(rows):
    x = np.zeros((9000, 2))
    x[8500, 1] = np.nan
    with pytest.raises(InputError, match="NaN or infinity in row 8500"):
        StreamedRows.of(x)[rows]
    assert torch.equal(StreamedRows.of(x)[[8499, 8501]], torch.zeros(2, 2).double())


def test_blocks_are_float64_and_cover_the_rows():
    x = torch.arange(21.0).reshape(7, 3)
    parts = list(blocks(x, 3))
    assert [len(part) for part in parts] == [3, 3, 1]
    assert {part.dtype for part in parts} == {torch.float64}
    assert torch.equal(torch.cat(parts), x.double())


@pytest.mark.parametrize("offset", [0, 1e3, 1e6])
def test_mean_is_numpys_far_from_the_origin_too(offset):
    x = np.random.default_rng(0).normal(size=(9000, 4)) + offset  # more rows than a block
    assert np.allclose(mean_row(torch.from_numpy(x)), x.mean(0), rtol=1e-13)


def test_unit_rows_of_any_scale():
    x = torch.tensor([[3e-300, 4e-300], [3e300, 4e300]], dtype=torch.float64)
    assert np.allclose(unit_rows(x), [[0.6, 0.8], [0.6, 0.8]], rtol=1e-15)


@pytest.mark.parametrize("scale", [1e-150, 1e150])
def test_rows_whose_squares_leave_the_range_are_refused(scale):
    with pytest.raises(InputError, match="whose squares leave float64; rescale the rows"):
        as_rows(scale * np.ones((3, 2)))
    as_rows(np.array([[1e-300, 1.0], [0.0, 1.0]]))  # small entries beside others are nothing special


def test_the_row_that_is_not_finite_is_counted_from_the_start():
    x = np.zeros((9000, 2))
    x[8500, 1] = np.nan
    with pytest.raises(InputError, match="NaN or infinity in row 8500"):
        as_rows(x)


def test_equal_rows_are_their_mean_exactly():
    for seed in range(20):
        x = torch.from_numpy(np.tile(np.random.default_rng(seed).normal(size=6), (7, 1)))
        assert torch.equal(mean_row(x), x[0])


def test_spread_is_looked_for_in_every_block():
    x = torch.ones(9000, 2)
    x[4096:] = 2  # equal within each block
    assert require_spread(x) is None


def test_a_zero_row_is_counted_from_the_start_of_the_rows():
    x = torch.ones(5000, 2)
    x[4500] = 0
    with pytest.raises(InputError, match=r"image has a zero row \(row 4500\)"):
        unit_rows(x, name="image")


def test_spread_is_checked_exactly():
    x = torch.full((5, 2), 0.1, dtype=torch.float64)
    with pytest.raises(InputError, match="all 5 rows"):
        require_spread(x)
    x[3, 1] += 1e-16
    require_spread(x)


def test_codes_count_labels_in_order_of_appearance():
    codes, k = as_codes(["b", "a", "b", "c"], 4)
    assert (codes.tolist(), k) == ([0, 1, 0, 2], 3)
