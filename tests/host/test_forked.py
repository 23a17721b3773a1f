# SPDX-License-Identifier: Apache-2.0
"""Processes of tests/shared/forked.py are like those that subprocess starts."""

import os
import signal
import subprocess
import sys

import forked
import pytest

SAYS = """
import atexit, os, sys
print(sys.argv, os.getcwd(), os.environ.get("KVDRIVE_ONE"), os.getppid(), sys.stdin.read(), __name__, sys.path[0])
print("kvdrive" in sys.modules, os.getpid() == os.getpgid(0), os.environ.get("OMP_NUM_THREADS"))
atexit.register(print, "at exit")
print("to stderr", file=sys.stderr)
"""


@pytest.mark.parametrize(
    ("ending", "environment"),
    [
        pytest.param(ending, environment, marks=pytest.mark.slow if ending and environment else ())
        for ending in ("", "sys.exit(3)", "sys.exit('a sentence')", "raise SystemExit(None)", "os._exit(4)")
        for environment in ({}, {"KVDRIVE_ONE": "1"}, {"OMP_NUM_THREADS": "1"}, {"PYTHONUNBUFFERED": ""})
    ],
)
def test_a_program_of_a_line_is_the_same(ending, environment, tmp_path):
    command = [sys.executable, "-c", SAYS + ending, "an argument", "-m"]
    options = {"input": "given", "cwd": tmp_path, "env": os.environ | environment, "start_new_session": True}
    options |= {"capture_output": True, "text": True}
    expected, found = subprocess.run(command, check=False, **options), forked.run(command, **options)
    assert (found.returncode, found.stdout, found.stderr) == (expected.returncode, expected.stdout, expected.stderr)


def test_files_and_modules_are_the_same(tmp_path):
    (tmp_path / "one.py").write_text("import sys, two; print(sys.argv, two.__file__, __file__, __name__)")
    (tmp_path / "two.py").write_text("")
    for command in ([tmp_path / "one.py", "x"], ["-m", "one", "x"]):
        options = {"cwd": tmp_path, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
        expected = subprocess.run([sys.executable, *command], check=False, **options)
        assert forked.run([sys.executable, *command], **options).stdout == expected.stdout
        assert expected.returncode == 0


def test_libraries_are_there_and_the_project_is_not():
    program = "import sys; print('torch' in sys.modules, [name for name in sys.modules if name.startswith('kvdrive')])"
    done = forked.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout == "True []\n"


def test_an_error_and_signals_end_it():
    done = forked.run([sys.executable, "-c", "1 / 0"], capture_output=True, text=True)
    assert (done.returncode, done.stderr.splitlines()[-1]) == (1, "ZeroDivisionError: division by zero")
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGKILL):
        program = "import time; print('begun', flush=True); time.sleep(60)"
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
        with forked.popen([sys.executable, "-c", program], **pipes) as process:
            assert process.stdout.readline() == b"begun\n"
            process.send_signal(number)
        assert process.returncode == -number


def test_a_check_and_a_timeout_raise():
    with pytest.raises(subprocess.CalledProcessError):
        forked.run([sys.executable, "-c", "import sys; sys.exit(1)"], check=True)
    with pytest.raises(subprocess.TimeoutExpired):
        forked.run([sys.executable, "-c", "import time; time.sleep(60)"], timeout=0.1)


def test_another_program_or_option_is_started_as_usual(tmp_path):
    assert forked.run(["/bin/echo", "x"], capture_output=True).stdout == b"x\n"
    done = forked.run(
        [sys.executable, "-X", "utf8", "-c", "import sys; print('torch' in sys.modules)"], capture_output=True
    )
    assert done.stdout == b"False\n"
