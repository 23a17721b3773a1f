"""The command line: one module per sub-command, options that several share in `options`."""

from __future__ import annotations

import os
import sys

import typer

from kvdrive.cli.chat import app as chat_app
from kvdrive.cli.doctor import app as doctor_app
from kvdrive.cli.drive import app as drive_app
from kvdrive.cli.eval import app as eval_app
from kvdrive.cli.generate import app as generate_app
from kvdrive.cli.kernel import app as kernel_app
from kvdrive.cli.lm_eval import app as lm_eval_app
from kvdrive.cli.run import app as run_app
from kvdrive.cli.serve import app as serve_app
from kvdrive.errors import KvdriveError

app = typer.Typer(no_args_is_help=True, pretty_exceptions_enable=False, help="Attention inside the drive.")
app.add_typer(run_app)
app.add_typer(generate_app)
app.add_typer(chat_app)
app.add_typer(serve_app)
app.add_typer(eval_app)
app.add_typer(lm_eval_app)
app.add_typer(doctor_app)
app.add_typer(kernel_app, name="kernel")
app.add_typer(drive_app, name="drive")


# How long torch's threads wait for more work before they sleep, in looks of libgomp: some 0.1 ms in place of
# milliseconds. They would keep a processor from the attention that follows a layer's matrices.
SPINS = "10000"


def main() -> None:
    """Entry point: our own errors are one sentence on stderr, exit code 2."""
    os.environ.setdefault("GOMP_SPINCOUNT", SPINS)  # read when torch is imported, which no command has done yet
    try:
        app()
    except KvdriveError as error:
        sys.stderr.write(f"kvdrive: {error}\n")
        sys.exit(2)
