"""What bench_weights.py compares with: a random mixture of experts on disk, and its experts in mapped files."""

from __future__ import annotations

import ctypes
import json
import os
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM, MixtralConfig, PretrainedConfig
from transformers.integrations.moe import ALL_EXPERTS_FUNCTIONS

from kvdrive.weights.file import WeightsFile
from kvdrive.weights.loading import resident_model
from kvdrive.weights.memory import needs
from kvdrive.weights.modules import experts_of

VOCABULARY = 512
_DONT_NEED = 4  # MADV_DONTNEED
Sizes = dict[str, tuple[int, ...]]  # of tensors, by name


def config_fields(layers: int, hidden: int, inner: int) -> dict[str, Any]:
    """What the configurations of all random models have in common."""
    return {
        "vocab_size": VOCABULARY,
        "hidden_size": hidden,
        "intermediate_size": inner,
        "num_hidden_layers": layers,
        "num_attention_heads": hidden // 64,
        "num_key_value_heads": max(1, hidden // 256),
        "max_position_embeddings": 4096,
        "tie_word_embeddings": False,
        "dtype": "bfloat16",
        "eos_token_id": None,
    }


@dataclass(frozen=True)
class Shape:
    """The mixture: bfloat16, `used` of `experts` in each layer."""

    layers: int = 8
    hidden: int = 1024
    inner: int = 1536
    experts: int = 64
    used: int = 8

    def config(self) -> MixtralConfig:
        """As transformers has it."""
        fields = config_fields(self.layers, self.hidden, self.inner)
        return MixtralConfig(**fields, num_local_experts=self.experts, num_experts_per_tok=self.used)


QUICK = Shape(layers=2, hidden=128, inner=256, experts=16, used=2)


def make_checkpoint(shape: Shape, folder: Path) -> None:
    """A random mixture."""
    write_checkpoint(shape.config(), _tensors(shape), folder)


def _tensors(shape: Shape) -> Iterator[Sizes]:
    """The tensors that belong to no layer, and those of each layer."""
    h, inner, kv = shape.hidden, shape.inner, shape.config().num_key_value_heads * 64
    yield {
        "model.embed_tokens.weight": (VOCABULARY, h),
        "lm_head.weight": (VOCABULARY, h),
        "model.norm.weight": (h,),
    }
    for layer in range(shape.layers):
        place = f"model.layers.{layer}"
        sizes: Sizes = {
            f"{place}.input_layernorm.weight": (h,),
            f"{place}.post_attention_layernorm.weight": (h,),
            f"{place}.self_attn.q_proj.weight": (h, h),
            f"{place}.self_attn.k_proj.weight": (kv, h),
            f"{place}.self_attn.v_proj.weight": (kv, h),
            f"{place}.self_attn.o_proj.weight": (h, h),
            f"{place}.block_sparse_moe.gate.weight": (shape.experts, h),
        }
        for expert in range(shape.experts):
            one = f"{place}.block_sparse_moe.experts.{expert}"
            sizes |= {f"{one}.w1.weight": (inner, h), f"{one}.w2.weight": (h, inner), f"{one}.w3.weight": (inner, h)}
        yield sizes


def write_checkpoint(config: PretrainedConfig, files: Iterable[Sizes], folder: Path) -> None:
    """Random weights, a file for each of `files`, so that the tensors of one layer are in memory at a time."""
    config.save_pretrained(folder)
    random = torch.Generator().manual_seed(1)
    places: dict[str, str] = {}
    for layer, sizes in enumerate(files, -1):
        path = file_of(folder, layer)
        save_file({name: _random(size, random) for name, size in sizes.items()}, path, {"format": "pt"})
        places.update(dict.fromkeys(sizes, path.name))
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": places}))


def file_of(folder: Path, layer: int) -> Path:
    """Where `write_checkpoint` puts a layer; -1: what belongs to no layer."""
    return folder / f"model-{layer + 1:05}.safetensors"


def _random(size: tuple[int, ...], random: torch.Generator) -> torch.Tensor:
    """Random weights of a matrix; ones for a norm."""
    if len(size) == 1:
        return torch.ones(size, dtype=torch.bfloat16)
    return torch.empty(size, dtype=torch.bfloat16).normal_(0, size[-1] ** -0.5, generator=random)


def balance_routers(folder: Path) -> None:
    """Let tokens go to all experts of a random checkpoint alike, as a loss does while a model is trained.

    In a random model the mean of the tokens before decides. Here embeddings get the variance 1, so that a token's own
    weighs most, as torch makes them. The routers see their inputs with the same variance in all directions, and what an
    expert gets for the mean of the inputs is moved until the loads are equal.
    """
    model = AutoModelForCausalLM.from_pretrained(folder, dtype="auto").eval()
    ids = torch.randint(0, VOCABULARY, (4, 256), generator=torch.Generator().manual_seed(4))
    model.model.embed_tokens.weight.data *= model.config.hidden_size**0.5
    changed = {"model.embed_tokens.weight": (-1, model.model.embed_tokens.weight)}

    def hook(layer: int) -> Any:
        def balance(router: Any, inputs: tuple[torch.Tensor, ...]) -> None:
            seen = inputs[0].reshape(-1, inputs[0].shape[-1]).float()
            variances, directions = torch.linalg.eigh(torch.cov(seen.T))
            scale = (variances.clamp(min=0) + 0.01 * variances.mean()).rsqrt()
            weight = router.weight.float() @ directions * scale @ directions.T
            mean = torch.nn.functional.normalize(seen.mean(0), dim=0)
            weight = torch.nn.functional.normalize(weight - (weight @ mean)[:, None] * mean, dim=1)
            logits, along = seen @ weight.T, seen @ mean
            shift, step = torch.zeros(len(weight)), 0.02 * logits.std() / along.abs().mean()
            for _ in range(300):
                chosen = (logits + along[:, None] * shift).topk(router.top_k).indices
                loads = torch.bincount(chosen.flatten(), minlength=len(weight)).float()
                shift += step * (loads.mean() - loads).sign()
            router.weight.copy_(weight + shift[:, None] * mean)
            changed[f"model.layers.{layer}.block_sparse_moe.gate.weight"] = layer, router.weight

        return balance

    for number, layer in enumerate(model.model.layers):
        layer.mlp.gate.register_forward_pre_hook(hook(number))
    with torch.no_grad():
        model(ids)  # one layer after the other: each sees the inputs that balanced layers before it give
    for name, (number, weight) in changed.items():
        path = file_of(folder, number)
        with path.open("r+b") as file:
            file.seek(tensor_places(path)[name][0])
            file.write(weight.detach().view(torch.uint8).numpy().tobytes())


class MappedExperts:
    """Experts in mapped *.safetensors. At most `bound` bytes of them stay in the page cache."""

    def __init__(self, folder: Path, shape: Shape, bound: int) -> None:
        paths = [file_of(folder, layer) for layer in range(shape.layers)]
        self._files = [safe_open(path, "pt") for path in paths]
        self._bytes = 3 * shape.hidden * shape.inner * 2
        self._most = max(1, bound // self._bytes)
        self._used: OrderedDict[tuple[int, int], None] = OrderedDict()
        self.hits = self.uses = 0
        self._fds = [os.open(path, os.O_RDONLY) for path in paths]
        self._starts = [tensor_places(path) for path in paths]
        for fd in self._fds:
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)

    def matrices(self, layer: int, expert: int) -> list[torch.Tensor]:
        """Gate, down and up of an expert, views of the mapped file."""
        key = (layer, expert)
        self.uses += 1
        self.hits += key in self._used
        self._used[key] = None
        self._used.move_to_end(key)
        place = f"model.layers.{layer}.block_sparse_moe.experts.{expert}"
        while len(self._used) > self._most:
            self._forget(*self._used.popitem(last=False)[0])
        return [self._files[layer].get_tensor(f"{place}.w{number}.weight") for number in (1, 2, 3)]

    def _forget(self, layer: int, expert: int) -> None:
        place = f"model.layers.{layer}.block_sparse_moe.experts.{expert}"
        for number in (1, 2, 3):
            name = f"{place}.w{number}.weight"
            drop_from_cache(self._files[layer].get_tensor(name), self._fds[layer], self._starts[layer][name])


def tensor_places(path: Path) -> dict[str, tuple[int, int]]:
    """Byte ranges of the tensors of a *.safetensors in its file."""
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        header = json.loads(file.read(length))
    return {
        key: (8 + length + one["data_offsets"][0], 8 + length + one["data_offsets"][1])
        for key, one in header.items()
        if key != "__metadata__"
    }


def drop_from_cache(tensor: torch.Tensor, file: int, place: tuple[int, int]) -> None:
    """Drop a mapped tensor, the bytes `place` of the open file, from this process and from the page cache."""
    libc = ctypes.CDLL(None, use_errno=True)
    begin = tensor.data_ptr() // 4096 * 4096
    size = tensor.data_ptr() + tensor.numel() * tensor.element_size() - begin
    if libc.madvise(ctypes.c_void_p(begin), ctypes.c_size_t(size), _DONT_NEED):
        raise OSError(ctypes.get_errno(), "madvise")
    os.posix_fadvise(file, place[0], place[1] - place[0], os.POSIX_FADV_DONTNEED)


def mapped_model(folder: Path, shape: Shape, share: float) -> tuple[Any, Any, Any]:
    """The same model with its experts in mapped files."""
    config = shape.config()
    config._experts_implementation = "bench_mmap"
    file = WeightsFile(folder / "w.kvw")
    need = needs(file.manifest, torch.bfloat16, shape.used)
    mapped = MappedExperts(folder, shape, int(need.whole * share) - need.resident)

    def function(module: Any, hidden: torch.Tensor, chosen: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
        out = torch.zeros_like(hidden)
        for expert in torch.unique(chosen).tolist():
            tokens, place = torch.where(chosen == expert)
            gate, down, up = mapped.matrices(module.number, expert)
            x = hidden[tokens]
            y = torch.nn.functional.linear(x, gate)
            y = torch.nn.functional.linear(module.act_fn(y) * torch.nn.functional.linear(x, up), down)
            out.index_add_(0, tokens, (y * weights[tokens, place, None]).to(out.dtype))
        return out

    ALL_EXPERTS_FUNCTIONS.register("bench_mmap", function)
    model = resident_model(file, config, torch.bfloat16)
    for number, module in enumerate(experts_of(model).values()):
        module._parameters.clear()
        module.number = number
    return model, lambda: {"hits": mapped.hits, "misses": mapped.uses - mapped.hits}, lambda: None
