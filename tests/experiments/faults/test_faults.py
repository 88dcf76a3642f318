"""Every file operation of every command fails once: one sentence, nothing false, and the same command completes."""

import random

import pytest

from support.faults import ERRORS

SAMPLE = {"embed": 2, "run": 1, "fit": 2, "apply": 2, "measure": 2}


def require_recovery(bench, name, number, operation, error):
    bench.begin(name)
    outcome = bench.run(*bench.commands[name], faults={"fail": [number, ERRORS[error]]})
    try:
        if outcome.status == 0:  # it could do without
            assert bench.contents() == bench.whole(name)
        else:
            bench.require_refusal(outcome)
        bench.require_completion(name)
    except AssertionError as found:
        found.add_note(f"{name}: operation {number}, {operation}, failed with {error}: {outcome}")
        raise


@pytest.mark.parametrize("name", SAMPLE)
def test_an_operation_fails(bench, name):
    """Some of the operations, each with one of the errors."""
    operations, choose = bench.operations(name), random.Random(name)
    for number in choose.sample(range(1, len(operations) + 1), SAMPLE[name]):
        require_recovery(bench, name, number, operations[number - 1], choose.choice(list(ERRORS)))


@pytest.mark.endurance
@pytest.mark.timeout(6 * 3600)
@pytest.mark.parametrize("error", ERRORS)
@pytest.mark.parametrize("name", [*SAMPLE, "embed-workers", "train"])
def test_each_operation_fails(bench, name, error):
    for number, operation in enumerate(bench.operations(name), start=1):
        require_recovery(bench, name, number, operation, error)
