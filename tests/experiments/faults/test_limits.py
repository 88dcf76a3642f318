"""Files that may not grow and memory that may not: one sentence, and the same command without the limit completes."""

import pytest

from support.faults import MEGABYTE

LONG = [pytest.param(name, marks=pytest.mark.endurance) for name in ("run", "train")]


@pytest.mark.parametrize("name", ["embed", *LONG, "fit", "apply", "measure"])
def test_files_that_may_not_grow(bench, name):
    largest = max(len(content) for content in bench.whole(name).values() if isinstance(content, bytes))
    for limit in (0, largest - 1):
        bench.begin(name)
        bench.require_refusal(bench.run(*bench.commands[name], limits={"RLIMIT_FSIZE": limit}))
        bench.require_completion(name)


@pytest.mark.endurance
@pytest.mark.parametrize("name", ["fit-large", "measure-large"])
def test_memory_that_may_not_grow(bench, name):
    statuses = []
    for megabytes in (0, 2, 8, 24):
        bench.begin(name)
        outcome = bench.run(*bench.commands[name], limits={"RLIMIT_AS": megabytes * MEGABYTE})
        statuses.append(outcome.status)
        if outcome.status != 0:
            bench.require_refusal(outcome)
        bench.require_completion(name)
    assert 2 in statuses
