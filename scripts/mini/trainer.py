"""One training run: model, optimisers, data and progress, which a checkpoint holds together."""

from __future__ import annotations

import json
import math
import platform
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path

import numpy as np
import torch
from tokenizers import Tokenizer
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from mini.corpus import END_OF_TEXT, digest, encode, train_tokenizer, training_modules
from mini.tasks import RECALLED, Tasks

SEED = 1
CONTEXT = 16384
STEP_TOKENS = 8192
TASK_SHARE = 0.5
SHAPE = {
    "hidden_size": 256,
    "intermediate_size": 768,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 64,
    "max_position_embeddings": CONTEXT,
    "tie_word_embeddings": True,
    "rope_theta": 500000.0,
}
# Share of the time after which sequences have a length. Short ones teach to look back, long ones to look far.
LENGTHS = ((0.0, 512), (0.35, 1024), (0.5, 2048), (0.65, 4096), (0.8, 8192))
WARM_UP, COOL_DOWN = 100, 0.35  # steps; share of the time, at the end, in which the rate falls to a twentieth
RATE_MATRICES, RATE_OTHERS = 0.02, 3e-3
REPORT_STEPS, KEEP_SECONDS = 25, 120


@dataclass
class Progress:
    """Where training stands; `curve`: (seconds, tokens, length, loss of text, loss of recall), losses in nats."""

    steps: int = 0
    tokens: int = 0
    seconds: float = 0.0
    curve: list[tuple[float, int, int, float, float]] = field(default_factory=list)


def length_at(share: float) -> int:
    """Tokens of a sequence when `share` of the time is over."""
    return [length for start, length in LENGTHS if share >= start][-1]


def rate_at(share: float, step: int) -> float:
    """Factor on the learning rates."""
    return min(1.0, (step + 1) / WARM_UP) * min(1.0, 0.05 + 0.95 * (1 - share) / COOL_DOWN)


class Trainer:
    """Trains for `minutes`, all calls together; goes on from the checkpoint in `work`, or from the model `start`."""

    def __init__(self, minutes: float, out: Path, work: Path, activation: str, start: Path | None = None) -> None:
        self.out, self.work, self.limit = out, work, minutes * 60
        work.mkdir(parents=True, exist_ok=True)
        texts = training_modules()
        self.tokenizer = self._tokenizer(texts, start)
        self.text = encode(self.tokenizer, texts)
        torch.manual_seed(SEED)
        end = self.tokenizer.token_to_id(END_OF_TEXT)
        config = LlamaConfig(
            **SHAPE,
            hidden_act=activation,
            vocab_size=self.tokenizer.get_vocab_size(),
            bos_token_id=end,
            eos_token_id=end,
            pad_token_id=end,
        )
        self.model = LlamaForCausalLM(config)
        if start:
            self.model.load_state_dict(LlamaForCausalLM.from_pretrained(start, dtype=torch.float32).state_dict())
        self.optimizers = optimizers_of(self.model)
        self.rates = [[group["lr"] for group in one.param_groups] for one in self.optimizers]
        self.progress = Progress()
        self.facts: dict[str, object] = {
            "parameters": sum(p.numel() for p in self.model.parameters()),
            "modules": len(texts),
            "tokens_of_text": len(self.text),
            "corpus_sha256": digest(texts),
            "python": platform.python_version(),
            "torch": torch.__version__,
            "seed": SEED,
            "minutes": minutes,
        }
        self._go_on()
        self.rng = np.random.default_rng([SEED, self.progress.steps])
        self.tasks = Tasks(self.tokenizer, self.text, self.rng)

    def run(self) -> None:
        """Train until the time is over; progress on stdout, a checkpoint every KEEP_SECONDS."""
        print(json.dumps(self.facts), flush=True)
        recent: list[tuple[float, float]] = []
        kept, last = self.progress.seconds, time.monotonic()
        while self.progress.seconds < self.limit:
            length = length_at(self.progress.seconds / self.limit)
            recent.append(self.step(length))
            now = time.monotonic()
            self.progress.seconds += now - last
            last = now
            if self.progress.steps % REPORT_STEPS == 0:
                self._report(length, recent)
                recent.clear()
            if self.progress.seconds - kept > KEEP_SECONDS:
                kept = self.progress.seconds
                self.keep()
        self.keep()

    def step(self, length: int) -> tuple[float, float]:
        """One step on STEP_TOKENS tokens in sequences of `length` -> losses of text and of recall, NaN where none."""
        tokens, weights, made = self.batch(length)
        with torch.autocast("cpu", torch.bfloat16):
            logits = self.model(tokens[:, :-1], use_cache=False).logits
        wanted = tokens[:, 1:]
        loss = torch.nn.functional.cross_entropy(logits.float().flatten(0, 1), wanted.flatten(), reduction="none")
        loss = loss.view(wanted.shape)
        (loss * weights[:, 1:]).sum().div(weights[:, 1:].sum().clamp(min=1)).backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        factor = rate_at(self.progress.seconds / self.limit, self.progress.steps)
        for optimizer, rates in zip(self.optimizers, self.rates, strict=True):
            for group, rate in zip(optimizer.param_groups, rates, strict=True):
                group["lr"] = rate * factor
            optimizer.step()
            optimizer.zero_grad()
        self.progress.steps += 1
        self.progress.tokens += tokens.numel()
        loss = loss.detach()
        return mean(loss[~made]), mean(loss[weights[:, 1:] == RECALLED])

    def batch(self, length: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Tokens [n, length], weights of the loss [n, length], and which rows are tasks [n]."""
        rows, weights, made = [], [], []
        for _ in range(STEP_TOKENS // length):
            is_task = self.rng.random() < TASK_SHARE
            if is_task:
                row, weight = self.tasks.sequence(length)
            else:
                start = int(self.rng.integers(0, len(self.text) - length))
                row, weight = self.text[start : start + length].astype(np.int64), np.ones(length, np.float32)
            rows.append(row)
            weights.append(weight)
            made.append(is_task)
        return torch.from_numpy(np.stack(rows)), torch.from_numpy(np.stack(weights)), torch.tensor(made)

    def keep(self) -> None:
        """The checkpoint in `work` and the model in `out`, each replaced as a whole."""
        state = {
            "model": self.model.state_dict(),
            "optimizers": [optimizer.state_dict() for optimizer in self.optimizers],
            "progress": asdict(self.progress),
        }
        torch.save(state, self.work / "unfinished.pt")
        (self.work / "unfinished.pt").rename(self.work / "checkpoint.pt")
        save(self.model, self.tokenizer, self.out, self.facts | asdict(self.progress))

    def _tokenizer(self, texts: list, start: Path | None) -> Tokenizer:
        path = start / "tokenizer.json" if start else self.work / "tokenizer.json"
        if path.exists():
            return Tokenizer.from_file(str(path))
        tokenizer = train_tokenizer(texts)
        tokenizer.save(str(path))
        return tokenizer

    def _go_on(self) -> None:
        if not (self.work / "checkpoint.pt").exists():
            return
        state = torch.load(self.work / "checkpoint.pt", weights_only=True)
        self.model.load_state_dict(state["model"])
        for optimizer, one in zip(self.optimizers, state["optimizers"], strict=True):
            optimizer.load_state_dict(one)
        self.progress = Progress(**state["progress"])

    def _report(self, length: int, recent: list[tuple[float, float]]) -> None:
        text, recall = (float(x) for x in np.nanmean(np.array(recent), axis=0))
        now = self.progress
        now.curve.append((round(now.seconds, 1), now.tokens, length, round(text, 4), round(recall, 4)))
        print(
            f"{now.seconds / 60:6.1f} of {self.limit / 60:.0f} min  step {now.steps}  {now.tokens / 1e6:.2f}M tokens "
            f"({now.tokens / now.seconds:.0f}/s)  length {length}  loss of text {text:.3f}, of recall {recall:.3f}",
            flush=True,
        )


def mean(losses: torch.Tensor) -> float:
    """Mean; NaN for an empty list."""
    return float(losses.mean()) if losses.numel() else math.nan


def optimizers_of(model: LlamaForCausalLM) -> list[torch.optim.Optimizer]:
    """Muon for the matrices inside the layers, AdamW for embeddings and norms."""
    inner = {id(p): p for layer in model.model.layers for p in layer.parameters() if p.ndim == 2}
    others = [p for p in model.parameters() if id(p) not in inner]
    return [
        torch.optim.Muon(list(inner.values()), lr=RATE_MATRICES, weight_decay=0.01),
        torch.optim.AdamW(others, lr=RATE_OTHERS, betas=(0.9, 0.98), weight_decay=0.0),
    ]


def save(model: LlamaForCausalLM, tokenizer: Tokenizer, out: Path, facts: dict[str, object]) -> None:
    """A checkpoint folder: bfloat16 weights as safetensors, tokenizer, training.json."""
    out.mkdir(parents=True, exist_ok=True)
    copy = LlamaForCausalLM(model.config)
    copy.load_state_dict(model.state_dict())
    copy.to(torch.bfloat16).save_pretrained(out)
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, eos_token=END_OF_TEXT, pad_token=END_OF_TEXT, model_max_length=CONTEXT
    ).save_pretrained(out)
    (out / "training.json").write_text(json.dumps(facts, indent=1) + "\n")
