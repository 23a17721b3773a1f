"""Conversations in processes that are killed at a random step of what they do, again and again on the same drive.

    python kills.py FOLDER KILLS SEED [drive|memory] [MODEL]

A step is a command of the drive, or a step of a save. Each process first finds what the one before it has saved, checks
it, and goes on. Prints the number of kills, of processes and of tokens that were found again.
"""

import os
import random
import signal
import sys
from dataclasses import replace
from pathlib import Path

import torch
from attached_drives import LOADING_PAYS
from family_models import SERVED
from small_models import CONFIGS, prompts, random_model

from kvdrive.generation.generate import greedy
from kvdrive.plugins.transformers import attach
from kvdrive.targets.emulator import Emulator

ATTENDING_PAYS = replace(LOADING_PAYS, attend_token=0, attend_pair=0)
PROMPT, END, CHATS, TURN = 130, 230, 3, 20


def write_whole(path, text):
    """The file has its earlier text or this one, whenever the process is killed."""
    new = path.with_name(path.name + ".new")
    new.write_text(text)
    new.replace(path)


class Killer:
    """Ends this process at its step number `at`."""

    def __init__(self, at):
        self.left = at

    def __call__(self, step=""):
        self.left -= 1
        if self.left == 0:
            os.kill(os.getpid(), signal.SIGKILL)


class DyingDrive(Emulator):
    killer = None

    def execute(self, command):
        self.killer()
        done = super().execute(command)
        self.killer()
        return done


def process(model, texts, folder, rng, at, active):
    """What one process does: the next turn of some conversations. Raises AssertionError when anything is wrong."""
    killer = Killer(at)
    DyingDrive.killer = killer
    found = 0
    with DyingDrive(folder / "drive.kv", "fast", capacity_bytes=1 << 24) as drive:
        assert drive._drive.check() == []
        with attach(model, drive, sessions=True, spill=8, active=active) as attached:
            store = attached.sessions
            store.costs.rates = LOADING_PAYS if active == "memory" else ATTENDING_PAYS
            for chat in rng.sample(range(CHATS), CHATS):
                text, acknowledged = texts[chat], folder / f"{chat}.acknowledged"
                saved = int(acknowledged.read_text()) if acknowledged.exists() else 0
                if saved + TURN >= END:
                    for other in folder.glob("*.acknowledged"):
                        other.unlink()
                    store.stored.drop([entry.id for entry in store.index.entries()])
                    continue
                ids = text[:, : max(PROMPT, saved + 1)]
                cache = store.cache(ids)
                assert cache.get_seq_length() >= min(saved, ids.shape[1] - 1), (chat, saved, cache.get_seq_length())
                found += cache.get_seq_length()

                def step(name, session=cache.batch.listener, acknowledged=acknowledged):
                    if name == "committed":
                        write_whole(acknowledged, str(session.saved))
                    killer()

                store.context.on_step = step
                tokens = greedy(model, ids, TURN, past_key_values=cache)
                assert torch.equal(tokens, text[:, : tokens.shape[1]]), f"conversation {chat} went another way"
                store.release(cache)
    return found


def main(folder, kills, seed, active="drive", name="llama"):
    torch.set_num_threads(1)
    model = random_model(CONFIGS[name] if name in CONFIGS else SERVED[name][0])
    texts = [greedy(model, prompts(1, PROMPT, seed=50 + chat), END - PROMPT + TURN) for chat in range(CHATS)]
    rng = random.Random(seed)
    killed = processes = 0
    while killed < kills:
        at = rng.randint(1, 300)
        order = random.Random(rng.random())
        child = os.fork()
        if child == 0:
            try:
                process(model, texts, folder, order, at, active)
            except BaseException as error:
                print(f"process {processes}, killed at {at}: {error!r}", flush=True)
                os._exit(1)
            os._exit(0)
        _, status = os.waitpid(child, 0)
        processes += 1
        if os.WIFSIGNALED(status):
            assert os.WTERMSIG(status) == signal.SIGKILL, status
            killed += 1
        else:
            assert os.WEXITSTATUS(status) == 0, "see above"
    found = process(model, texts, folder, rng, 0, active)
    print(f"{killed} kills in {processes} processes, {found} tokens found at the end")


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), *sys.argv[4:])
