"""The parts of the check. Each returns plain values for the JSON."""

from __future__ import annotations

import cProfile
import importlib.metadata
import os
import platform
import pstats
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from transformers import PreTrainedModel
from transformers.cache_utils import Cache, DynamicCache

from bench.decode.contenders import sibling
from gpu import models
from gpu.copies import profiled
from gpu.run import Run
from kvdrive.config.run import RunConfig
from kvdrive.generation import batches
from kvdrive.generation.checkpoints import Checkpoint
from kvdrive.kvcache.hf_cache import HfCache
from kvdrive.plugins.transformers import attach
from kvdrive.targets.opening import open_drives
from kvdrive.targets.options import DriveOptions

_PACKAGES = ("torch", "transformers", "tokenizers", "numpy", "triton", "kvikio-cu12", "kvikio-cu13", "vllm")
_TOKEN_LAYERS = 4  # of a family whose tokens are compared: what kvdrive does to a layer does not depend on more
_REFERENCE = Path(__file__).resolve().parents[2] / "README.md"  # text for the shipped model


def machine(run: Run) -> dict[str, Any]:
    """What computes, with which versions."""
    found: dict[str, Any] = {"cores": os.cpu_count(), "python": platform.python_version()}
    found["memory_gib"] = round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1)
    found["packages"] = {name: _version(name) for name in _PACKAGES}
    if run.device.type == "cuda":
        about = torch.cuda.get_device_properties(run.device)
        found["gpu"] = {"name": about.name, "memory_gib": round(about.total_memory / 2**30, 1)}
        found["cuda"] = torch.version.cuda
    return found


def link(run: Run) -> dict[str, float]:
    """GB/s of large copies between the device and the host's pinned and pageable memory; us of one small copy out."""
    size, cuda = run.size.link_bytes, run.device.type == "cuda"
    here = torch.empty(size, dtype=torch.uint8, device=run.device).random_(0, 255)
    found = {}
    for kind, pinned in (("pinned", True), ("pageable", False)):
        there = torch.empty(size, dtype=torch.uint8, pin_memory=pinned and cuda).zero_()
        for direction, target, source in (("out", there, here), ("in", here, there)):
            seconds = [run.timed(lambda t=target, s=source: t.copy_(s, non_blocking=True)) for _ in range(4)]
            found[f"{kind}_{direction}_gb_per_s"] = round(size / min(seconds) / 1e9, 2)
    small = here[:4096]
    found["small_copy_out_us"] = round(statistics.median(run.timed(lambda: small.cpu()) for _ in range(50)) * 1e6, 1)
    return found


def tokens(run: Run, name: str, dtype: torch.dtype) -> dict[str, Any]:
    """Greedy tokens beside stock transformers on the same device, and what the logits of the same text differ by.

    The yardstick is how far two of the model's own attentions, sdpa and eager, are apart.
    """
    checkpoint = models.load(name, dtype, run.device, run.size.small, 0 if run.size.small else _TOKEN_LAYERS)
    work = batches.batch([_prompt(checkpoint, run.size.prompt)], run.size.new_tokens)
    with open_drives(drives_for(checkpoint, run.size.prompt + run.size.new_tokens)) as drives:
        done = batches.generate(checkpoint, work, drives, RunConfig(), keep_logits=run.size.new_tokens)
    found = asdict(batches.compare_with_transformers(checkpoint, work, done.tokens))
    text = torch.cat([work.ids, torch.tensor(done.tokens)], 1)[:, :-1].to(run.device)
    ours = torch.stack(done.logits)[:, 0]
    sdpa = _step_logits(checkpoint.model, text, work.ids.shape[1])
    checkpoint.model.set_attn_implementation("eager")
    eager = _step_logits(checkpoint.model, text, work.ids.shape[1])
    deviation = float(sdpa.std())
    top = sdpa.topk(2).values
    yardstick = _apart(eager, sdpa) / deviation
    behind = (top[:, 0] - sdpa.gather(1, torch.tensor(done.tokens)[0, :, None])[:, 0]) / deviation
    return found | {
        "choices": {  # of each token, behind the same text
            "first_of_sdpa": int((behind == 0).sum()),
            "ties_in_yardstick": int(((behind > 0) & (behind <= yardstick)).sum()),
            "others": int((behind > yardstick).sum()),
        },
        "writeback": done.writeback,
        "logits": {
            "ours_from_sdpa": _apart(ours, sdpa) / deviation,
            "eager_from_sdpa": yardstick,
            "smallest_lead": float((top[:, 0] - top[:, 1]).min()) / deviation,
        },
    }


def _apart(a: torch.Tensor, b: torch.Tensor) -> float:
    return float((a - b).abs().max())


def _step_logits(model: PreTrainedModel, text: torch.Tensor, prompt: int) -> torch.Tensor:
    """Float32 logits [steps, vocabulary] of decode steps through `text` behind its first `prompt` tokens."""
    cache, found = DynamicCache(config=model.config), []
    with torch.no_grad():
        for first, last in [(0, prompt), *((at, at + 1) for at in range(prompt, text.shape[1]))]:
            part = text[:, first:last]
            out = model(part, past_key_values=cache, use_cache=True, logits_to_keep=1)
            found.append(out.logits[0, -1].float().cpu())
    return torch.stack(found)


@dataclass
class Contender:
    """A model with caches of its own kind, each for so many tokens."""

    name: str
    model: PreTrainedModel
    new_cache: Callable[[int], Cache]
    cudnn: bool = False

    def prefill(self, ids: torch.Tensor, cache: Cache) -> None:
        """The first token of a prompt."""
        torch.backends.cuda.enable_cudnn_sdp(self.cudnn)
        with torch.no_grad():
            self.model(ids, past_key_values=cache, use_cache=True, logits_to_keep=1).logits[:, -1].argmax(-1).cpu()

    def step(self, token: torch.Tensor, cache: Cache) -> None:
        """One more token."""
        self.prefill(token, cache)


@contextmanager
def contenders(run: Run, checkpoint: Checkpoint, tokens: int) -> Iterator[list[Contender]]:
    """Stock transformers, its cache in host memory, and kvdrive's, over the same weights. Room for `tokens` each.

    torch's attention is that without cuDNN, but for one contender: cuDNN plans anew for each length.
    """
    model = checkpoint.model
    found = [Contender("sdpa", model, lambda _: DynamicCache(config=model.config))]
    if run.device.type == "cuda":
        found.append(Contender("sdpa, cuDNN", model, lambda _: DynamicCache(config=model.config), cudnn=True))
    if run.device.type == "cuda":  # transformers moves K and V between a GPU and its host only
        found.append(Contender("offloaded", model, lambda _: DynamicCache(config=model.config, offloading=True)))
    with ExitStack() as opened:
        for name, target, attention in (
            ("emulator", "emulator", RunConfig()),
            ("cpu", "cpu", RunConfig()),
            ("memory", "emulator", RunConfig.of(active="memory")),
        ):
            drives = opened.enter_context(open_drives(drives_for(checkpoint, tokens, target)))
            own = sibling(model)
            attachment = opened.enter_context(attach(own, drives, config=attention))
            found.append(Contender(f"kvdrive {name}", own, attachment.cache))
        yield found


def decode(run: Run) -> dict[str, Any]:
    """Milliseconds of a decode step behind each context, by contender: the median, the least, and traffic of steps."""
    checkpoint = models.load("llama", torch.bfloat16, run.device, run.size.small)
    result: dict[str, Any] = {}
    token = torch.ones(1, 1, dtype=torch.int64, device=run.device)
    with contenders(run, checkpoint, sum(run.size.contexts) * 2) as running:
        for context in run.size.contexts:
            row = result.setdefault(str(context), {})
            for contender in running:
                row[contender.name] = _steps(run, checkpoint, contender, context, token)
                print(f"    {context} tokens, {contender.name}: {row[contender.name]}", flush=True)
    return result


def _steps(run: Run, checkpoint: Checkpoint, contender: Contender, context: int, token: torch.Tensor) -> dict[str, Any]:
    try:
        cache = contender.new_cache(context + 4 * run.size.steps)
        began = time.perf_counter()
        fill(run, checkpoint, cache, context)
        filled = time.perf_counter() - began
        for _ in range(2):
            contender.step(token, cache)
        seconds = [run.timed(lambda: contender.step(token, cache)) for _ in range(run.size.steps)]
        copies = profiled(lambda: contender.step(token, cache), run.device)
        calls = _slowest_calls(lambda: contender.step(token, cache))
        _forget(cache)
    except Exception as error:
        return {"error": f"{type(error).__name__}: {error}"}
    times = {"ms": round(statistics.median(seconds) * 1e3, 3), "least_ms": round(min(seconds) * 1e3, 3)}
    return times | {"fill_s": round(filled, 2), "copies": copies, "calls": calls}


def _slowest_calls(work: Callable[[], object], most: int = 8) -> list[str]:
    """ "ms, calls, function" of the Python functions that take the most time themselves; the profiler slows them."""
    profile = cProfile.Profile()
    profile.runcall(work)
    found = sorted(pstats.Stats(profile).get_stats_profile().func_profiles.items(), key=lambda one: -one[1].tottime)
    return [
        f"{1e3 * one.tottime:.1f} ms, {one.ncalls}, {Path(one.file_name).name}:{one.line_number} {name}"
        for name, one in found[:most]
    ]


def fill(run: Run, checkpoint: Checkpoint, cache: Cache, context: int, rows: int = 1) -> None:
    """Random K and V as the first `context` tokens of each layer, in so many rows."""
    shape, model = checkpoint.shape, checkpoint.model
    generator = torch.Generator(run.device).manual_seed(models.SEED)
    size = (rows, shape.kv_heads, context, shape.head_dim)
    for layer in range(shape.layers):
        k, v = (torch.randn(size, generator=generator, device=run.device).to(model.dtype) for _ in range(2))
        cache.update(k, v, layer)
    if isinstance(cache, HfCache):
        cache.batch.synchronize()
    run.wait()


def _forget(cache: Cache) -> None:
    if isinstance(cache, HfCache):
        cache.reset()


def first_token(run: Run) -> dict[str, Any]:
    """Seconds to the first token of a prompt, by contender, until the drives have all K and V too; and copies."""
    checkpoint = models.load("llama", torch.bfloat16, run.device, run.size.small)
    vocabulary, length = checkpoint.model.config.vocab_size, run.size.first_token
    ids = torch.randint(2, vocabulary, (1, length), generator=torch.Generator().manual_seed(models.SEED)).to(run.device)
    found: dict[str, Any] = {}
    with contenders(run, checkpoint, 2 * length) as running:
        for turn in range(run.size.rounds + 1):
            for contender in running:
                mine = found.setdefault(contender.name, {"first_token_s": [], "written_s": []})
                try:
                    cache = contender.new_cache(length)
                    began = time.perf_counter()
                    mine["first_token_s"].append(run.timed(lambda c=contender, one=cache: c.prefill(ids, one)))
                    if isinstance(cache, HfCache):
                        cache.batch.synchronize()
                        mine["written_s"].append(time.perf_counter() - began)
                        mine["writeback"] = cache.batch.statistics.writeback()
                    _forget(cache)
                except Exception as error:
                    mine["error"] = f"{type(error).__name__}: {error}"
            print(f"    round {turn}", flush=True)
        for contender in running:
            mine = found[contender.name]
            mine["first_token_s"], mine["written_s"] = mine["first_token_s"][1:], mine["written_s"][1:]  # warm
            cache = contender.new_cache(length)
            mine["copies"] = profiled(lambda c=contender, one=cache: _written(c, ids, one), run.device)
            _forget(cache)
    stock = statistics.median(found["sdpa"]["first_token_s"])
    for mine in found.values():
        if mine["first_token_s"]:
            mine["of_sdpa"] = round(statistics.median(mine["first_token_s"]) / stock, 3)
    return {"tokens": length, "contenders": found}


def _written(contender: Contender, ids: torch.Tensor, cache: Cache) -> None:
    contender.prefill(ids, cache)
    if isinstance(cache, HfCache):
        cache.batch.synchronize()


def _prompt(checkpoint: Checkpoint, length: int) -> list[int]:
    """Text for the shipped model, random tokens for the others."""
    if checkpoint.tokenizer is not None:
        return checkpoint.encode(_REFERENCE.read_text(encoding="utf-8"))[:length]
    generator = torch.Generator().manual_seed(models.SEED)
    ids: list[int] = torch.randint(2, checkpoint.model.config.vocab_size, (length,), generator=generator).tolist()
    return ids


def drives_for(checkpoint: Checkpoint, tokens: int, target: str = "emulator") -> DriveOptions:
    """A temporary drive with room for the K and V of so many tokens, on all cores."""
    capacity = max(1 << 28, 4 * tokens * checkpoint.shape.bytes_per_token)
    return DriveOptions(threads=os.cpu_count() or 1, capacity_bytes=capacity, target=target)


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None
