"""The manifest of a model: which bundles its file of weights has, and where."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import count

import torch
from transformers import PreTrainedModel

from kvdrive.errors import UnsupportedError
from kvdrive.weights.bundles import EXPERTS, NEURONS, PAGE, PIECE_BYTES, RESIDENT, Array, place_parts
from kvdrive.weights.formats import CODES, DTYPES, stored_bytes
from kvdrive.weights.manifest import Manifest, data_offset
from kvdrive.weights.modules import experts_of, own_tensors
from kvdrive.weights.neurons import SparseBlock, neurons_of
from kvdrive.weights.sources import Source

_NAMES = {dtype: name for name, dtype in DTYPES.items()}


def plan(
    model: PreTrainedModel,
    source: Source,
    config: str,
    checkpoint: str,
    format: str = "auto",
    gates: bool = False,
    piece: int = PIECE_BYTES,
) -> Manifest:
    """The manifest of a file for this (empty) model. `format`: one of choices.WEIGHTS_FORMATS, of experts and neurons.
    `gates`: the gates of neurons are on flash, too.

    Resident tensors are kept as they are stored. `config` and `checkpoint`: the fingerprints. Raises UnsupportedError
    for models without experts and neurons that can be on flash.
    """
    experts, blocks = experts_of(model), neurons_of(model, gates)
    if gates and (experts or not blocks):
        raise UnsupportedError(f"{type(model).__name__} has no gates that can be on flash: leave `gates` out")
    if not experts and not blocks:
        raise UnsupportedError(
            f"{type(model).__name__} has no experts, and its layers are not Llama's or OPT's with ReLU: its weights "
            "must stay in memory"
        )
    if experts:
        arrays = [_experts(name, module, source, format) for name, module in experts.items()]
        on_flash = [f"{name}." for name in experts]
    else:
        arrays = [_neurons(name, block, source, format) for name, block in blocks.items()]
        on_flash = [f"{name}.{matrix}" for name, block in blocks.items() for matrix in block.matrices]
    arrays += _resident(model, tuple(on_flash), source)
    manifest = Manifest(model.config.model_type, config, checkpoint, piece, tuple(_placed(arrays, piece, 1 << 40)))
    front = len(manifest.to_bytes())  # long enough: its offsets have more digits than the final ones
    return replace(manifest, arrays=tuple(_placed(arrays, piece, data_offset(front, manifest.pieces))))


def _format(source: Source, name: str, format: str, dimensions: int = 2) -> str:
    """The format of a parameter in the file; `dimensions` of what one bundle has of it. Only matrices become codes."""
    as_stored = format == "auto" or (format in CODES and dimensions < 2)
    return _NAMES[source.dtype(name)] if as_stored else format


def _experts(name: str, module: torch.nn.Module, source: Source, format: str) -> Array:
    """The experts of one module; places are given later."""
    tensors = [
        (part, _format(source, f"{name}.{part}", format, tensor.dim() - 1), tensor.shape[1:])
        for part, tensor in own_tensors(module)
    ]
    parts, stride = place_parts(tensors)
    return Array(name, EXPERTS, int(module.num_experts), stride, 0, 0, parts)


def _neurons(name: str, block: SparseBlock, source: Source, format: str) -> Array:
    """The neurons of a feed-forward part in small groups; places are given later."""
    neurons, width = block.shape
    stored = _format(source, f"{name}.{block.matrices[-1]}", format)
    size = _group(stored, width)
    parts, stride = place_parts([(block.part, stored, (size, width))])
    return Array(name, NEURONS, -(-neurons // size), stride, 0, 0, parts)


def _group(stored: str, width: int) -> int:
    """Neurons of `width` numbers in the smallest group of whole pages: without a gap, or of codes with at most 1/8."""
    row = stored_bytes(stored, width)
    if stored not in CODES:
        return PAGE // math.gcd(row, PAGE)  # rows of all groups lie one behind the other
    pages = next(pages for pages in count(-(-row // PAGE)) if pages * PAGE % row <= pages * PAGE // 8)
    return pages * PAGE // row


def _resident(model: PreTrainedModel, on_flash: tuple[str, ...], source: Source) -> Iterator[Array]:
    """What stays in memory: parameters and stored buffers whose names do not begin so. Tied ones are stored once."""
    for name, tensor in model.state_dict().items():
        if not name.startswith(on_flash) and source.has(name):
            parts, stride = place_parts([(name, _format(source, name, "auto"), tensor.shape)])
            yield Array(name, RESIDENT, 1, stride, 0, 0, parts)


def _placed(arrays: Sequence[Array], piece: int, offset: int) -> Iterator[Array]:
    """The arrays one behind the other, the first at `offset`."""
    pieces = 0
    for array in arrays:
        yield replace(array, offset=offset, first_piece=pieces)
        offset += array.bytes
        pieces += array.count * array.pieces_of_bundle(piece)
