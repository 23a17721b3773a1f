"""The command line: one module per sub-command; those of the study of papers are in `study.cli`."""

from __future__ import annotations

import os
import sys
from typing import Annotated, NoReturn

import typer

from kvdrive import __version__
from kvdrive.cli.batch import app as batch_app
from kvdrive.cli.calibrate import app as calibrate_app
from kvdrive.cli.chat import app as chat_app
from kvdrive.cli.convert import app as convert_app
from kvdrive.cli.doctor import app as doctor_app
from kvdrive.cli.drive import app as drive_app
from kvdrive.cli.eval import app as eval_app
from kvdrive.cli.fields import with_flags
from kvdrive.cli.generate import app as generate_app
from kvdrive.cli.kernel import app as kernel_app
from kvdrive.cli.lm_eval import app as lm_eval_app
from kvdrive.cli.plan import app as plan_app
from kvdrive.cli.run import app as run_app
from kvdrive.cli.serve import app as serve_app
from kvdrive.cli.sessions import app as sessions_app
from kvdrive.cli.sparsify import app as sparsify_app
from kvdrive.cli.train_predictor import app as train_predictor_app
from kvdrive.errors import KvdriveError, Stopped
from kvdrive.study.cli.figures import app as figures_app
from kvdrive.study.cli.ledger import app as ledger_app
from kvdrive.study.cli.replay import app as replay_app

app = typer.Typer(
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="Attention inside the drive.",
    context_settings={"help_option_names": ["-h", "--help"]},  # applies to all commands
)
app.add_typer(run_app)
app.add_typer(generate_app)
app.add_typer(convert_app)
app.add_typer(sparsify_app)
app.add_typer(train_predictor_app)
app.add_typer(batch_app)
app.add_typer(chat_app)
app.add_typer(serve_app)
app.add_typer(eval_app)
app.add_typer(lm_eval_app)
app.add_typer(calibrate_app)
app.add_typer(plan_app)
app.add_typer(ledger_app)
app.add_typer(figures_app)
app.add_typer(doctor_app)
app.add_typer(kernel_app, name="kernel")
app.add_typer(drive_app, name="drive")
app.add_typer(sessions_app, name="sessions")
app.add_typer(replay_app)


# Iterations for which torch's idle OpenMP threads spin before they sleep: about 0.1 ms, the default is milliseconds.
# Threads that spin longer take a processor from the attention that follows a layer's matrix products.
SPINS = "10000"


_STOPPED = 130  # exit code after ^C, as shells have it

# Optional packages, which commands import when they need them, and the extras of pyproject.toml that install them.
EXTRAS = {
    "torch": "models",
    "transformers": "models",
    "safetensors": "models",
    "accelerate": "models",
    "tokenizers": "models",
    "jinja2": "models",
    "matplotlib": "figures",
    "starlette": "serve",
    "uvicorn": "serve",
    "prometheus_client": "serve",
    "lm_eval": "eval",
    "gguf": "gguf",
    "ray": "ray",
}


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"kvdrive {__version__}")
        raise typer.Exit


Version = Annotated[bool, typer.Option("--version", callback=_print_version, is_eager=True, help="print the version")]


@app.callback()
def options(version: Version = False) -> None:
    """Options of the command line itself."""


def main() -> None:
    """Entry point: our own errors are one sentence on stderr, exit code 2; after ^C it is 130."""
    os.umask(0o077)  # files that libraries write for us are private, too
    os.environ.setdefault("GOMP_SPINCOUNT", SPINS)  # takes effect when torch is imported, which happens later
    try:
        app()
    except Stopped as error:
        _end(str(error), _STOPPED)
    except SystemExit as ended:
        if ended.code == _STOPPED:  # typer's exit code after ^C
            sys.stderr.write("kvdrive: stopped\n")
        raise
    except KvdriveError as error:
        _end(with_flags(str(error)))
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package not in EXTRAS:
            raise
        _end(f"this command needs the package {package}: pip install 'kvdrive[{EXTRAS[package]}]'")
    except OSError as error:
        if error.filename is None:
            raise
        _end(f"cannot use {error.filename}: {error.strerror}")


def _end(sentence: str, status: int = 2) -> NoReturn:
    sys.stderr.write(f"kvdrive: {sentence}\n")
    sys.exit(status)
