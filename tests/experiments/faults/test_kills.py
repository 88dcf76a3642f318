"""Commands that are killed at any instant, and then run again, end as if they had not been."""

import os
import random
import signal
import time
from contextlib import suppress
from pathlib import Path

import pytest

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
