# SPDX-License-Identifier: Apache-2.0
"""Kills a process at a chosen system call: SIGKILL, before the call happens. Every write is a system call.

The work runs in a forked child that this process traces, so that each kill costs milliseconds and none is missed. The
calls of all its threads count, but those that change nothing on a disk: a kill before one of these leaves what a kill
before the next one leaves.
"""

from __future__ import annotations

import ctypes
import os
import platform
import signal
from collections.abc import Callable, Iterator

_TRACEME, _SYSCALL, _SETOPTIONS, _GET_SYSCALL_INFO = 0, 24, 0x4200, 0x420E
_GOOD, _EXITKILL, _CLONE, _FORK = 1, 1 << 20, 1 << 3, 1 << 1
_ALL = 0x40000000  # __WALL: threads too
_SYSCALL_STOP = signal.SIGTRAP | 0x80
_ENTRY = 1  # of a system call
# Calls of Linux on x86-64 that change no file: what is missing here counts, and so does every call of other machines.
_HARMLESS = {
    "x86_64": {
        "read": 0, "close": 3, "stat": 4, "fstat": 5, "lstat": 6, "poll": 7, "lseek": 8, "mmap": 9, "mprotect": 10,
        "munmap": 11, "brk": 12, "rt_sigaction": 13, "rt_sigprocmask": 14, "pread64": 17, "readv": 19, "access": 21,
        "sched_yield": 24, "mremap": 25, "madvise": 28, "nanosleep": 35, "getpid": 39, "uname": 63, "fcntl": 72,
        "flock": 73, "getcwd": 79, "readlink": 89, "gettimeofday": 96, "getrlimit": 97, "getrusage": 98,
        "sysinfo": 99, "getuid": 102, "getgid": 104, "geteuid": 107, "getegid": 108, "sigaltstack": 131,
        "statfs": 137, "fstatfs": 138, "prctl": 157, "arch_prctl": 158, "gettid": 186, "time": 201, "futex": 202,
        "sched_getaffinity": 204, "set_tid_address": 218, "fadvise64": 221, "clock_gettime": 228, "getdents64": 217,
        "clock_getres": 229, "clock_nanosleep": 230, "newfstatat": 262, "readlinkat": 267, "faccessat": 269,
        "set_robust_list": 273, "preadv": 295, "prlimit64": 302, "getcpu": 309, "getrandom": 318, "preadv2": 327,
        "statx": 332, "rseq": 334, "clone3": 435, "faccessat2": 439,
    }
}  # fmt: skip
_NUMBERS = frozenset(_HARMLESS.get(platform.machine(), {}).values())
_OPENAT, _FLAGS = 257, 2  # of x86-64: its argument number 2
_MAKES = os.O_CREAT | os.O_TRUNC | (getattr(os, "O_TMPFILE", 0) & ~os.O_DIRECTORY)
_libc = ctypes.CDLL(None, use_errno=True)
_libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
_libc.ptrace.restype = ctypes.c_long


class _Call(ctypes.Structure):
    """struct ptrace_syscall_info, where a call begins."""

    _fields_ = (
        ("op", ctypes.c_uint8),
        ("arch", ctypes.c_uint32),
        ("instruction_pointer", ctypes.c_uint64),
        ("stack_pointer", ctypes.c_uint64),
        ("number", ctypes.c_uint64),
        ("arguments", ctypes.c_uint64 * 6),
    )


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
    if _trace(_SETOPTIONS, child, None, _GOOD | _EXITKILL | _CLONE | _FORK):
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        raise NoTracingError
    calls = 0
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
        if stopped == _SYSCALL_STOP and _begins_a_change(pid):
            calls += 1
            if calls == kill_at:
                os.kill(child, signal.SIGKILL)
                while os.waitpid(-1, _ALL)[0] != child:
                    pass
                return calls
        own = stopped in (_SYSCALL_STOP, signal.SIGTRAP, signal.SIGSTOP)
        _trace(_SYSCALL, pid, None, 0 if own else stopped)


def at_every_call(work: Callable[[], object], begin: Callable[[], object], most: int = 1 << 30) -> Iterator[int]:
    """Kill `work` at each of its system calls, or at `most` of them, evenly spread; the caller looks after each kill.

    `begin` comes before each. The last round, 0, is not killed. Raises NoTracingError.
    """
    begin()
    calls = run(work)
    assert calls, "the work changes no file"
    for at in range(1, calls + 1, max(1, -(-calls // most))):
        begin()
        run(work, at)
        yield at
    begin()
    run(work)
    yield 0


def _begins_a_change(pid: int) -> bool:
    """True where the stopped thread begins a system call that may change a file."""
    call = _Call()
    if _trace(_GET_SYSCALL_INFO, pid, ctypes.sizeof(call), ctypes.byref(call)) <= 0 or call.op != _ENTRY:
        return False
    if call.number == _OPENAT and _NUMBERS:
        return bool(call.arguments[_FLAGS] & _MAKES)
    return call.number not in _NUMBERS


def _trace(request: int, pid: int, address: int | None = None, data: object = None) -> int:
    return int(_libc.ptrace(request, pid, address, data))
