"""A checkpoint in memory with the numbers and the `ffn` of one on flash, which must compute the same."""

from __future__ import annotations

import torch

from kvdrive.generation import checkpoints
from kvdrive.generation.checkpoints import Checkpoint
from kvdrive.weights.bundles import EXPERTS, RESIDENT, Array
from kvdrive.weights.cuts import cuts_of, install_cuts
from kvdrive.weights.file import aligned
from kvdrive.weights.finding import open_reader
from kvdrive.weights.formats import CODES
from kvdrive.weights.neurons import matrices_in
from kvdrive.weights.options import DRIVE, PREDICTOR, FlashOptions
from kvdrive.weights.predictor import install_predictors, read_predictors
from kvdrive.weights.reader import Reader

_ROUNDED = (*CODES, "float16")  # formats whose numbers may be others than the checkpoint's


def load_whole(name: str, dtype: str, options: FlashOptions) -> Checkpoint:
    """The checkpoint in memory, rounded as its file of weights, with the same `ffn`. Raises InputError, TargetError."""
    checkpoint = checkpoints.load(name, dtype)
    file = open_reader(checkpoint.path, options)
    for array in file.manifest.arrays:
        if array.kind != RESIDENT and any(part.format in _ROUNDED for part in array.parts):
            _fill(checkpoint.model, file, array)
    file.close()
    if options.ffn == PREDICTOR:
        install_predictors(checkpoint.model, read_predictors(file.path, file.manifest))
    elif options.ffn != DRIVE and (cuts := cuts_of(options.ffn, file.path, file.manifest)):
        install_cuts(checkpoint.model, cuts)
    return checkpoint


def _fill(model: torch.nn.Module, file: Reader, array: Array) -> None:
    """Replace the numbers of experts or neurons by those of the file."""
    module, memory = model.get_submodule(array.name), aligned(array.stride)
    for index in range(array.count):
        file.read(array, index, memory)
        for part in array.parts:
            stored = part.view(torch.from_numpy(memory))
            if array.kind == EXPERTS:
                parameter = module.get_parameter(part.name)
                parameter.data[index] = part.numbers_of(stored, parameter.dtype)
                continue
            *rows, column = (module.get_parameter(one).data for one in matrices_in(part.name))
            numbers = part.numbers_of(stored, column.dtype)
            first, hidden = index * part.shape[0], len(column)
            here = slice(first, first + part.shape[0])
            for place, matrix in enumerate(rows):
                matrix[here] = numbers[: len(matrix[here]), place * hidden : (place + 1) * hidden]
            column[:, here] = numbers[: column[:, here].shape[1], -hidden:].T
