"""Commands that fail or are killed leave nothing false, and run again end as if nothing had happened.

Every file operation fails once, files and memory may not grow, and a kill comes at any instant. One file, since each
process that runs a part of it warms up a bench.
"""

import os
import random
import signal
import time
from contextlib import suppress
from pathlib import Path

import pytest

from support.faults import ERRORS, MEGABYTE

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


# --- limits

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


# --- kills

NAMES = ("embed", "embed-workers", "run", "train", "fit", "apply", "measure")


def processes_of(session):
    """Those that run; what is dead and not yet waited for does not."""
    found = []
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _, _, its_session = status.read_text().rpartition(")")[2].split()[:4]
        except OSError:  # it has ended
            continue
        if int(its_session) == session and state != "Z":
            found.append(int(status.parent.name))
    return found


def require_survival(bench, name, share):
    """share: of the time that the command takes, after which it is killed."""
    bench.begin(name)
    delay = share * bench.times[name]
    child = bench.start(*bench.commands[name])
    time.sleep(delay)
    with suppress(ProcessLookupError):  # it has ended
        os.kill(child, signal.SIGKILL)
    outcome = bench.wait()
    try:
        assert outcome.status in (-signal.SIGKILL, 0), outcome
        until = time.monotonic() + 10
        while processes_of(child) and time.monotonic() < until:
            time.sleep(0.01)
        assert processes_of(child) == []  # workers end by themselves
        bench.require_completion(name)
    except AssertionError as found:
        found.add_note(f"{name}: killed after {delay:.3f} s: {outcome}")
        raise
    return outcome.status != 0


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_killed(bench, name):
    require_survival(bench, name, random.Random(name).random())


@pytest.mark.endurance
@pytest.mark.timeout(6 * 3600)
def test_killed_five_hundred_times(bench):
    """Over the whole duration, more often at its beginning and its end; one that came too late is no kill."""
    choose, killed = random.Random(17), dict.fromkeys(NAMES, 0)
    while sum(killed.values()) < 500:
        name = min(killed, key=killed.get)
        share = choose.choice([choose.random(), choose.random(), 0.02 * choose.random(), 0.9 + 0.15 * choose.random()])
        killed[name] += require_survival(bench, name, share)
        print(time.strftime("%X"), sum(killed.values()), killed, flush=True)
