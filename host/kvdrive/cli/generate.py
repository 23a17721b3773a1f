"""`kvdrive generate`: continue prompts with any local checkpoint, K and V in drives."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from kvdrive.cli.command import JsonFlag, ReportFolder, command
from kvdrive.cli.fields import Fields, kept_drives
from kvdrive.cli.llama import RuntimeOption, chosen, refuse, typed
from kvdrive.cli.llama_generate import Wanted, continue_text
from kvdrive.config.run import GROUPS, RunConfig
from kvdrive.errors import InputError
from kvdrive.generation.sampling import Sampling
from kvdrive.targets.addresses import is_address
from kvdrive.waiting import IMPORTS, waiting_for

app = typer.Typer()
_ANSWER = 6  # tokens: five digits and a full stop


def _kept(given: dict[str, Any]) -> str:
    """What is left of a generation that ^C has stopped, from its arguments."""
    if given["session"]:
        return f"the session {given['session']} keeps the text so far"
    return f"there is only the text so far; {kept_drives(given['config'])}"


@command(app, shown="generate --prompt 'def ' --max-new-tokens 32 --check", kept=_kept)
def generate(
    running: typer.Context,
    config: Annotated[RunConfig, Fields(*GROUPS, without=("lookup", "session_memory"))],
    prompt: Annotated[
        list[str] | None, typer.Option("--prompt", "-p", help="text to continue; again for a batch; - reads stdin")
    ] = None,
    prompt_file: Annotated[
        list[Path] | None, typer.Option("--prompt-file", "-f", help="file to continue; again for a batch")
    ] = None,
    max_new_tokens: Annotated[
        int, typer.Option("--max-new-tokens", "-n", min=1, help="tokens to generate at most")
    ] = 64,
    runtime: RuntimeOption = "auto",
    session: Annotated[
        str,
        typer.Option("--session", "-s", help="go on with the session of this name on --drive or --target, and keep it"),
    ] = "",
    prompt_tokens: Annotated[int, typer.Option(min=0, help="keep only the last so many prompt tokens; 0: all")] = 0,
    batch: Annotated[int, typer.Option(min=0, help="sequences at once, prompts repeat to fill it; 0: one each")] = 0,
    temperature: Annotated[float, typer.Option(min=0, help="0: always the most likely token")] = 0.0,
    top_k: Annotated[int, typer.Option(min=0, help="sample from the k most likely tokens; 0: no limit")] = 0,
    top_p: Annotated[float, typer.Option(min=0.001, max=1, help="sample from this share of the probability")] = 1.0,
    seed: Annotated[int, typer.Option(min=0, help="of the sampling")] = 0,
    ignore_stop: Annotated[bool, typer.Option("--ignore-stop", help="go on after the model's stop token")] = False,
    check: Annotated[bool, typer.Option("--check", help="compare with transformers; exit code 1 if other")] = False,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="show the table of times, bytes and commands")
    ] = False,
    report: ReportFolder = None,
    as_json: JsonFlag = False,
) -> None:
    """Continue text with a local checkpoint whose KV cache lives in drives, which compute its decode attention.

    The text goes to stdout as it comes, progress and numbers to stderr. Without a prompt, the model is asked for
    something that stands thousands of tokens back.
    """
    texts = _prompts(prompt or [], prompt_file or [])
    if not texts and (batch or session):
        raise InputError("no prompt: give --prompt TEXT or --prompt-file FILE")
    if check and temperature:
        raise InputError("--check compares greedy generation: leave --temperature out")
    if batch and batch < len(texts):
        raise InputError(f"--batch {batch} is less than the {len(texts)} prompts: raise it or leave it out")
    parts = config.placement.mini_batches
    if parts != "auto" and parts > max(batch, len(texts), 1):
        raise InputError(f"--mini-batches {parts} needs as many sequences: give more prompts, or --batch")
    if session:
        _require_one(
            session, max(batch, len(texts)), check, config.target.folder is not None or is_address(config.target.target)
        )
    sampling = Sampling(temperature, top_k, top_p, seed)
    if chosen(runtime, config):
        refuse({"check": check, "report": report})
        if not texts:
            raise InputError("llama.cpp continues a text that is given: add --prompt TEXT or --prompt-file FILE")
        given = typed(running)
        wanted = Wanted(
            given, texts, batch, session, prompt_tokens, max_new_tokens, sampling, ignore_stop, verbose, as_json
        )
        return continue_text(config, wanted)
    with waiting_for(IMPORTS):
        from rich.console import Console

        from kvdrive.generation.checkpoints import Checkpoint
        from kvdrive.generation.demonstration import Demonstration, demonstration
        from kvdrive.generation.task import Settings, passed, run
        from kvdrive.report.rates import rates

    settings = Settings(
        config.changed(sessions=bool(session)),
        new_tokens=max_new_tokens if texts else min(max_new_tokens, _ANSWER),
        sampling=sampling,
        ignore_stop=ignore_stop,
        session=session,
        check=check,
        report=report,
        stream=not as_json,
        verbose=verbose,
    )
    rows, console = batch or len(texts), Console(stderr=True)
    asked: list[Demonstration] = []

    def prompts(checkpoint: Checkpoint) -> list[list[int]]:
        if not texts:
            asked.append(demonstration(checkpoint, prompt_tokens))
            _say(console, asked[0].about)
            if not as_json:
                typer.echo(f"{asked[0].question} ", nl=False)
            return [asked[0].ids]
        ids = [checkpoint.encode(text)[-prompt_tokens:] for text in texts]
        return [ids[row % len(ids)] for row in range(rows)]

    found = run(settings, prompts, console)
    verdict = [one.verdict(found["text"][0]) for one in asked]
    if not verbose:
        _say(console, "; ".join([*verdict, rates(found)]))
    elif verdict:
        _say(console, verdict[0])
    if as_json:
        typer.echo(json.dumps(found))
    if not passed(found):
        raise typer.Exit(1)


def _say(console: Any, sentence: str) -> None:
    """Print a sentence as it is."""
    console.print(sentence, highlight=False, markup=False, soft_wrap=True)


def _require_one(session: str, rows: int, check: bool, stays: bool) -> None:
    """Raises InputError for options that do not go with a session."""
    if rows > 1:
        raise InputError("--session goes on with one sequence: give one prompt")
    if check:
        raise InputError("--check computes the prompt alone: leave it out with --session")
    if not stays:
        raise InputError("a temporary drive keeps no session: name a folder with --drive, or a drive with --target")
    if not re.fullmatch(r"[\w.-]{1,128}", session):
        raise InputError(f"'{session}' is no name of a session: take letters, digits, '_', '.' and '-'")


def _prompts(texts: list[str], files: list[Path]) -> list[str]:
    """All prompts. Raises InputError."""
    if texts and files:
        raise InputError("--prompt and --prompt-file exclude each other: give all prompts in one of the two ways")
    if texts.count("-") > 1:
        raise InputError("standard input holds one prompt: give --prompt - once")
    prompts = [sys.stdin.read() if text == "-" else text for text in texts]
    for path in files:
        try:
            prompts.append(path.read_text(encoding="utf-8"))
        except OSError as error:
            raise InputError(f"cannot read the prompt {path}: {error.strerror}") from error
        except UnicodeDecodeError as error:
            raise InputError(f"the prompt {path} is no UTF-8 text: convert it first") from error
    return prompts
