"""Files of weights are made from checkpoints, and copied to drives."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path

from rich.console import Console

from kvdrive.errors import UnsupportedError
from kvdrive.generation import checkpoints
from kvdrive.generation.progress import bar
from kvdrive.targets.key_value import KeyValueNamespace
from kvdrive.targets.opening import open_drives
from kvdrive.targets.options import DriveOptions
from kvdrive.weights import convert, drive_values, fingerprint
from kvdrive.weights.file import WeightsFile
from kvdrive.weights.finding import default_path
from kvdrive.weights.gguf_source import source_of
from kvdrive.weights.layout import plan
from kvdrive.weights.sources import SafetensorsSource, empty_model

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
