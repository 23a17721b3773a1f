"""Checkpoints with experts or neurons on flash are loaded with their weights open."""

from __future__ import annotations

import logging
from typing import Any, cast

from kvdrive.config.resolve import resolve
from kvdrive.config.run import RunConfig
from kvdrive.generation import checkpoints, places
from kvdrive.generation.checkpoints import Checkpoint
from kvdrive.weights.cuts import cuts_of, install_cuts
from kvdrive.weights.drive_model import DriveModel
from kvdrive.weights.finding import open_reader
from kvdrive.weights.loaded import Named, complete, computed_in
from kvdrive.weights.loading import FlashWeights, WeightsOptions
from kvdrive.weights.options import DRIVE, PREDICTOR, FlashOptions
from kvdrive.weights.origin import check_origin, mark_origin
from kvdrive.weights.predictor import read_predictors
from kvdrive.weights.reader import Reader
from kvdrive.weights.sparse import SparseWeights
from kvdrive.weights.stream.opening import load_stream

log = logging.getLogger(__name__)


def load_from(config: RunConfig) -> Checkpoint:
    """The checkpoint of a run, its weights in memory or on flash; `Checkpoint.close` ends the reads.

    Raises ConflictError for options that exclude each other, before anything is read; InputError, UnsupportedError,
    TargetError.
    """
    resolve(config)
    model = config.model
    if config.weights.weights == "memory":
        return checkpoints.load(model.model, model.dtype, model.device)
    if config.weights.weights == "stream":
        return load_stream(model.model, model.dtype, config.weights)
    return load(model.model, model.dtype, config.stored())


def load(name: str, dtype: str, options: FlashOptions) -> Checkpoint:
    """A checkpoint whose experts or neurons are in a file of weights, which `Checkpoint.close` closes.

    `name` and `dtype` as in `checkpoints.load`. Raises InputError, UnsupportedError, TargetError.
    """
    checkpoints.quiet()
    path = places.find(name)
    config = checkpoints.read_config(path)
    weights = open_reader(path, options)
    try:
        return _loaded(Named(name, path), config, weights, dtype, options)
    except BaseException:
        weights.close()
        raise


def _loaded(checkpoint: Named, config: Any, weights: Reader, dtype: str, options: FlashOptions) -> Checkpoint:
    """`load` with the weights open."""
    path = checkpoint.path
    check_origin(weights, config, path)
    manifest = weights.manifest
    in_drive = options.ffn == DRIVE
    predictors = read_predictors(weights.path, manifest) if options.ffn == PREDICTOR else None
    cuts = None if predictors or in_drive else cuts_of(options.ffn, weights.path, manifest)
    computed = computed_in(manifest, config, dtype)
    config.__dict__.pop("quantization_config", None)  # of a GGUF file, whose weights were dequantised
    how = WeightsOptions(
        options.weights_memory, options.weights_cache, options.look_ahead, options.weights_window, options.accepted
    )
    found: FlashWeights | SparseWeights | DriveModel
    if in_drive:
        found = DriveModel(cast(Any, weights), config, computed)  # `ffn=drive` goes with weights on a drive only
    elif manifest.experts:
        found = FlashWeights(weights, config, computed, how)
    else:
        found = SparseWeights(weights, config, computed, how, predictors)
    mark_origin(found.model, manifest, cuts, predictors)
    if cuts is not None:
        install_cuts(found.model, cuts)
    if inexact := cuts or predictors:
        cost = inexact.cost or "nobody has measured what it costs; `kvdrive sparsify` measures it"
        log.warning("ffn %s: %s", options.ffn, cost)
    return complete(checkpoint, found)
