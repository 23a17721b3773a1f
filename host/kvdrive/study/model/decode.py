"""A decode step of the papers' systems as discrete events over GPU, host, links and drives.

Each system adds the tasks of a layer; two steps are run and the second one is reported. Times of drives that attend are
the drive library's own, bytes and FLOP follow from the model's shape, rates from `hardware` and `calibration`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from kvdrive.perf import hardware
from kvdrive.perf.hardware import AttendingDrive, Figure, Gpu, Host, Ssd
from kvdrive.perf.shapes import HALF_BYTES, LARGE, ModelShape
from kvdrive.perf.xcache import FLOP_PER_WEIGHT
from kvdrive.study.inputs import Input
from kvdrive.study.model import drives
from kvdrive.study.model.events import Task, busy, critical, run

PAGE_BYTES = 4096
_FITS = 0.9  # of a GPU's memory: the rest is for what it computes with


@dataclass(frozen=True)
class Machine:
    """A GPU, its host, the link between them, `ssds` SSDs, or drives that attend behind one `uplink`.

    `use`: the share of the GPU's FLOP that matrices of many rows reach. Where drives attend, nothing else explains
    `software`: seconds of each layer on the host, and `command`: seconds of a drive's processor for each of its heads
    in a layer, whatever the batch.
    """

    name: str
    gpu: Gpu
    host: Host
    link: Figure
    ssd: Ssd
    ssds: int
    drive: AttendingDrive
    use: Input
    software: Input | None = None
    command: Input | None = None
    uplink: Figure = hardware.PCIE4_X16_EFFECTIVE


@dataclass(frozen=True)
class Work:
    """`batch` sequences of `tokens` tokens each."""

    model: ModelShape
    batch: int
    tokens: int

    @property
    def kv_layer(self) -> float:
        """Bytes of K and V of a layer."""
        return self.model.kv_bytes(self.batch, self.tokens) / self.model.layers


@dataclass(frozen=True)
class Step:
    """A decode step. `parts` add up to `seconds`: what held up the step. `busy`: seconds that each resource works,
    `moved`: bytes over each, `written`: bytes written to storage."""

    work: Work
    seconds: float
    parts: dict[str, float]
    busy: dict[str, float]
    moved: dict[str, float]
    written: float

    @property
    def throughput(self) -> float:
        """Tokens per second."""
        return self.work.batch / self.seconds

    def share(self, *names: str) -> float:
        """The share of the step that these parts hold up."""
        return sum(self.parts.get(name, 0.0) for name in names) / self.seconds


@dataclass
class Layers:
    """The tasks of the steps so far. `ends`: of each layer, its last task."""

    tasks: list[Task] = field(default_factory=list)
    ends: list[Task] = field(default_factory=list)

    def add(self, part: str, on: str, seconds: float, after: Sequence[Task | None] = (), size: float = 0.0) -> Task:
        """One task; None in `after` stands for the beginning."""
        task = Task(part, on, seconds, [other for other in after if other is not None], size)
        self.tasks.append(task)
        return task

    def before(self, layers: int = 1) -> Task | None:
        """The end of the layer that many layers ago."""
        return self.ends[-layers] if len(self.ends) >= layers else None


def _steps(work: Work, layer: Callable[[Layers], Task], written: float = 0.0) -> Step:
    layers = Layers()
    for _ in range(2 * work.model.layers):
        layers.ends.append(layer(layers))
    run(layers.tasks)
    since, end = layers.ends[work.model.layers - 1].end, layers.ends[-1].end
    second = layers.tasks[len(layers.tasks) // 2 :]
    moved: dict[str, float] = {}
    for task in second:
        moved[task.on] = moved.get(task.on, 0.0) + task.bytes
    in_step = [task for task in layers.tasks if task.end <= end]
    return Step(work, end - since, critical(in_step, since), busy(in_step, since), moved, written)


def in_gpu(machine: Machine, size: float, gpus: int = 1) -> bool:
    """True if so many bytes fit the memory of `gpus` GPUs."""
    return size <= _FITS * gpus * machine.gpu.memory.value


def _weights(layers: Layers, machine: Machine, work: Work, storage: Mapping[str, float]) -> Task | None:
    """The layer's weights, a layer ahead, unless the GPU holds them. `storage`: what large ones come through, and at
    which rates; empty: all weights lie in host memory."""
    model = work.model
    if in_gpu(machine, model.weight_bytes):
        return None
    size = _layer_weights(work)
    after = layers.before(2)
    if model.weight_bytes > LARGE:
        passed = [layers.add("weights", on, size / rate, [after], size) for on, rate in storage.items()]
        return layers.add("weights", "link", size / machine.link.value, [after, *passed], size)
    return layers.add("weights", "link", size / machine.link.value, [after], size)


def _layer_weights(work: Work) -> float:
    """Bytes of a layer's weights that the batch uses."""
    return HALF_BYTES * work.model.step_weights(work.batch) / work.model.layers


def _dense(machine: Machine, work: Work) -> float:
    """Seconds of a layer's matrices: 2 FLOP for each weight and token, or reading the weights once."""
    model = work.model
    flop = 2 * work.batch * (model.attention_weights + model.ffn_weights * model.active / model.experts) / model.layers
    read = _layer_weights(work) / machine.gpu.memory_rate.value
    return max(flop / (machine.gpu.flops.value * machine.use.value), read)


def _bound_by(machine: Machine, work: Work) -> str:
    """What bounds that: the name of this part of a step."""
    return "GPU" if _dense(machine, work) > _layer_weights(work) / machine.gpu.memory_rate.value else "weights"


@dataclass(frozen=True)
class Attending:
    """Drives attend. `alpha`: share of the work as X. `sparse`: device time over that of exact attention.

    `interval`: tokens between two writes; 0: each token is written at once, and attention waits for it.
    """

    drives: int
    alpha: float = 0.0
    interval: int = 16
    sparse: float = 1.0


def attended(machine: Machine, work: Work, how: Attending) -> Step:
    """A step with attention in the drives, and with X-cache for a share `alpha`.

    Queries and outputs are packets between those of weights and X on the same link: they do not wait for a layer's.
    """
    model, drive = work.model, machine.drive
    row = model.kv_heads * model.head_dim * HALF_BYTES
    heads = max(1.0, model.kv_heads / how.drives)
    sequences = work.batch * model.kv_heads / how.drives / heads  # of each drive
    each = drives.attention_seconds(drive, heads, work.tokens, model.head_dim, model.group)
    attending = (1 - how.alpha) * how.sparse * each * sequences
    x = how.alpha * work.batch * work.tokens * model.hidden * HALF_BYTES
    rebuilding = FLOP_PER_WEIGHT / HALF_BYTES * x * row / HALF_BYTES / (machine.gpu.flops.value * machine.use.value)
    rebuilt = how.alpha * work.kv_layer / machine.gpu.memory_rate.value
    stored = work.batch * ((1 - how.alpha) * 2 * row + how.alpha * model.hidden * HALF_BYTES)
    row_bytes = model.head_dim * HALF_BYTES
    whole = PAGE_BYTES / (row_bytes * min(how.interval or 1, PAGE_BYTES // row_bytes))  # a page is written for its rows
    waiting = how.interval / 2 * work.batch * (row + 4 * model.heads)  # V rows and scores of tokens that wait
    up = work.batch * HALF_BYTES * (model.hidden + 2 * model.kv_heads * model.head_dim) + waiting
    down = work.batch * HALF_BYTES * model.hidden
    together = how.interval or 1  # tokens that are written at once
    writing = drives.append_seconds(drive, heads, together, model.head_dim) / together * sequences
    writing *= stored / (work.batch * 2 * row)
    dense, part = _dense(machine, work), _bound_by(machine, work)
    software = machine.software.value if machine.software else 0.0
    commands = machine.command.value * heads if machine.command else 0.0
    projections = model.attention_weights / (model.attention_weights + model.ffn_weights * model.active / model.experts)
    inside, uplink = how.drives * drive.rate.value, machine.uplink.value

    def layer(layers: Layers) -> Task:
        weights = _weights(layers, machine, work, {"drives": inside, "uplink": uplink})
        begun = layers.add("software", "cpu", software, [layers.before()])
        projected = layers.add(part, "gpu", dense * projections, [weights, begun])
        asked = layers.add("queries", "messages", up / machine.link.value, [projected], up)
        if not how.interval:
            asked = layers.add("writes", "drives", writing, [asked], stored * whole)
        begins = layers.add("software", "drives", commands, [asked])
        attends = layers.add("attention", "drives", attending, [begins], (1 - how.alpha) * how.sparse * work.kv_layer)
        if how.interval:
            layers.add("writes", "drives", writing, [attends], stored * whole)
        answered = layers.add("queries", "messages", down / machine.link.value, [attends], down)
        rebuilds: Task | None = None
        if how.alpha:  # X passes drives, chassis and link as one stream
            rates = {"drives": inside, "uplink": uplink, "link": machine.link.value}
            before = [layers.before(2)]
            comes = [layers.add(f"X: {on}", on, x / rate, before, x) for on, rate in rates.items()]
            rebuilds = layers.add("X: GPU", "gpu", rebuilding + rebuilt, [*comes, projected])
        return layers.add(part, "gpu", dense * (1 - projections), [answered, rebuilds])

    return _steps(work, layer, stored * whole * model.layers)


@dataclass(frozen=True)
class Offloading:
    """K and V come to where attention is computed: from `storage` (bytes per second; None: host memory), then through
    software that copies them at `copied` bytes per second; to the GPU at `gpu` bytes per second or, where that is None,
    to the CPU, which attends to `cpu` bytes per second. `software`: seconds of each layer beside that."""

    storage: float | None
    gpu: float | None = None
    cpu: float = 0.0
    copied: float = math.inf
    software: float = 0.0


def offloaded(machine: Machine, work: Work, how: Offloading) -> Step:
    """A step of FlexGen or DeepSpeed. The next layer's K and V are read when this layer's attention has them and the
    software has asked for them; the GPU multiplies meanwhile.

    Large weights are on the same storage; without one, all weights are in host memory.
    """
    size, model = work.kv_layer, work.model
    stored = work.batch * 2 * model.kv_heads * model.head_dim * HALF_BYTES
    storage = {} if how.storage is None else {"storage": how.storage}
    part = _bound_by(machine, work)

    def layer(layers: Layers) -> Task:
        weights = _weights(layers, machine, work, storage)
        begun = layers.add("software", "cpu", how.software, [layers.before()])
        after: list[Task | None] = [layers.add(part, "gpu", _dense(machine, work), [weights, begun])]
        if how.storage is not None:
            read = layers.add("K and V", "storage", size / how.storage, [begun], size)
            after.append(layers.add("K and V", "cpu", size / how.copied, [read], size))
        if how.gpu is None:
            return layers.add("CPU attention", "cpu", size / how.cpu, after, size)
        if how.storage is None:
            after.append(layers.add("K and V", "link", size / how.gpu, [begun], size))
        return layers.add("K and V", "gpu", size / machine.gpu.memory_rate.value, after)

    return _steps(work, layer, stored * model.layers if how.storage else 0.0)


def resident(machine: Machine, work: Work) -> Step:
    """A step with weights, K and V in the memory of one GPU."""
    return offloaded(machine, work, Offloading(None, gpu=math.inf))


def in_gpus(machine: Machine, work: Work, gpus: int, per_host: int = 4) -> Step:
    """A step with weights and K and V in the memory of `gpus` GPUs (vLLM): those of a host hold a part of every matrix,
    hosts hold successive layers, and as many parts of the batch as there are hosts take turns on them."""
    hosts = -(-gpus // per_host)
    model, inside = work.model, min(gpus, per_host)
    sums = work.batch * model.hidden * HALF_BYTES
    latency = hardware.NETWORK_LATENCY.value
    reduce = 2 * (2 * (inside - 1) / inside * sums / machine.link.value + hosts * latency) if inside > 1 else 0.0
    passing = (sums / hardware.ETHERNET_100G.value + hosts * latency) * (hosts - 1) / model.layers

    def layer(layers: Layers) -> Task:
        reads = layers.add("K and V", "gpu", work.kv_layer / gpus / machine.gpu.memory_rate.value, [layers.before()])
        dense = layers.add("GPU", "gpu", _dense(machine, work) / inside, [reads])
        return layers.add("network", "network", reduce + passing, [dense], 2 * sums)

    return _steps(work, layer)


def gpu_batch(machine: Machine, model: ModelShape, tokens: int, gpus: int) -> int:
    """Sequences whose K and V fit beside the weights in the memory of `gpus` GPUs."""
    room = _FITS * gpus * machine.gpu.memory.value - model.weight_bytes
    return max(0, int(room // model.kv_bytes(1, tokens)))


def host_batch(machine: Machine, model: ModelShape, tokens: int) -> int:
    """Sequences whose K and V fit beside the weights in host memory."""
    return max(0, int((machine.host.memory.value - model.weight_bytes) // model.kv_bytes(1, tokens)))
