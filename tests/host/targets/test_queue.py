"""Work for one drive: in order, in the queue's thread or in that of a caller who waits."""

import threading

import pytest
import torch

from kvdrive._native import threads_lent
from kvdrive.errors import TargetError
from kvdrive.targets.queue import WorkQueue


@pytest.fixture
def queue():
    one = WorkQueue([], "test")
    yield one
    one.close()


def thread_of(_):
    return threading.current_thread()


def test_started_work_runs_in_the_queues_thread_and_work_here_in_the_callers(queue):
    own = queue.start(thread_of).result()
    assert own.name == "test"
    assert queue.start_here(thread_of).result() is threading.current_thread()


def test_work_here_may_use_the_threads_with_which_torch_computes_for_the_caller(queue):
    assert queue.start_here(lambda _: threads_lent()).result() == torch.get_num_threads()
    assert queue.start(lambda _: threads_lent()).result() == 0
    assert threads_lent() == 0
    with pytest.raises(ZeroDivisionError):
        queue.start_here(lambda _: 1 / 0).result()
    assert threads_lent() == 0


def test_work_here_comes_after_all_started_work(queue):
    ended = threading.Event()
    first = queue.start(lambda done: (ended.wait(60), done.append(1)))
    second = queue.start(lambda done: done.append(2))
    third = queue.start_here(lambda done: (done.append(3), threading.current_thread()))
    assert not third.done()
    ended.set()
    assert third.result()[1].name == "test"
    assert queue.target == [1, 2, 3]
    assert first.done()
    assert second.done()


def test_work_waits_for_work_in_the_callers_thread(queue):
    started = []

    def here(done):
        started.append(queue.start(lambda done: done.append("later")))
        threading.Event().wait(0.05)
        done.append("here")

    queue.start_here(here).result()
    started[0].result()
    assert queue.target == ["here", "later"]


def test_an_error_here_is_the_futures_and_a_lost_drive_is_noted(queue):
    def lose(_):
        raise TargetError("gone")

    future = queue.start_here(lose)
    assert queue.failed
    with pytest.raises(TargetError, match="gone"):
        future.result()


def test_a_closed_queue_does_nothing_here(queue):
    queue.close()
    with pytest.raises(TargetError, match="detached"):
        queue.start_here(thread_of).result()


def test_many_threads_share_a_queue(queue):
    def count(done):
        before = len(done)
        done.append(threading.get_ident())
        assert len(done) == before + 1

    def work():
        for turn in range(200):
            (queue.start_here if turn % 3 else queue.start)(count).result()

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(queue.target) == 800
