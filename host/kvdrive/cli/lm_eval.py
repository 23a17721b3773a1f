"""`kvdrive lm-eval`: the command line of the lm-eval harness, with the model `kvdrive` in its list."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Any

import typer
from typer.core import TyperCommand

from kvdrive.cli.command import example
from kvdrive.waiting import waiting_for

_EXAMPLE = example("lm-eval --model kvdrive --model_args pretrained=mini --tasks lambada_openai")
app = typer.Typer()


class Unparsed(TyperCommand):
    """A command that keeps its arguments as they were written, in `context.obj`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        ctx.obj = list(args)
        return super().parse_args(ctx, [])


@app.command(
    "lm-eval",
    cls=Unparsed,
    add_help_option=False,
    epilog=_EXAMPLE,
)
def lm_eval(context: typer.Context) -> None:
    """Run the lm-eval harness with kvdrive among its models: lm-eval --model kvdrive --model_args pretrained=mini ...

    All arguments are those of the harness's own command `lm_eval`, --help included.
    """
    with waiting_for("importing lm-eval, torch and transformers"):
        import_module("kvdrive.plugins.lm_eval")  # adds the model to the harness's list
        harness = import_module("lm_eval.__main__")
    sys.argv = ["lm_eval", *context.obj]
    harness.cli_evaluate()
