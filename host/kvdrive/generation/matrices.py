"""Matrices of a model in 8 bits: a decode step reads half of the bytes of bfloat16."""

from __future__ import annotations

import torch
from transformers import PreTrainedModel

_FEW = 16  # rows of inputs up to which the product with codes is faster than one with a matrix in bfloat16
_STEP = 32  # torch's kernel reads rows in steps of at most this many codes, and does not check that they fit


class CodedLinear(torch.nn.Module):  # type: ignore[misc]
    """`linear`, in bfloat16, with its matrix rounded to 8 bits.

    Row i is `scale[i]` times integers from -127 to 127; `scale` is in bfloat16. Products are summed in float32 and
    rounded to bfloat16. For few rows of inputs on a CPU, torch's kernel reads the codes themselves.
    """

    def __init__(self, linear: torch.nn.Linear) -> None:
        super().__init__()
        matrix = linear.weight.detach().float()
        # A scale that is rounded down would put the row's largest number beyond 127: it is raised by 1/256 first.
        scale = (matrix.abs().amax(1) / 127 * (1 + 2**-8)).bfloat16().clamp(min=torch.finfo(torch.bfloat16).tiny)
        self.register_buffer("scale", scale)
        self.register_buffer("codes", torch.round(matrix / scale.float()[:, None]).to(torch.int8))
        self.bias = linear.bias
        self.in_features, self.out_features = linear.in_features, linear.out_features

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """inputs [..., in_features] bfloat16 -> [..., out_features]."""
        rows = inputs.reshape(-1, self.in_features)
        if len(rows) <= _FEW and rows.device.type == "cpu":
            out = torch.ops.aten._weight_int8pack_mm(rows.contiguous(), self.codes, self.scale)
        else:
            out = torch.nn.functional.linear(rows, self.codes.to(rows.dtype)) * self.scale
        out = out if self.bias is None else out + self.bias
        return out.reshape(*inputs.shape[:-1], self.out_features)


def round_matrices(model: PreTrainedModel) -> int:
    """Replace the linear layers of a model in bfloat16 by `CodedLinear`s. Returns how many there were.

    Layers whose inputs are no multiple of 32 stay. Embeddings and stacked experts are no linear layers, so they stay.
    """
    found = [
        (parent, name, child)
        for parent in model.modules()
        for name, child in parent.named_children()
        if type(child) is torch.nn.Linear and child.in_features % _STEP == 0
    ]
    for parent, name, child in found:
        setattr(parent, name, CodedLinear(child))
    return len(found)
