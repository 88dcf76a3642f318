"""Parts in threads give what the whole gives, in order, and leave torch as it was."""

import multiprocessing
import threading

import pytest
import torch

from clip_geometry.rows.threads import FEWEST, _pool, in_threads, side_by_side, spans_in_threads


@pytest.fixture(params=[1, 3])
def count(request):
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield request.param
    assert torch.get_num_threads() == request.param
    torch.set_num_threads(before)


@pytest.mark.parametrize("n", [0, 1, FEWEST - 1, 2 * FEWEST, 5 * FEWEST + 7])
def test_parts_are_all_rows_in_their_order(count, n):
    rows = torch.arange(n)
    parts = list(in_threads(torch.clone, rows))
    assert torch.equal(torch.cat(parts), rows)
    assert len(parts) == max(1, min(count, n // FEWEST))
    spans = spans_in_threads(lambda span: span, n)
    assert len(spans) == len(parts)
    assert [number for span in spans for number in range(n)[span]] == list(range(n))


def test_parts_of_a_size_are_the_same_for_every_number_of_threads(count):
    parts = in_threads(len, torch.zeros(5 * FEWEST), 2000)
    assert list(parts) == [2000, 2000, 1120]


def test_parts_run_at_once(count):
    """Threads that wait for each other come to an end only if they run at the same time."""
    together = threading.Barrier(count, timeout=10)
    list(in_threads(lambda _: together.wait(), torch.zeros(3 * FEWEST)))
    assert not together.broken


def test_threads_that_begin_later_have_as_many_of_torch_as_before(count):
    _pool.cache_clear()
    spans_in_threads(str, 3 * FEWEST)
    result = []
    later = threading.Thread(target=lambda: result.append(torch.get_num_threads()))
    later.start()
    later.join()
    assert result == [count]


def test_the_first_error_is_that_of_the_first_part(count):
    def fail(span):
        raise ValueError(span.start)

    with pytest.raises(ValueError, match=r"^0$"):
        spans_in_threads(fail, 9 * FEWEST)


def _in_child():
    torch.set_num_threads(2)
    assert spans_in_threads(lambda span: span.start, 2 * FEWEST) == [0, FEWEST]
    assert list(in_threads(len, torch.zeros(2 * FEWEST))) == [FEWEST, FEWEST]


@pytest.mark.skipif("fork" not in multiprocessing.get_all_start_methods(), reason="this system has no fork")
def test_a_forked_process_starts_threads_of_its_own(count):
    """Those of its parent do not come along: their pool would wait for ever."""
    torch.set_num_threads(2)
    _in_child()
    child = multiprocessing.get_context("fork").Process(target=_in_child)
    child.start()
    child.join(20)
    ended = child.exitcode
    child.kill()
    torch.set_num_threads(count)
    assert ended == 0


def test_tasks_side_by_side_come_in_their_order(count):
    started = threading.Barrier(2, timeout=30)

    def task(number):
        if count > 1 and number < 2:
            started.wait()  # both are under way at a time
        return number, torch.get_num_threads()

    assert list(side_by_side(task, range(9))) == [(number, 1) for number in range(9)]


def test_after_an_error_no_task_is_left(count):
    done = []

    def task(number):
        done.append(number)
        if number == 0:
            raise ValueError("first")
        threading.Event().wait(0.002)

    with pytest.raises(ValueError, match="first"):
        list(side_by_side(task, range(500)))
    seen = len(done)
    assert seen < 500
    threading.Event().wait(0.05)
    assert len(done) == seen
