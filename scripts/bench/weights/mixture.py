"""What experts.py compares with: a random mixture of experts on disk, and its experts in mapped files."""

from __future__ import annotations

import json
from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM, MixtralConfig, PretrainedConfig
from transformers.integrations.moe import ALL_EXPERTS_FUNCTIONS

from bench.weights.mapped_files import BoundedPages, MappedFile, Region, on_disk, tensor_places
from kvdrive.weights.file import WeightsFile
from kvdrive.weights.memory import needs
from kvdrive.weights.modules import experts_of
from kvdrive.weights.resident import resident_model

VOCABULARY = 512
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


def mapped_experts(folder: Path, shape: Shape, bound: int) -> tuple[list[MappedFile], BoundedPages]:
    """The files of the layers, and their experts (layer, expert), of which `bound` bytes stay in the page cache."""
    files = [MappedFile(file_of(folder, layer)) for layer in range(shape.layers)]
    regions: dict[Hashable, Region] = {}
    for layer, file in enumerate(files):
        for expert in range(shape.experts):
            places = [file.places[name] for name in _matrices(layer, expert)]
            regions[layer, expert] = Region(layer, (min(begin for begin, _ in places), max(end for _, end in places)))
    return files, BoundedPages(files, regions, bound)


def _matrices(layer: int, expert: int) -> list[str]:
    """Gate, down and up of an expert in the checkpoint; they lie one behind the other."""
    return [f"model.layers.{layer}.block_sparse_moe.experts.{expert}.w{number}.weight" for number in (1, 2, 3)]


def mapped_model(folder: Path, shape: Shape, share: float, advised: bool = False) -> tuple[Any, Any, Any]:
    """The same model with its experts in mapped files, a function for its counters, and one that closes it.

    `advised`: the kernel reads nothing ahead by itself, and is told each expert at once that a token needs next.
    """
    config = shape.config()
    config._experts_implementation = "bench_mmap"
    file = WeightsFile(folder / "w.kvw")
    need = needs(file.manifest, torch.bfloat16, shape.used)
    files, pages = mapped_experts(folder, shape, int(need.whole * share) - need.resident)

    if advised:
        for one in files:
            one.read_nothing_ahead()

    def function(module: Any, hidden: torch.Tensor, chosen: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
        out = torch.zeros_like(hidden)
        experts = torch.unique(chosen).tolist()
        for expert in experts if advised else ():
            pages.advise((module.number, expert))
        for expert in experts:
            tokens, place = torch.where(chosen == expert)
            pages.use((module.number, expert))
            gate, down, up = (files[module.number].tensor(name) for name in _matrices(module.number, expert))
            x = hidden[tokens]
            y = torch.nn.functional.linear(x, gate)
            y = torch.nn.functional.linear(module.act_fn(y) * torch.nn.functional.linear(x, up), down)
            out.index_add_(0, tokens, (y * weights[tokens, place, None]).to(out.dtype))
            pages.trim((module.number, expert))
        if module.number == shape.layers - 1 and on_disk(folder):
            pages.require_bound()
        return out

    ALL_EXPERTS_FUNCTIONS.register("bench_mmap", function)
    model = resident_model(file, config, torch.bfloat16)
    for number, module in enumerate(experts_of(model).values()):
        module._parameters.clear()
        module.number = number
    return model, pages.counters, lambda: None
