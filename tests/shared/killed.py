# SPDX-License-Identifier: Apache-2.0
"""Kills a process at a chosen system call: SIGKILL, before the call happens. Every write is a system call.

The work runs in a forked child that this process traces, so that each kill costs milliseconds and none is missed.
"""

from __future__ import annotations

import ctypes
import os
import signal
from collections.abc import Callable, Iterator

_TRACEME, _SYSCALL, _SETOPTIONS = 0, 24, 0x4200
_GOOD, _EXITKILL, _CLONE, _FORK = 1, 1 << 20, 1 << 3, 1 << 1
_ALL = 0x40000000  # __WALL: threads too
_SYSCALL_STOP = signal.SIGTRAP | 0x80
_libc = ctypes.CDLL(None, use_errno=True)
_libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
_libc.ptrace.restype = ctypes.c_long


class NoTracingError(Exception):
    """This machine lets no process trace its own child."""


def run(work: Callable[[], object], kill_at: int | None = None) -> int:
    """Run `work` in a child, which is killed at its system call number `kill_at`. The number of calls that it made.

    Raises NoTracingError, AssertionError where `work` fails.
    """
    child = os.fork()
    if child == 0:
        try:
            _trace(_TRACEME, 0)
            os.kill(os.getpid(), signal.SIGSTOP)
            work()
            os._exit(0)
        except BaseException as error:
            os.write(2, f"{type(error).__name__}: {error}\n".encode())
            os._exit(1)
    os.waitpid(child, 0)
    if _trace(_SETOPTIONS, child, _GOOD | _EXITKILL | _CLONE | _FORK):
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        raise NoTracingError
    calls, entering = 0, True
    _trace(_SYSCALL, child)
    while True:
        pid, status = os.waitpid(-1, _ALL)
        if os.WIFEXITED(status) or os.WIFSIGNALED(status):
            if pid != child:
                continue
            assert os.WIFEXITED(status), f"ended by signal {os.WTERMSIG(status)}"
            assert os.WEXITSTATUS(status) == 0, "the work failed; its error is on stderr"
            return calls
        stopped = os.WSTOPSIG(status)
        if pid == child and stopped == _SYSCALL_STOP:
            calls += entering
            entering = not entering
            if calls == kill_at:
                os.kill(child, signal.SIGKILL)
                while os.waitpid(-1, _ALL)[0] != child:
                    pass
                return calls
        own = stopped in (_SYSCALL_STOP, signal.SIGTRAP, signal.SIGSTOP)
        _trace(_SYSCALL, pid, 0 if own else stopped)


def at_every_call(work: Callable[[], object], begin: Callable[[], object], most: int = 1 << 30) -> Iterator[int]:
    """Kill `work` at each of its system calls, or at `most` of them, evenly spread; the caller looks after each kill.

    `begin` comes before each. The last round, 0, is not killed. Raises NoTracingError.
    """
    begin()
    calls = run(work)
    for at in range(1, calls + 1, max(1, calls // most)):
        begin()
        run(work, at)
        yield at
    begin()
    run(work)
    yield 0


def _trace(request: int, pid: int, data: int = 0) -> int:
    return _libc.ptrace(request, pid, None, data)
