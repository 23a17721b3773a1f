"""The picture of the server's page: two conversations with a real model, in a headless browser."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

from browser import Browser, program
from kvdrive.errors import InputError

PICTURE = Path(__file__).resolve().parents[1] / "docs" / "page.png"
OTHER = "Name three rivers of Europe."
QUESTIONS = (
    "Why do computers keep data on flash memory?",
    "Write a short Python function that adds two numbers.",
)
ANSWER_SECONDS = 600
ANSWERS = "document.querySelectorAll('.assistant').length"
IDLE = "document.getElementById('log').getAttribute('aria-busy') === 'false'"


def ask(page: Browser, question: str) -> None:
    """Type a question and wait for the whole answer."""
    before = page.value(ANSWERS)
    page.value("document.getElementById('question').focus()")
    page.type(question)
    page.press("Enter")
    page.wait(f"{ANSWERS} > {before} && {IDLE}", ANSWER_SECONDS)


def main() -> None:
    """Start a server, talk, write the picture."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="smollm2")
    parser.add_argument("--name", default="smollm2")
    parser.add_argument("--out", type=Path, default=PICTURE)
    parser.add_argument("--dark", action="store_true")
    parser.add_argument("--width", type=int, default=1280)
    parser.add_argument("--height", type=int, default=860)
    parser.add_argument("--tokens", type=int, default=110, help="of the longest answer")
    given = parser.parse_args()
    path = program()
    if path is None:
        raise InputError("there is no Chromium here: scripts/system_packages.sh page installs one")
    with tempfile.TemporaryDirectory() as folder:
        options = [
            "--model",
            given.model,
            "--port",
            "0",
            "--drive",
            folder,
            "--max-tokens",
            "2000",
            "--name",
            given.name,
        ]
        command = [sys.executable, "-m", "kvdrive", "serve", *options]
        server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert server.stdout is not None
        try:
            address = server.stdout.readline().split()[-1].removesuffix("/v1")
            with Browser(path) as page:
                page.resize(given.width, given.height, given.dark)
                page.open(address)
                chosen = json.dumps({"max_tokens": given.tokens, "temperature": 0})
                page.value(f"localStorage.setItem('kvdrive.options', {json.dumps(chosen)})")
                page.open(address)
                page.wait("document.getElementById('model').textContent !== ''")
                ask(page, OTHER)
                page.value("document.getElementById('new').click()")
                for question in QUESTIONS:
                    ask(page, question)
                page.wait("document.querySelectorAll('#conversations .where').length === 2")
                page.wait("document.querySelectorAll('.plain').length === 0")
                page.wait("document.getElementById('load').textContent.startsWith('0 answers')")
                page.picture(given.out)
        finally:
            server.terminate()
            server.wait(30)


if __name__ == "__main__":
    main()
