"""Changes of a small model, one of each kind of thing that may change what it computes."""

from __future__ import annotations

import contextlib
import copy
import functools
import sys
from collections.abc import Callable
from random import Random

import torch
from small_models import SMALL
from transformers import AutoModelForCausalLM

Undo = Callable[[], None]
TINY = SMALL | {"hidden_size": 64, "intermediate_size": 64, "num_attention_heads": 4, "initializer_range": 0.2}


def nothing() -> None:
    """An undo of a change that goes with the model."""


def a_number_of_a_weight(model: torch.nn.Module, random: Random) -> Undo:
    with torch.no_grad():
        weight = random.choice(list(model.parameters()))
        weight.view(-1)[random.randrange(weight.numel())] += random.choice([1.0, -0.5, 0.01])
    return nothing


def a_weight_behind_torchs_back(model: torch.nn.Module, random: Random) -> Undo:
    random.choice(list(model.parameters())).data.mul_(random.choice([1.1, 0.9]))
    return nothing


def another_weight(model: torch.nn.Module, random: Random) -> Undo:
    module, name, weight = random.choice(
        [(module, name, one) for module in model.modules() for name, one in module.named_parameters(recurse=False)]
    )
    setattr(module, name, torch.nn.Parameter(weight.detach() * 1.2))
    return nothing


def the_data_of_a_weight(model: torch.nn.Module, random: Random) -> Undo:
    weight = random.choice(list(model.parameters()))
    weight.data = weight.data * 0.8
    return nothing


def a_buffer(model: torch.nn.Module, random: Random) -> Undo:
    found = [one for one in model.buffers() if one.is_floating_point()]
    if found:
        random.choice(found).mul_(1.3)
    return nothing


def an_attribute(model: torch.nn.Module, random: Random) -> Undo:
    found = [
        (module, name, value)
        for module in model.modules()
        for name, value in vars(module).items()
        if isinstance(value, int | float) and not name.startswith("_") and name not in ("training", "layer_idx")
    ]
    module, name, value = random.choice(found)
    setattr(module, name, not value if isinstance(value, bool) else type(value)(value * random.choice([2, 3])))
    return nothing


def a_hook(model: torch.nn.Module, random: Random) -> Undo:
    factor = random.choice([0.5, 1.5])

    def hook(module, inputs, output):
        return output * factor if isinstance(output, torch.Tensor) else (output[0] * factor, *output[1:])

    random.choice([one for one in model.modules() if type(one) is torch.nn.Linear]).register_forward_hook(hook)
    return nothing


def a_hook_of_inputs(model: torch.nn.Module, random: Random) -> Undo:
    factor = random.choice([0.5, 1.5])
    module = random.choice([one for one in model.modules() if type(one) is torch.nn.Linear])
    module.register_forward_pre_hook(lambda module, inputs: tuple(one * factor for one in inputs))
    return nothing


def a_hook_of_every_module(model: torch.nn.Module, random: Random) -> Undo:
    def hook(module, inputs, output):
        return output * 1.1 if type(module) is torch.nn.Linear else None

    return torch.nn.modules.module.register_module_forward_hook(hook).remove


class Adapted(torch.nn.Module):
    """A layer with an adapter as PEFT has them: a scale, and a switch."""

    def __init__(self, base: torch.nn.Linear, scale: float) -> None:
        super().__init__()
        self.base, self.scaling, self.on = base, {"default": scale}, True
        self.delta = torch.nn.Linear(base.in_features, base.out_features, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.base(x) + self.scaling["default"] * self.delta(x) if self.on else self.base(x)


def _linear(model: torch.nn.Module, random: Random) -> tuple[torch.nn.Module, str, torch.nn.Linear]:
    return random.choice(
        [
            (parent, name, one)
            for parent in model.modules()
            for name, one in parent.named_children()
            if type(one) is torch.nn.Linear
        ]
    )


def an_adapter(model: torch.nn.Module, random: Random) -> Undo:
    parent, name, base = _linear(model, random)
    setattr(parent, name, Adapted(base, random.choice([0.5, 2.0])))
    return nothing


def a_switch(model: torch.nn.Module, random: Random) -> Undo:
    """Of an adapter that was there before (`with_adapters`)."""
    adapted = random.choice([one for one in model.modules() if isinstance(one, Adapted)])
    if random.random() < 0.5:
        adapted.on = False
    else:
        adapted.scaling["default"] *= 2
    return nothing


def another_activation(model: torch.nn.Module, random: Random) -> Undo:
    found = [
        (parent, name)
        for parent in model.modules()
        for name, one in parent.named_children()
        if "act" in name and not list(one.children())
    ]
    if found:
        setattr(*random.choice(found), torch.nn.Tanh())
    return nothing


def the_order_of_layers(model: torch.nn.Module, random: Random) -> Undo:
    layers = next(one for one in model.modules() if isinstance(one, torch.nn.ModuleList))
    layers[0], layers[1] = layers[1], layers[0]
    for number, layer in enumerate(layers):
        for module in layer.modules():
            if hasattr(module, "layer_idx"):
                module.layer_idx = number
    return nothing


def its_own_forward(model: torch.nn.Module, random: Random) -> Undo:
    module = _linear(model, random)[2]
    before = module.forward
    module.forward = lambda x: before(x) * 1.25
    return nothing


def the_forward_of_a_class(model: torch.nn.Module, random: Random) -> Undo:
    kinds = sorted({type(one) for one in model.modules() if "MLP" in type(one).__name__}, key=lambda one: one.__name__)
    if not kinds:
        return nothing
    kind = random.choice(kinds)
    before = kind.forward

    @functools.wraps(before)
    def forward(self, *args, **kwargs):
        return before(self, *args, **kwargs) * 0.5

    kind.forward = forward if random.random() < 0.5 else lambda self, *args, **kwargs: before(self, *args, **kwargs) * 2
    return lambda: setattr(kind, "forward", before)


def a_function_of_the_family(model: torch.nn.Module, random: Random) -> Undo:
    family = sys.modules[type(model).__module__]
    before = getattr(family, "apply_rotary_pos_emb", None)
    if before is None:
        return nothing
    family.apply_rotary_pos_emb = lambda q, k, *args, **kwargs: tuple(
        one * 1.5 for one in before(q, k, *args, **kwargs)
    )
    return lambda: setattr(family, "apply_rotary_pos_emb", before)


def the_precision(model: torch.nn.Module, random: Random) -> Undo:
    model.to(torch.bfloat16)
    return nothing


def a_parametrization(model: torch.nn.Module, random: Random) -> Undo:
    class Doubled(torch.nn.Module):
        def forward(self, weight: torch.Tensor) -> torch.Tensor:
            return 2 * weight

    torch.nn.utils.parametrize.register_parametrization(_linear(model, random)[2], "weight", Doubled())
    return nothing


def a_merged_weight(model: torch.nn.Module, random: Random) -> Undo:
    """As merging an adapter does it."""
    weight = _linear(model, random)[2].weight
    weight.data += 0.1 * torch.randn(weight.shape, generator=torch.Generator().manual_seed(random.randrange(1 << 30)))
    return nothing


def loaded_weights(model: torch.nn.Module, random: Random) -> Undo:
    state = {name: one * 1.1 if "proj" in name else one for name, one in model.state_dict().items()}
    with contextlib.suppress(RuntimeError):
        model.load_state_dict(state, strict=False)
    return nothing


CHANGES: list[Callable[[torch.nn.Module, Random], Undo]] = [
    a_number_of_a_weight, a_weight_behind_torchs_back, another_weight, the_data_of_a_weight, a_buffer, an_attribute,
    a_hook, a_hook_of_inputs, a_hook_of_every_module, an_adapter, a_switch, another_activation, the_order_of_layers,
    its_own_forward, the_forward_of_a_class, a_function_of_the_family, the_precision, a_parametrization,
    a_merged_weight, loaded_weights,
]  # fmt: skip


def with_adapters(model: torch.nn.Module) -> torch.nn.Module:
    """The model with an adapter in each layer's attention."""
    layers = next(one for one in model.modules() if isinstance(one, torch.nn.ModuleList))
    for layer in layers:
        parent, name, base = _linear(layer, Random(1))
        setattr(parent, name, Adapted(base, 1.0))
    return model


def another_config(config, random: Random):
    """The configuration with another value of one field; None where no other model comes of it.

    The field may be of a kind that changes no shape, or any other.
    """
    other = copy.deepcopy(config)
    fields = [
        name
        for name, value in vars(config).items()
        if isinstance(value, bool | int | float | str) and not name.startswith("_") and name not in _NO_NUMBERS
    ]
    name = random.choice(fields)
    value = getattr(config, name)
    if isinstance(value, bool):
        changed = not value
    elif isinstance(value, str):
        changed = {"silu": "relu", "gelu": "relu", "relu": "gelu"}.get(value)
    else:
        changed = type(value)(value * random.choice([2, 3]) + (1 if isinstance(value, int) else 0.1))
    if changed is None:
        return None
    setattr(other, name, changed)
    return name, other


_NO_NUMBERS = ("model_type", "vocab_size", "num_hidden_layers", "hidden_size", "transformers_version", "dtype")


def built(config, seed: int) -> torch.nn.Module:
    """A random model, always the same for the same seed."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return AutoModelForCausalLM.from_config(copy.deepcopy(config)).eval()
