"""K and V from layer inputs, by the model's own projections, norms and rotary positions."""

from __future__ import annotations

import sys
from collections.abc import Mapping

import numpy as np
import torch
from numpy.typing import NDArray

from kvdrive.errors import UnsupportedError
from kvdrive.kvcache.copies import sent

BLOCK = 256  # tokens that are projected at once, always: a token's bits depend on its place in the block at most
LENGTH_DEPENDENT = ("dynamic", "longrope")  # kinds of rotary positions that change with the length of the sequence


class RotaryTable:
    """The cosines and sines of a model's positions, computed once. `module`: the model's own rotary embedding."""

    def __init__(self, module: torch.nn.Module, dtype: torch.dtype, device: torch.device) -> None:
        kind = getattr(module, "rope_type", "default")
        if any(word in str(kind) for word in LENGTH_DEPENDENT):
            raise UnsupportedError(f"its rotary positions ({kind}) depend on the length of the text")
        self._module = module
        self._like = torch.empty(1, 1, dtype=dtype, device=device)
        self._cos = self._sin = torch.empty(0)

    def forget(self) -> None:
        """Compute the positions anew when they are asked for."""
        self._cos = self._sin = torch.empty(0)

    def rows(self, positions: NDArray[np.int64]) -> tuple[torch.Tensor, torch.Tensor]:
        """Cosines and sines [1, tokens, rotary dimension] of `positions` [tokens]."""
        most = int(positions.max(initial=0))
        if most >= len(self._cos):
            count = max(2 * len(self._cos), most + 1, BLOCK)
            with torch.no_grad():
                cos, sin = self._module(self._like, torch.arange(count, device=self._like.device)[None])
            self._cos, self._sin = cos[0], sin[0]
        at = torch.from_numpy(positions).to(self._cos.device)
        return self._cos[at][None], self._sin[at][None]


class Projections:
    """The attention modules of a model, by layer, with `k_proj` and `v_proj`. `rotary` None: no rotary positions."""

    def __init__(self, modules: Mapping[int, torch.nn.Module], head_dim: int, rotary: RotaryTable | None) -> None:
        self.modules = modules
        self.rotary = rotary
        self._head_dim = head_dim

    @property
    def device(self) -> torch.device:
        """Where the first layer's projections are."""
        found: torch.device = next(iter(self.modules.values())).k_proj.weight.device
        return found

    def forget(self) -> None:
        """The model has changed: compute its positions anew."""
        if self.rotary is not None:
            self.rotary.forget()

    def project(
        self, layer: int, x: torch.Tensor, positions: NDArray[np.int64], first: int
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """X [tokens, width] -> K and V [heads, tokens, d] in the model's precision, K with its rotary positions, on the
        device that has the projections.

        The tokens are number `first` and the following ones; each is computed at its own place in a block of BLOCK
        tokens. So the bits do not depend on which tokens are asked for together.
        """
        x = sent(x, self.modules[layer].k_proj.weight.device)
        parts = []
        tokens = len(x)
        start = 0
        while start < tokens:
            place = (first + start) % BLOCK
            count = min(BLOCK - place, tokens - start)
            chosen = slice(start, start + count)
            block = x.new_zeros(BLOCK, x.shape[1])
            block[place : place + count] = x[chosen]
            at = np.zeros(BLOCK, np.int64)
            at[place : place + count] = positions[chosen]
            k, v = self._block(layer, block, at)
            parts.append((k[:, place : place + count], v[:, place : place + count]))
            start += count
        keys, values = zip(*parts, strict=True)
        return torch.cat(keys, dim=1), torch.cat(values, dim=1)

    def _block(self, layer: int, x: torch.Tensor, positions: NDArray[np.int64]) -> tuple[torch.Tensor, torch.Tensor]:
        module = self.modules[layer]
        with torch.no_grad():
            x = x[None]
            k = module.k_proj(x).view(1, len(positions), -1, self._head_dim)
            v = module.v_proj(x).view(1, len(positions), -1, self._head_dim)
            norm = getattr(module, "k_norm", None)
            if norm is not None:
                k = norm(k)
            k, v = k.transpose(1, 2), v.transpose(1, 2)
            if self.rotary is not None:
                cos, sin = self.rotary.rows(positions)
                k = rotation(module)(k, k, cos, sin)[1]
        return k[0], v[0]


def arithmetic_of(device: torch.device) -> str:
    """What the bits of a matrix product on a device depend on."""
    if device.type != "cuda":
        capability = torch.backends.cpu.get_cpu_capability()
        return f"torch {torch.__version__}, {capability}, {torch.get_num_threads()} threads"
    products = torch.backends.cuda.matmul
    sums = products.allow_bf16_reduced_precision_reduction, products.allow_fp16_reduced_precision_reduction
    return (
        f"torch {torch.__version__}, CUDA {torch.version.cuda}, {torch.cuda.get_device_name(device)}, "
        f"float32 {torch.get_float32_matmul_precision()}, sums {sums}"
    )


def rotation(module: torch.nn.Module):  # type: ignore[no-untyped-def]
    """The function of the module's family that applies rotary positions to q and k. Raises UnsupportedError."""
    found = getattr(sys.modules[type(module).__module__], "apply_rotary_pos_emb", None)
    if found is None:
        raise UnsupportedError(f"{type(module).__name__} has rotary positions of a kind of its own")
    return found
