"""A decode step of the papers' systems as discrete events over GPU, host, links and drives.

Each system adds the tasks of a layer; two steps are run and the second one is reported. Times of drives that attend are
the drive library's own, bytes and FLOP follow from the model's shape, rates from `hardware` and `calibration`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from kvdrive.perf import hardware
from kvdrive.perf.hardware import AttendingDrive, Figure, Gpu, Host, Ssd
from kvdrive.perf.shapes import HALF_BYTES, LARGE, ModelShape
from kvdrive.perf.xcache import FLOP_PER_WEIGHT
from kvdrive.study.inputs import Input
from kvdrive.study.model import drives
from kvdrive.study.model.events import Task, busy, critical, run

PAGE_BYTES = 4096


@dataclass(frozen=True)
class Machine:
    """A GPU, its host, the link between them, `ssds` SSDs, or drives that attend behind one `uplink`.

    `use`: the share of the GPU's FLOP that matrices of many rows reach. `software`: seconds of each layer that
    nothing else explains, where drives attend.
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


def _weights(layers: Layers, machine: Machine, work: Work, storage: float) -> Task | None:
    """The layer's weights, a layer ahead, unless the GPU holds them. `storage`: the rate of where large ones lie."""
    model = work.model
    if model.weight_bytes < 0.9 * machine.gpu.memory.value:
        return None
    size = _layer_weights(work)
    after = [layers.before(2)]
    if model.weight_bytes > LARGE:
        after = [layers.add("weights", "storage", size / storage, after, size)]
    return layers.add("weights", "link", size / machine.link.value, after, size)


def _layer_weights(work: Work) -> float:
    """Bytes of a layer's weights that the batch uses."""
    return HALF_BYTES * work.model.step_weights(work.batch) / work.model.layers


def _dense(machine: Machine, work: Work) -> float:
    """Seconds of a layer's matrices: 2 FLOP for each weight and token, or reading the weights once."""
    model = work.model
    flop = 2 * work.batch * (model.attention_weights + model.ffn_weights * model.active / model.experts) / model.layers
    read = _layer_weights(work) / machine.gpu.memory_rate.value
    return max(flop / (machine.gpu.flops.value * machine.use.value), read)


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
    """A step with attention in the drives, and with X-cache for a share `alpha`."""
    model, drive = work.model, machine.drive
    row = model.kv_heads * model.head_dim * HALF_BYTES
    heads = max(1.0, model.kv_heads / how.drives)
    each = drives.attention_seconds(drive, heads, work.tokens, model.head_dim, model.group)
    attending = (1 - how.alpha) * how.sparse * each * work.batch * model.kv_heads / how.drives / heads
    x = how.alpha * work.batch * work.tokens * model.hidden * HALF_BYTES
    rebuilding = FLOP_PER_WEIGHT / HALF_BYTES * x * row / HALF_BYTES / (machine.gpu.flops.value * machine.use.value)
    rebuilt = how.alpha * work.kv_layer / machine.gpu.memory_rate.value
    stored = work.batch * ((1 - how.alpha) * 2 * row + how.alpha * model.hidden * HALF_BYTES)
    row_bytes = model.head_dim * HALF_BYTES
    whole = PAGE_BYTES / (row_bytes * min(how.interval or 1, PAGE_BYTES // row_bytes))  # a page is written for its rows
    waiting = how.interval / 2 * work.batch * (row + 4 * model.heads)  # V rows and scores of tokens that wait
    up = work.batch * HALF_BYTES * (model.hidden + 2 * model.kv_heads * model.head_dim) + waiting
    down = work.batch * HALF_BYTES * model.hidden
    writing = stored * whole / (how.drives * drive.write.value)
    dense = _dense(machine, work)
    software = machine.software.value if machine.software else 0.0
    projections = model.attention_weights / (model.attention_weights + model.ffn_weights * model.active / model.experts)

    def layer(layers: Layers) -> Task:
        weights = _weights(layers, machine, work, min(how.drives * drive.rate.value, machine.uplink.value))
        begun = layers.add("software", "cpu", software, [layers.before()])
        projected = layers.add("GPU", "gpu", dense * projections, [weights, begun])
        asked = layers.add("queries", "link", up / machine.link.value, [projected], up)
        if not how.interval:
            asked = layers.add("writes", "drives", writing, [asked], stored * whole)
        attends = layers.add("attention", "drives", attending, [asked], (1 - how.alpha) * how.sparse * work.kv_layer)
        if how.interval:
            layers.add("writes", "drives", writing, [attends], stored * whole)
        answered = layers.add("queries", "link", down / machine.link.value, [attends], down)
        rebuilds: Task | None = None
        if how.alpha:
            reads = layers.add("X: drives", "drives", x / (how.drives * drive.rate.value), [layers.before(2)], x)
            comes = layers.add("X: link", "link", x / machine.uplink.value, [reads], x)
            rebuilds = layers.add("X: GPU", "gpu", rebuilding + rebuilt, [comes, projected])
        return layers.add("GPU", "gpu", dense * (1 - projections), [answered, rebuilds])

    return _steps(work, layer, stored * whole * model.layers)


@dataclass(frozen=True)
class Offloading:
    """K and V come to where attention is computed: from `storage` (bytes per second; None: host memory), to the GPU at
    `gpu` bytes per second or, where that is None, to the CPU, which attends to `cpu` bytes per second."""

    storage: float | None
    gpu: float | None = None
    cpu: float = 0.0


def offloaded(machine: Machine, work: Work, how: Offloading) -> Step:
    """A step of FlexGen or DeepSpeed. The next layer's K and V are read when this layer's attention has them."""
    size, model = work.kv_layer, work.model
    stored = work.batch * 2 * model.kv_heads * model.head_dim * HALF_BYTES

    def layer(layers: Layers) -> Task:
        weights = _weights(layers, machine, work, how.storage or machine.ssds * machine.ssd.read.value)
        projected = layers.add("GPU", "gpu", _dense(machine, work), [weights, layers.before()])
        after: list[Task | None] = [projected]
        if how.storage is not None:
            after.append(layers.add("K and V", "storage", size / how.storage, [layers.before()], size))
        if how.gpu is None:
            return layers.add("CPU attention", "cpu", size / how.cpu, after, size)
        if how.storage is None:
            after.append(layers.add("K and V", "link", size / how.gpu, [layers.before()], size))
        return layers.add("GPU", "gpu", size / machine.gpu.memory_rate.value, after)

    return _steps(work, layer, stored * model.layers if how.storage else 0.0)


def in_gpus(machine: Machine, work: Work, gpus: int, per_host: int = 4) -> Step:
    """A step with weights and K and V in the memory of `gpus` GPUs (vLLM): each holds a part of every matrix."""
    hosts = -(-gpus // per_host)
    model = work.model
    sums = work.batch * model.hidden * HALF_BYTES
    rate = hardware.ETHERNET_100G.value if hosts > 1 else machine.link.value
    latency = hardware.NETWORK_LATENCY.value if hosts > 1 else 0.0
    reduce = 2 * (2 * (gpus - 1) / gpus * sums / rate + latency) if gpus > 1 else 0.0

    def layer(layers: Layers) -> Task:
        reads = layers.add("K and V", "gpu", work.kv_layer / gpus / machine.gpu.memory_rate.value, [layers.before()])
        dense = layers.add("GPU", "gpu", _dense(machine, work) / gpus, [reads])
        return layers.add("network", "network", reduce, [dense], 2 * sums)

    return _steps(work, layer)


def gpu_batch(machine: Machine, model: ModelShape, tokens: int, gpus: int) -> int:
    """Sequences whose K and V fit beside the weights in 90 % of the memory of `gpus` GPUs."""
    room = 0.9 * gpus * machine.gpu.memory.value - model.weight_bytes
    return max(0, int(room // model.kv_bytes(1, tokens)))


def host_batch(machine: Machine, model: ModelShape, tokens: int) -> int:
    """Sequences whose K and V fit beside the weights in host memory."""
    return max(0, int((machine.host.memory.value - model.weight_bytes) // model.kv_bytes(1, tokens)))
