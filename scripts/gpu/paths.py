"""Parts of the check beside tokens and times of a step: loading, X-cache, mini-batches, blocks of vLLM, the model."""

from __future__ import annotations

import gc
import importlib.util
import json
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch

from bench.sessions import vllm as bench_vllm
from gpu import models, parts
from gpu.copies import profiled
from gpu.run import Run
from kvdrive.config.run import RunConfig
from kvdrive.generation.checkpoints import Checkpoint
from kvdrive.identity.model import ModelIdentity
from kvdrive.kvcache.arrivals import depart
from kvdrive.kvcache.codes import encoded_there
from kvdrive.kvcache.drive_rates import Heads
from kvdrive.kvcache.scaling import HeadScale
from kvdrive.kvcache.xcache.measured import rates_here
from kvdrive.kvcache.xcache.share import choose
from kvdrive.nvme.rows import encoded
from kvdrive.nvme.wire import RowFormat
from kvdrive.perf import here
from kvdrive.perf.stored_rates import StoredRates
from kvdrive.plugins.attachment import Attachment
from kvdrive.plugins.support import decoder_config, heads_of
from kvdrive.plugins.transformers import attach
from kvdrive.plugins.vllm.device_pages import DevicePages
from kvdrive.plugins.vllm.engine import EngineBlocks
from kvdrive.plugins.vllm.options import Options
from kvdrive.plugins.vllm.pages import Layer
from kvdrive.plugins.vllm.staging import Found
from kvdrive.prefix.blocks.device_file import open_device_file
from kvdrive.targets.opening import open_drives
from kvdrive.targets.options import DriveOptions

_NEW = 32  # tokens that a loaded sequence goes on with
_VLLM_JOB = {"prompts": 2, "tokens": 400, "blocks": 64, "factor": 2, "length": 512, "bytes": 1 << 30, "answer": 8}


@contextmanager
def _attached(run: Run, checkpoint: Checkpoint, tokens: int, config: RunConfig) -> Iterator[Attachment]:
    with (
        open_drives(parts.drives_for(checkpoint, tokens, "cpu")) as drives,
        attach(checkpoint.model, drives, config=config) as attachment,
        torch.no_grad(),
    ):
        yield attachment


def _ids(run: Run, checkpoint: Checkpoint, tokens: int, seed: int = models.SEED) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(2, checkpoint.model.config.vocab_size, (1, tokens), generator=generator).to(run.device)


def load(run: Run) -> dict[str, Any]:
    """A sequence that a drive holds goes on in memory of the device: seconds of a call whose layers load beside its
    computing, the copies, and whether the logits are those of the sequence that never stopped.
    """
    checkpoint = models.load("llama", torch.bfloat16, run.device, run.size.small)
    ids, more = _ids(run, checkpoint, run.size.loaded), _ids(run, checkpoint, _NEW, 2)
    drives, config = parts.drives_for(checkpoint, 8 * run.size.loaded, "cpu"), RunConfig.of(active="memory")
    with tempfile.TemporaryDirectory() as folder, open_drives(drives) as opened, torch.no_grad():
        files = [Path(folder) / f"{number}.json" for number in range(3)]
        with attach(checkpoint.model, opened, config=config) as attachment:
            caches = [attachment.cache() for _ in range(len(files) + 1)]
            for cache in caches:
                checkpoint.model(ids, past_key_values=cache, logits_to_keep=1)
            for cache, file in zip(caches, files, strict=False):
                attachment.save(cache, file)
            expected = checkpoint.model(more, past_key_values=caches[-1]).logits
        with attach(checkpoint.model, opened, config=config) as attachment:
            found: list[torch.Tensor] = []

            def go_on() -> None:
                caches.append(attachment.reopen(files[len(found)]))
                found.append(checkpoint.model(more, past_key_values=caches[-1]).logits)

            go_on()  # warm
            seconds = run.timed(go_on)
            copies = profiled(go_on, run.device)
    loaded = checkpoint.shape.bytes_per_token * run.size.loaded
    return {
        "tokens": run.size.loaded,
        "bytes": loaded,
        "seconds": round(seconds, 4),
        "gb_per_s": round(loaded / seconds / 1e9, 2),
        "copies": copies,
        "same_logits": all(bool(torch.equal(one, expected)) for one in found),
    }


def inputs(run: Run) -> dict[str, Any]:
    """X-cache: K and V rebuilt by the device's own projections. Tokens beside those of K and V that were stored, what
    was rebuilt, and the share that the planner takes from rates measured here, with its reason.
    """
    checkpoint = models.load(models.INPUTS, torch.bfloat16, run.device, run.size.small, 2)
    ids, tokens = _ids(run, checkpoint, run.size.prompt), {}
    for share in (0.0, 1.0):
        with _attached(run, checkpoint, run.size.prompt * 2, RunConfig.of(xcache=share)) as attachment:
            cache = attachment.cache()
            found = checkpoint.model.generate(
                ids, max_new_tokens=run.size.new_tokens, do_sample=False, past_key_values=cache
            )
            tokens[share] = found[0, ids.shape[1] :].tolist()
            statistic = cache.batch.statistics.inputs()
            if share:
                shape = checkpoint.shape
                heads = Heads(*heads_of(decoder_config(checkpoint.model)))
                backing = attachment._storage.backing
                x_bytes = backing.xcache.rows.token_bytes if backing.xcache else 0
                measured = rates_here(backing, heads, attachment.rates.share_cores, StoredRates(None))
                choice = choose(x_bytes, 4 * shape.kv_heads * shape.head_dim, lambda m=measured: m)
    same = sum(a == b for a, b in zip(tokens[0.0], tokens[1.0], strict=True))
    return {
        "identical": same,
        "total": run.size.new_tokens,
        "statistics": statistic,
        "chosen": {"share": choice.share, "reason": choice.reason},
        "rates": {name: vars(line) for name, line in vars(measured).items() if name != "shared"},
    }


def mini_batches(run: Run) -> dict[str, Any]:
    """Milliseconds of a decode step of several sequences in one piece, and in two mini-batches: while the drives attend
    for one of them, the device computes for the other. And whether the logits are the same.
    """
    checkpoint = models.load("llama", torch.bfloat16, run.device, run.size.small)
    rows, context, result, logits = run.size.rows, run.size.contexts[0], {}, {}
    token = torch.ones(rows, 1, dtype=torch.int64, device=run.device)
    for count in (1, 2):
        room = rows * context + 64 * rows
        with _attached(run, checkpoint, room, RunConfig.of(mini_batches=count)) as attachment:
            cache = attachment.cache()
            parts.fill(run, checkpoint, cache, context, rows)
            logits[count] = checkpoint.model(token, past_key_values=cache).logits
            step = lambda c=cache: checkpoint.model(token, past_key_values=c).logits.argmax(-1).cpu()  # noqa: E731
            seconds = [run.timed(step) for _ in range(run.size.steps)]
            result[f"{count}_ms"] = round(statistics.median(seconds) * 1e3, 3)
    return {"rows": rows, "context": context, **result, "same_logits": bool(torch.equal(logits[1], logits[2]))}


def identity(run: Run) -> dict[str, Any]:
    """Microseconds of a look at whether a model has changed, which each step takes: with and without Python's garbage
    collector, and how many objects are compared.
    """
    checkpoint = models.load("llama", torch.bfloat16, run.device, run.size.small)
    watched = ModelIdentity(checkpoint.model)
    found: dict[str, Any] = {"objects": len(watched._parts._held), "tensors": len(watched._tensors._several)}
    for name, prepare in (("", gc.enable), ("_without_collector", gc.disable)):
        prepare()
        try:
            for what, work in (("current", watched.is_current), ("look", watched.look)):
                seconds = sorted(run.timed(work) for _ in range(15))
                found[f"{what}{name}_us"] = {"least": round(seconds[0] * 1e6), "median": round(seconds[7] * 1e6)}
        finally:
            gc.enable()
    return found


def expected(run: Run) -> dict[str, Any]:
    """What `plan --hardware here` expects of a decode step, beside what `decode` has measured with the cpu target.

    The plan knows steps of a few layers, and one layer's attention at two lengths; it was fitted to no step.
    """
    checkpoint = models.load("llama", torch.bfloat16, run.device, run.size.small)
    config = checkpoint.model.config
    del checkpoint
    with tempfile.TemporaryDirectory() as name:
        threads = torch.get_num_threads()
        options = DriveOptions(target="cpu", threads=threads, capacity_bytes=4 << 30, folder=Path(name))
        found = here.measure(config, 1, options, StoredRates(None), device=run.device)
    result: dict[str, Any] = {"layers_measured": "half and all of at most 8", "steps": {}}
    for context in run.size.contexts:
        model, attention = found.parts(config.num_hidden_layers, context, 1, 0)
        steps = {"model_ms": round(model.seconds * 1e3, 3), "attention_ms": round(attention.seconds * 1e3, 3)}
        total = (model.seconds + attention.seconds) * 1e3
        measured = run.results.get("decode", {}).get(str(context), {}).get("kvdrive cpu", {}).get("ms")
        beside = {"measured_ms": measured, "measured_over_expected": round(measured / total, 2)} if measured else {}
        result["steps"][str(context)] = steps | {"expected_ms": round(total, 3)} | beside
    return result


def direct(run: Run) -> dict[str, Any]:
    """GB/s between a file and the device by what `open_device_file` takes: kvikio with GDS, its compatibility mode, or
    the host.
    """
    size = run.size.link_bytes
    data = torch.randint(0, 256, (size,), dtype=torch.uint8, device=run.device)
    back = torch.zeros_like(data)
    run.wait()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "data"
        path.touch()
        file = open_device_file(path, run.device)
        try:
            wrote = [run.timed(lambda: file.write(data, 0)) for _ in range(3)]
            read = [run.timed(lambda: file.read(back, 0)) for _ in range(3)]
        finally:
            file.close()
    rates = {name: round(size / min(each) / 1e9, 2) for name, each in (("write", wrote), ("read", read))}
    return {"how": file.how, "same": bool(torch.equal(data, back)), "gb_per_s": rates}


def codes(run: Run) -> dict[str, Any]:
    """K and V in 8 and 4 bits, encoded by the device: whether the bytes are those of the host's encoder, for rows of
    any bits and for usual ones of every size, and whether what arrives is what the host makes of the same tensor. GB/s
    of binary16, without the copy.
    """
    random = torch.Generator(run.device).manual_seed(models.SEED)
    rows = run.size.link_bytes >> 12
    bits = torch.randint(-(1 << 15), 1 << 15, (rows, 64), generator=random, dtype=torch.int16, device=run.device)
    finite = torch.where(bits & 0x7C00 == 0x7C00, bits & 0x3FF, bits).view(torch.float16)
    usual = torch.randn((rows, 64), generator=random, device=run.device)
    scales = torch.randint(-24, 12, (rows, 1), generator=random, device=run.device)
    halves = torch.cat([finite, torch.ldexp(usual, scales).half()])
    states = usual[: rows // 8 * 8].to(torch.bfloat16).reshape(1, 8, -1, 64).repeat(1, 1, 16, 1)
    result: dict[str, Any] = {}
    for kind in (RowFormat.INT8, RowFormat.INT4, RowFormat.FP8):
        found = encoded_there(halves, kind).cpu().numpy()
        seconds = min(run.timed(lambda k=kind: encoded_there(halves, k)) for _ in range(3))
        arrived = HeadScale("K", kind).convert(depart(states, kind).wait())
        result[kind.name.lower()] = {
            "rows": len(halves),
            "same_bytes": bool(np.array_equal(found, encoded(halves.cpu().numpy(), kind))),
            "same_arrived": bool(np.array_equal(arrived, HeadScale("K", kind).convert(states.cpu()))),
            "gb_per_s": round(halves.nbytes / seconds / 1e9, 2),
        }
    return result


def blocks(run: Run) -> dict[str, Any]:
    """Blocks of an engine's KV tensors on the device go to a file and come back, without vLLM: through the host's
    memory, and directly. GB/s, and whether they are the same.
    """
    page = 4096 if run.size.small else 1 << 18
    result: dict[str, Any] = {}
    for how in ("host", "direct"):
        layers = [torch.randint(-128, 128, (16, page), dtype=torch.int8, device=run.device) for _ in range(4)]
        pages = DevicePages([Layer(one, page) for one in layers], 2)
        with tempfile.TemporaryDirectory() as folder:
            options = Options(path=Path(folder) / "blocks.kv", buffer_bytes=64 << 20, direct=how == "direct")
            engine = EngineBlocks(options, pages, {"weights": "same"})
            try:
                wanted = [one[:8].clone() for one in layers]
                names = [bytes([number]) * 32 for number in range(4)]
                stored = run.timed(lambda e=engine, n=names: _store(e, n))
                loaded = run.timed(lambda e=engine, n=names: _load(e, n))
            finally:
                engine.close()
        same = all(torch.equal(one[8:], before) for one, before in zip(layers, wanted, strict=True))
        size = 4 * pages.bytes
        rates = {"store": round(size / stored / 1e9, 3), "load": round(size / loaded / 1e9, 3)}
        result[how] = {"bytes": size, "same": same, "gb_per_s": rates}
    return result


def _store(engine: EngineBlocks, names: list[bytes]) -> None:
    """Blocks 0 to 7 of the engine, two for each name."""
    pairs = engine.reserve(names)
    engine.transfers.store(1, list(range(8)), [key for _, key in pairs])
    engine.transfers.wait({1})


def _load(engine: EngineBlocks, names: list[bytes]) -> None:
    """The same to blocks 8 to 15."""
    while (said := [engine.look(name, "r") for name in names]) != [Found.HIT] * len(names):
        if Found.MISS in said:
            raise RuntimeError("a stored block was not found")
        engine.staging.submit()
    engine.transfers.load(2, engine.use(names, "r"), 0, list(range(8, 16)))
    engine.transfers.wait({2})


def vllm(run: Run) -> dict[str, Any]:
    """vLLM itself, in its environment: the same answers without a tier, with blocks in a file, below vLLM's memory tier
    and, on a GPU, directly; and how many tokens of a prompt are found when it comes again.
    """
    own = importlib.util.find_spec("vllm") is not None
    python = Path(sys.executable) if own else bench_vllm.ENVIRONMENTS[0] / "bin/python"
    if not python.exists():
        return {"available": False, "reason": "vLLM is not installed: make get WHAT=vllm"}
    cuda = run.device.type == "cuda"
    result: dict[str, Any] = {"available": True}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        model = str(bench_vllm.tiny(folder / "model"))
        for config in ("none", "ssd", "tier", *(["direct"] if cuda else [])):
            place, out, path = folder / config, folder / f"{config}.json", folder / "job.json"
            place.mkdir()
            job = {"model": model, "folder": str(place), "config": config, "workload": "rounds", "out": str(out)}
            job |= {"dtype": "bfloat16"} if cuda else {}
            path.write_text(json.dumps(bench_vllm.JOB | _VLLM_JOB | job))
            done = subprocess.run(
                [python, bench_vllm.ENGINE, path], capture_output=True, text=True, timeout=120, check=False
            )
            if done.returncode or not out.exists():
                result[config] = {"error": (done.stdout[-500:] + done.stderr[-1500:]).strip()}
                continue
            rounds = json.loads(out.read_text())["rounds"]
            result[config] = {"cached": [one["cached"] for one in rounds], "tokens": [one["tokens"] for one in rounds]}
        engines = [one for one in result.values() if isinstance(one, dict) and "tokens" in one]
        expected = result["none"].get("tokens", [None])[0]
        for one in engines:
            one["same"] = all(tokens == expected for tokens in one.pop("tokens"))
    return result
