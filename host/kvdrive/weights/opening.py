"""Checkpoints with experts or neurons on flash: their files of weights are made, found and opened."""

from __future__ import annotations

import glob
import hashlib
import json
import logging
import os
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import torch
from rich.console import Console
from transformers import GenerationConfig, PreTrainedModel

from kvdrive.config.resolve import resolve
from kvdrive.config.run import RunConfig
from kvdrive.errors import InputError, UnsupportedError
from kvdrive.generation import checkpoints, places
from kvdrive.generation.checkpoints import Checkpoint
from kvdrive.generation.progress import bar
from kvdrive.private import cache_folder
from kvdrive.targets.key_value import KeyValueNamespace
from kvdrive.targets.opening import lend, open_drives, open_existing
from kvdrive.targets.options import DriveOptions
from kvdrive.weights import convert, drive_values, fingerprint
from kvdrive.weights.cuts import Cuts, cuts_of, install_cuts
from kvdrive.weights.drive_ffn import DRIVE
from kvdrive.weights.drive_model import DriveModel
from kvdrive.weights.drive_reader import DriveWeights
from kvdrive.weights.file import WeightsFile
from kvdrive.weights.formats import DTYPES
from kvdrive.weights.gguf_source import source_of
from kvdrive.weights.layout import plan
from kvdrive.weights.loading import FlashWeights, WeightsOptions
from kvdrive.weights.manifest import Manifest
from kvdrive.weights.options import FlashOptions
from kvdrive.weights.predictor import PREDICTOR, Predictors, read_predictors
from kvdrive.weights.reader import Reader
from kvdrive.weights.sources import SafetensorsSource, empty_model
from kvdrive.weights.sparse import SparseWeights

log = logging.getLogger(__name__)

SUFFIX = ".kvw"
_DIGITS = 12  # of the fingerprint, in the name of a file
_ROOM = 1 << 30  # for K and V beside the weights on a new drive


@dataclass(frozen=True)
class Converted:
    """What a conversion did: `experts` or `neurons` are on flash. `resumed`: parts that an earlier one had left."""

    path: Path
    file_bytes: int
    experts: int
    neurons: int
    resumed: int


def make_file(checkpoint: Path, path: Path | None, format: str, console: Console, *, gates: bool = False) -> Converted:
    """Convert a checkpoint folder or GGUF file; progress on `console`. `path`: None for the place in the cache.

    `format`: of experts and neurons, one of choices.WEIGHTS_FORMATS. `gates`: those of neurons go to flash. Raises
    InputError, UnsupportedError.
    """
    checkpoints.quiet()
    config = checkpoints.read_config(checkpoint)
    if getattr(config, "quantization_config", None) and not checkpoint.is_file():
        raise UnsupportedError(f"{checkpoint} has quantised weights: only float32, bfloat16 and float16 are converted")
    config.__dict__.pop("quantization_config", None)  # of a GGUF file
    model = empty_model(config)
    source = source_of(checkpoint, model) if checkpoint.is_file() else SafetensorsSource(checkpoint, model)
    manifest = plan(model, source, fingerprint.of_config(config), fingerprint.of_source(checkpoint), format, gates)
    to = path or default_path(checkpoint)
    with bar(console, "weights: tensors", len(manifest.arrays)) as (bars, task):
        resumed = convert.write(manifest, source, to, lambda done, total: bars.update(task, completed=done))
    experts = sum(array.count for array in manifest.experts)
    neurons = sum(array.count * array.parts[0].shape[0] for array in manifest.neurons)
    return Converted(to, manifest.file_bytes, experts, neurons, resumed)


def load_from(config: RunConfig) -> Checkpoint:
    """The checkpoint of a run, its weights in memory or on flash; `Checkpoint.close` ends the reads.

    Raises ConflictError for options that exclude each other, before anything is read; InputError, UnsupportedError,
    TargetError.
    """
    resolve(config)
    model = config.model
    if config.weights.weights == "memory":
        return checkpoints.load(model.model, model.dtype, model.device)
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


@dataclass(frozen=True)
class Named:
    """What the user called a checkpoint, and where it is."""

    name: str
    path: Path


def _loaded(checkpoint: Named, config: Any, weights: Reader, dtype: str, options: FlashOptions) -> Checkpoint:
    """`load` with the weights open."""
    name, path = checkpoint.name, checkpoint.path
    check_origin(weights, config, path)
    manifest = weights.manifest
    in_drive = options.ffn == DRIVE
    predictors = read_predictors(weights.path, manifest) if options.ffn == PREDICTOR else None
    cuts = None if predictors or in_drive else cuts_of(options.ffn, weights.path, manifest)
    stored = next(part.format for array in manifest.arrays for part in array.parts if part.format in DTYPES)
    computed = DTYPES[stored if dtype == "auto" else dtype]
    if dtype == "auto":
        computed = getattr(config, "dtype", None) or computed
    config.__dict__.pop("quantization_config", None)  # of a GGUF file, whose weights were dequantised
    how = WeightsOptions(
        options.weights_memory, options.weights_cache, options.look_ahead, options.weights_window, options.accepted
    )
    found: FlashWeights | SparseWeights | DriveModel
    if in_drive:
        found = DriveModel(cast(DriveWeights, weights), config, computed)
    elif manifest.experts:
        found = FlashWeights(weights, config, computed, how)
    else:
        found = SparseWeights(weights, config, computed, how, predictors)
    _mark_origin(found.model, manifest, cuts, predictors)
    if cuts is not None:
        install_cuts(found.model, cuts)
    if inexact := cuts or predictors:
        cost = inexact.cost or "nobody has measured what it costs; `kvdrive sparsify` measures it"
        log.warning("ffn %s: %s", options.ffn, cost)
    if (path / "generation_config.json").is_file():
        found.model.generation_config = GenerationConfig.from_pretrained(path, local_files_only=True)
    return Checkpoint(name, path, found.model, checkpoints.read_tokenizer(path), found)


def manifest_of(checkpoint: Path, options: FlashOptions) -> tuple[Path, Manifest]:
    """The file of weights of a checkpoint, and its manifest. Raises InputError."""
    weights = open_reader(checkpoint, options)
    weights.close()
    check_origin(weights, checkpoints.read_config(checkpoint), checkpoint)
    return weights.path, weights.manifest


def open_reader(checkpoint: Path, options: FlashOptions) -> Reader:
    """The weights of a checkpoint, in a file or on a drive. Raises InputError, TargetError."""
    if options.on_drive is None:
        return WeightsFile(_existing(checkpoint, options), copy=options.weights_copy)
    where = replace(options.on_drive, threads=options.on_drive.threads or os.cpu_count() or 1)  # K and V use it, too
    opened = ExitStack()
    try:
        drives = opened.enter_context(open_existing(where))
        opened.enter_context(lend(drives))
        config = fingerprint.of_config(checkpoints.read_config(checkpoint))
        return DriveWeights(drives.drives[0], config, opened.close)
    except BaseException:
        opened.close()
        raise


def put_on_drive(converted: Path, drives: DriveOptions, console: Console) -> str:
    """Copy a file of weights to the first of these drives, which is made if it is not there; returns its name.

    Raises InputError, TargetError.
    """
    with closing(WeightsFile(converted)) as file:
        arrays, size = len(file.manifest.arrays), file.manifest.file_bytes
        wanted = replace(drives, capacity_bytes=max(drives.capacity_bytes, 2 * size + _ROOM))
        with open_drives(wanted) as group, bar(console, "weights: to the drive", arrays) as (bars, task):
            values = KeyValueNamespace(group.drives[0])
            drive_values.store(file, values, lambda done, total: bars.update(task, completed=done))
            return group.drives[0].place or drives.target


def _mark_origin(model: PreTrainedModel, manifest: Manifest, cuts: Cuts | None, predictors: Predictors | None) -> None:
    """Make what is on flash a part of the model's fingerprint: sessions of other numbers are not found then."""
    origin = hashlib.sha256(manifest.to_bytes())  # checkpoint and formats
    origin.update(json.dumps(cuts.thresholds, sort_keys=True).encode() if cuts else b"")
    origin.update(predictors.digest if predictors else b"")
    model.register_buffer("weights_on_flash", torch.tensor(list(origin.digest()), dtype=torch.uint8))


def check_origin(weights: Reader, config: Any, checkpoint: Path) -> None:
    """Raises InputError when the file was not made from this checkpoint. Its own weights may have been deleted."""
    source = fingerprint.of_source(checkpoint)
    manifest = weights.manifest
    if fingerprint.of_config(config) != manifest.config or source not in ("", manifest.source):
        raise InputError(
            f"{weights.path} was made from another checkpoint than {checkpoint}: convert this one, to another place"
        )


def default_path(checkpoint: Path) -> Path:
    """The default place of a checkpoint's weights."""
    return _folder() / f"{_stem(checkpoint)}-{fingerprint.of_source(checkpoint)[:_DIGITS]}{SUFFIX}"


def _existing(checkpoint: Path, options: FlashOptions) -> Path:
    """The file of weights of a checkpoint. Raises InputError if there is none."""
    file = file_of(checkpoint, options)
    if not file.exists():
        raise InputError(f"there are no weights in {file}: `kvdrive convert --model {checkpoint}` writes them")
    return file


def file_of(checkpoint: Path, options: FlashOptions) -> Path:
    """The file of weights of a checkpoint. Raises InputError if the checkpoint's own are deleted and several fit."""
    if options.weights_file is not None:
        return options.weights_file
    if fingerprint.weight_files(checkpoint):
        return default_path(checkpoint)
    found = sorted(_folder().glob(f"{glob.escape(_stem(checkpoint))}-{'[0-9a-f]' * _DIGITS}{SUFFIX}"))
    if len(found) > 1:
        names = ", ".join(one.name for one in found)
        raise InputError(f"{checkpoint} has no weights, and {_folder()} has {names}: name one with `weights_file`")
    return found[0] if found else default_path(checkpoint)


def _folder() -> Path:
    return cache_folder() / "weights"


def _stem(checkpoint: Path) -> str:
    return checkpoint.stem if checkpoint.is_file() else checkpoint.absolute().name
