"""Python processes that begin with torch and transformers imported, which takes five seconds of processor time.

`popen` and `run` are subprocess.Popen and subprocess.run for a command that begins with this interpreter. The first
call of a test process starts a helper that imports the large libraries, but nothing of kvdrive. For each command the
helper forks; what it forks becomes a child of the test process, runs the command as Python's command line says (-m, -c
or a file) and ends as any interpreter does. It has the command's environment, folder, files and process group.

A command whose environment differs from the helper's in what a library may read while it is imported gets a process of
its own from the start, and so does every option that is not listed here.
"""

from __future__ import annotations

import atexit
import ctypes
import functools
import gc
import inspect
import io
import json
import os
import runpy
import signal
import socket
import subprocess
import sys
import threading
import time
import types
from contextlib import suppress
from pathlib import Path
from typing import Any

_LIBRARIES = (
    "torch",
    "transformers.conversion_mapping",
    "transformers.models.llama.modeling_llama",
    "transformers.models.auto.modeling_auto",
    "transformers.models.auto.tokenization_auto",
    "transformers.models.llama.tokenization_llama",
    "transformers.models.gpt2.tokenization_gpt2",
    "transformers.generation.streamers",
    "transformers.modeling_gguf_pytorch_utils",
    "prometheus_client",
    "pydantic.type_adapter",
    "rich.progress",
    "sqlite3",
    "starlette.applications",
    "typer",
    "uvicorn",
)
# What no large library reads while it is imported.
_HARMLESS = (
    "HOME",
    "PATH",
    "TMPDIR",
    "COLUMNS",
    "TERM",
    "NO_COLOR",
    "FORCE_COLOR",
    "PYTHONPATH",
    "PYTEST_CURRENT_TEST",
)
_HARMLESS_BEGINNINGS = ("KVDRIVE_", "XDG_", "PYTEST_")
_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36


def popen(command: list[Any], *, dies_with_parent: bool = False, **options: Any) -> subprocess.Popen[Any]:
    """subprocess.Popen(command, **options). `dies_with_parent`: it gets SIGKILL when this process ends."""
    end = functools.partial(_prctl, _PR_SET_PDEATHSIG, signal.SIGKILL)
    if not _can_fork(command, options):
        return subprocess.Popen(command, preexec_fn=end if dies_with_parent else None, **options)
    return _Forked(command, preexec_fn=end if dies_with_parent else None, **options)


def run(
    command: list[Any], *, input: Any = None, capture_output: bool = False, timeout: float | None = None,
    check: bool = False, **options: Any,
) -> subprocess.CompletedProcess[Any]:  # fmt: skip
    """subprocess.run."""
    if capture_output:
        options |= {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    if input is not None:
        options["stdin"] = subprocess.PIPE
    with popen(command, **options) as process:
        try:
            out, err = process.communicate(input, timeout)
        except BaseException:
            process.kill()
            raise
    done = subprocess.CompletedProcess(command, process.returncode, out, err)
    if check:
        done.check_returncode()
    return done


def _can_fork(command: list[Any], options: dict[str, Any]) -> bool:
    """Whether the command and its options can be had from a fork of the helper."""
    known = {"stdin", "stdout", "stderr", "text", "env", "cwd", "start_new_session", "encoding", "errors", "bufsize"}
    if str(command[0]) != sys.executable or not options.keys() <= known:
        return False
    if str(command[1]).startswith("-") and str(command[1]) not in ("-m", "-c"):
        return False
    wanted = os.environ if options.get("env") is None else options["env"]
    differs = {name for name in {*wanted, *os.environ} if wanted.get(name) != os.environ.get(name)}
    return all(name in _HARMLESS or name.startswith(_HARMLESS_BEGINNINGS) for name in differs)


def _prctl(what: int, value: int) -> None:
    ctypes.CDLL(None).prctl(what, value)


class _Forked(subprocess.Popen[Any]):
    """A process whose beginning is a fork of the helper."""

    def _execute_child(self, *given: Any) -> None:
        fields = inspect.signature(subprocess.Popen._execute_child).bind(self, *given).arguments  # type: ignore[attr-defined]
        ours = [fields["p2cread"], fields["c2pwrite"], fields["errwrite"]]
        request = {
            "argv": [os.fsdecode(part) for part in fields["args"]],
            "env": dict(os.environ if fields["env"] is None else fields["env"]),
            "cwd": os.fsdecode(fields["cwd"] or os.getcwd()),
            "umask": _umask(),
            "session": fields["start_new_session"],
            "dies_with_parent": fields["preexec_fn"] is not None,
            "parent": os.getpid(),
        }
        fds = [number if fd == -1 else fd for number, fd in enumerate(ours)]
        _prctl(_PR_SET_CHILD_SUBREAPER, 1)  # what the helper forks becomes a child of this process
        try:
            self.pid = _helper(os.getpid()).fork(request, fds)
        finally:
            _prctl(_PR_SET_CHILD_SUBREAPER, 0)
        self._child_created = True
        ends = ("p2cread", "p2cwrite", "c2pread", "c2pwrite", "errread", "errwrite")
        self._close_pipe_fds(*(fields[end] for end in ends))  # type: ignore[attr-defined]


def _umask() -> int:
    now = os.umask(0o077)
    os.umask(now)
    return now


class _Helper:
    """The process that forks. It ends with this one."""

    def __init__(self) -> None:
        here, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket = here
        with there:
            self._process = subprocess.Popen(
                [sys.executable, __file__, str(there.fileno())], pass_fds=[there.fileno()], stdin=subprocess.DEVNULL,
                preexec_fn=functools.partial(_prctl, _PR_SET_PDEATHSIG, signal.SIGKILL), start_new_session=True,
            )  # fmt: skip

    def fork(self, request: dict[str, Any], fds: list[int]) -> int:
        """The pid of the new process, which is a child of this one already."""
        sent = json.dumps(request).encode()
        socket.send_fds(self._socket, [len(sent).to_bytes(8, "little")], fds)
        self._socket.sendall(sent)
        pid = int.from_bytes(self._socket.recv(8, socket.MSG_WAITALL), "little")
        if not pid:
            raise RuntimeError(f"the helper of {__name__} has ended")
        return pid


@functools.cache
def _helper(pid: int) -> _Helper:
    """The helper of the process `pid`, which is this one."""
    return _Helper()


# ---- in the helper ----


def _serve(connection: socket.socket) -> dict[str, Any]:
    """Fork for each request. Returns the request in the process that it asked for; ends with the connection."""
    while True:
        head, fds, _, _ = socket.recv_fds(connection, 8, 3)
        if not head:
            os._exit(0)
        request = json.loads(connection.recv(int.from_bytes(head, "little"), socket.MSG_WAITALL))
        between = os.fork()
        if between:
            os.waitpid(between, 0)
            for fd in fds:
                os.close(fd)
            continue
        if os.fork():
            os._exit(0)
        while os.getppid() != request["parent"]:
            time.sleep(0.0005)
        for number, fd in enumerate(fds):
            os.dup2(fd, number)
        for fd in fds:
            os.close(fd)
        if request["session"]:
            os.setsid()
        if request["dies_with_parent"]:
            _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        connection.sendall(os.getpid().to_bytes(8, "little"))
        connection.close()
        return request


def _become(request: dict[str, Any]) -> None:
    """Run the command of a request as the interpreter's own command line does."""
    os.chdir(request["cwd"])
    os.umask(request["umask"])
    os.environ.clear()
    os.environ.update(request["env"])
    sys.stdin = sys.__stdin__ = io.TextIOWrapper(io.BufferedReader(io.FileIO(0, closefd=False)), "utf-8")
    for name, fd, errors in (("stdout", 1, "strict"), ("stderr", 2, "backslashreplace")):
        file = io.FileIO(fd, "w", closefd=False)
        now, lines = bool(os.environ.get("PYTHONUNBUFFERED")), fd == 2 or os.isatty(fd)
        written = file if now else io.BufferedWriter(file)
        stream = io.TextIOWrapper(written, "utf-8", errors, line_buffering=lines, write_through=now)
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)
    sys.path[1:1] = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]
    kind, *rest = request["argv"][1:]
    if kind == "-m":
        sys.path[0] = os.getcwd()
        sys.argv = rest
        runpy.run_module(rest[0], run_name="__main__", alter_sys=True)
    elif kind == "-c":
        sys.path[0] = ""
        sys.argv = ["-c", *rest[1:]]
        main = sys.modules["__main__"] = types.ModuleType("__main__")
        exec(compile(rest[0], "<string>", "exec"), main.__dict__)
    else:
        sys.path[0] = str(Path(kind).resolve().parent)
        sys.argv = [kind, *rest]
        runpy.run_path(kind, run_name="__main__")


def _run(request: dict[str, Any]) -> int:
    """Run the command of a request. Its exit status; an error and ^C are told as the interpreter tells them."""
    try:
        _become(request)
    except SystemExit as end:
        if end.code is None or isinstance(end.code, int):
            return int(end.code or 0)
        print(end.code, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        sys.excepthook(*sys.exc_info())
        return -signal.SIGINT
    except BaseException:
        sys.excepthook(*sys.exc_info())
        return 1
    return 0


def _end(status: int) -> None:
    """End as the interpreter does, but do not free a million objects one by one: that takes a second."""
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()
    if status == -signal.SIGINT:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
    os._exit(status & 0xFF)


if __name__ == "__main__":
    for _name in _LIBRARIES:
        __import__(_name)
    sys.modules["transformers.conversion_mapping"].get_checkpoint_conversion_mapping("llama")  # it makes all of them
    gc.collect()
    gc.freeze()  # a fork does not touch them, so that their memory stays shared
    with socket.socket(fileno=int(sys.argv[1])) as _connection:
        _request = _serve(_connection)
    _end(_run(_request))
