"""What the kernel multiplies: in range, about a near point, and with the lengths of what is multiplied."""

import pytest
import torch

from clip_geometry.geometry._kernels.fused_operands import FORMS, LARGEST, TYPICAL, class_centres, middle, operands

SHAPE = (64, 32)  # of 50 rows of 20
BITS = {"fp16x3": 22, "tf32x3": 24, "ieee": 24, "tf32": 11, "fp16": 11, "bf16": 8}


def given(products, *, factor=1.0, outlier=1.0):
    """Rows of two classes, their centres, and their operands."""
    generator = torch.Generator().manual_seed(0)
    rows = factor * torch.randn(50, 20, generator=generator)
    rows[7] *= outlier
    which = torch.arange(50) // 25
    centres = class_centres(rows, [0, 25, 50])
    return rows - centres[which], operands(rows, centres, which, FORMS[products], SHAPE)


def multiplied(found, products):
    return found.high.double() + (found.low.double() if FORMS[products].split else 0)


@pytest.mark.parametrize("factor", [1e-37, 1e-4, 1.0])
@pytest.mark.parametrize("products", BITS)
def test_rows_are_rounded_once_and_lengths_are_those_of_what_is_multiplied(products, factor):
    """Those of the rows before they were rounded would not cancel against the products."""
    rows, found = given(products, factor=factor)
    kept, scaled = multiplied(found, products), rows.double() * found.scale[:50, None]
    assert torch.equal(found.norms, kept.square().sum(1).float())
    assert not kept[50:].any() and not kept[:, 20:].any()
    error = (kept[:50, :20] - scaled).abs()
    assert (error <= 2.0 ** -BITS[products] * scaled.abs() + 2.0**-25).all()  # half of float16's last place
    assert error.any() == (BITS[products] < 24)


def test_the_median_row_of_each_centre_has_the_typical_length():
    _, found = given("fp16x3", factor=1e-6)
    lengths = (multiplied(found, "fp16x3")[:50, :20].square().mean(1)).sqrt()
    for part in lengths.split(25):
        assert 2.0 ** (TYPICAL - 1) <= float(part.median()) < 2.0**TYPICAL
    exponents = found.scale.log2()
    assert torch.equal(exponents, exponents.round())  # which changes no digit


def test_a_row_that_does_not_fit_has_no_length_and_the_others_keep_theirs():
    rows, found = given("fp16", outlier=200.0)
    fits = (rows * found.scale[:50, None]).abs().amax(1) < LARGEST
    assert (~fits).nonzero().flatten().tolist() == [7]
    assert found.norms.isnan().nonzero().flatten().tolist() == [7]
    assert found.high.isfinite().all() and not found.high[7].any()


def test_a_centre_is_near_most_rows_of_its_class():
    """Every ninth row, of 81 rows at most four of nine far away; of one or two rows it is the last."""
    rows = torch.randn(84, 3, generator=torch.Generator().manual_seed(0))
    rows[:36] += 1e6
    found = class_centres(rows, [0, 81, 82, 84])
    assert (found[0].abs() < 10).all()
    assert torch.equal(found[1], rows[81])
    assert torch.equal(found[2], rows[83])


def test_the_middle_is_near_most_classes():
    centres = torch.randn(3000, 2, generator=torch.Generator().manual_seed(0)) + 50
    centres[:1000] += 1e6
    assert ((middle(centres) - 50).abs() < 10).all()
