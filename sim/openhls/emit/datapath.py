# SPDX-License-Identifier: Apache-2.0
"""The pipeline of a block or of an innermost loop.

Step 0 starts an iteration when everything that it may have to wait for is there: the words it reads in step 0 and room
for the words it may write. From then on it moves a step every cycle; only a late read can hold it, and then the steps
before the read with it, never those behind. There is no enable that spans the pipeline.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from openhls.analysis.exclusive import exclusive
from openhls.analysis.storage import Kind
from openhls.emit.arrays import ArrayEnd
from openhls.emit.fifos import OwnFifos
from openhls.emit.netlist import (
    ONE,
    ZERO,
    Check,
    Literal,
    Module,
    Net,
    NetlistError,
    Term,
    all_of,
    any_of,
    literal,
    negate,
    operate,
)
from openhls.emit.stream_ends import Claim, InputEnd, OutputEnd, Push
from openhls.errors import Unsupported
from openhls.ir import Const, Opcode, Operand, Operation
from openhls.schedule.dependence import Body
from openhls.schedule.schedule import Schedule
from openhls.schedule.target import Target


class Held(dict[str, Term]):
    """Values of finished regions. What a value costs (a register) is spent when it is first asked for."""

    def __init__(self) -> None:
        super().__init__()
        self.makers: dict[str, Callable[[], Term]] = {}

    def later(self, name: str, maker: Callable[[], Term]) -> None:
        self.makers[name] = maker

    def __missing__(self, name: str) -> Term:
        self[name] = self.makers[name]()
        return self[name]


@dataclass
class Surroundings:
    """What a region finds in its process: the module, values of earlier regions, and the ends of streams and arrays.

    `start` is the pulse that starts the process. `seconds` are the second buffers of the arrays that have two.
    """

    module: Module
    held: Held
    inputs: dict[str, InputEnd]
    outputs: dict[str, OutputEnd]
    arrays: dict[str, ArrayEnd]
    fifos: OwnFifos
    target: Target
    start: Term = ZERO
    seconds: dict[str, ArrayEnd] = field(default_factory=dict)


@dataclass
class Pipeline:
    """The hardware of a scheduled block. Use: `begin`, then `launch_gate`, `launch_with`, and `values`."""

    name: str
    around: Surroundings
    body: Body
    schedule: Schedule
    base: dict[str, Term] = field(default_factory=dict)  # values at the step they are ready
    delayed: dict[tuple[str, int], Net] = field(default_factory=dict)
    gates: list[Term] = field(default_factory=list)

    def begin(self) -> None:
        """Declare the control nets; carried values must be in `base` by then."""
        module, depth = self.around.module, self.schedule.depth
        self.launch = module.net(f"{self.name}_launch", 1)
        self.valid: list[Net] = [self.launch] + [module.net(f"{self.name}_valid_{k}", 1) for k in range(1, depth)]
        late = [step for op, step in self.accesses() if op.opcode is Opcode.READ and step > 0]
        self.last_stall = max(late, default=-1)
        self.moves: list[Term] = [
            module.net(f"{self.name}_moves_{k}", 1) if k <= self.last_stall else ONE for k in range(depth)
        ]
        self.stalls: dict[int, list[Term]] = {step: [] for step in late}
        self.completes: list[Term] = [self.launch] + [all_of([self.valid[k], self.moves[k]]) for k in range(1, depth)]
        for operation, step in self.accesses():
            self.emit(operation, step)
        for stream, words in self.blocking_writes().items():
            self.gates.append(self.around.outputs[stream].room_for(module, words))
        self.moving()

    def accesses(self) -> list[tuple[Operation, int]]:
        return list(zip(self.body.operations, self.schedule.steps, strict=True))

    def blocking_writes(self) -> dict[str, int]:
        """Words that an iteration may write, by stream; not those that take their place when FULL is asked."""
        polled = {operation.target for operation in self.body.operations if operation.opcode is Opcode.FULL}
        return {stream: words for stream, words in self.writes().items() if stream not in polled}

    def writes(self) -> dict[str, int]:
        """Words that an iteration may write, by stream."""
        count: dict[str, int] = {}
        for operation in self.body.operations:
            if operation.opcode is Opcode.WRITE:
                count[operation.target] = count.get(operation.target, 0) + 1
        return count

    def moving(self) -> None:
        """Which steps move: those behind the last late read always, others when no late read from there on waits."""
        module = self.around.module
        waiting: list[Term] = []
        for step in range(self.schedule.depth - 1, -1, -1):
            waiting += self.stalls.get(step, [])
            if step <= self.last_stall:
                move = self.moves[step]
                assert isinstance(move, Net)
                module.assign(move, negate(any_of(list(waiting))))
        if self.last_stall >= 0:
            self.gates.append(self.moves[0])
        for step in range(1, self.schedule.depth):
            module.register(self.valid[step], self.completes[step - 1], self.moves[step], reset=0)

    def launch_with(self, wanted: Term) -> None:
        """Start an iteration in every cycle with `wanted` in which nothing is missing."""
        self.around.module.assign(self.launch, all_of([wanted, *self.gates]))
        schedule = self.schedule
        for stream, words in self.blocking_writes().items():
            steps = [s for op, s in self.accesses() if op.opcode is Opcode.WRITE and op.target == stream]
            interval = schedule.interval or schedule.depth
            together = -(-(max(steps) + 2) // interval) if schedule.overlapped else 2
            self.around.outputs[stream].claims.append(Claim(self.launch, words, words * together))

    @property
    def busy_behind(self) -> list[Term]:
        """Valid bits of the steps between the first and the last one."""
        return list(self.valid[1:-1])

    # ---- values ----

    def value(self, operand: Operand, step: int) -> Term:
        """An operand as it is in step `step`."""
        if isinstance(operand, Const):
            return literal(operand.width, operand.bits)
        ready = self.schedule.ready.get(operand.name)
        if ready is None:
            return self.around.held[operand.name]
        if step < ready.step:
            raise NetlistError(f"{self.name}: {operand.name} is used in step {step}, ready in {ready.step}")
        return self.at(operand.name, step)

    def at(self, name: str, step: int) -> Term:
        ready = self.schedule.ready[name].step
        if step == ready or isinstance(self.base[name], Literal):
            return self.base[name]
        if not self.schedule.overlapped:
            if step <= self.schedule.commit.get(name, -1):
                return self.base[name]
            return self.kept(name)
        if (name, step) not in self.delayed:
            source = self.at(name, step - 1)
            net = self.around.module.net(f"{name}_step{step}", source.width)
            self.around.module.register(net, source, self.moves[step])
            self.delayed[name, step] = net
        return self.delayed[name, step]

    def kept(self, name: str) -> Net:
        """A register that has the value once its step is complete, until the next iteration."""
        if (name, -1) not in self.delayed:
            source = self.base[name]
            net = self.around.module.net(f"{name}_kept", source.width)
            self.around.module.register(net, source, self.completes[self.schedule.ready[name].step])
            self.delayed[name, -1] = net
        return self.delayed[name, -1]

    def final(self, operand: Operand) -> Term:
        """An operand after the region: a value of the last iteration, or one from before."""
        if isinstance(operand, Const):
            return literal(operand.width, operand.bits)
        if operand.name not in self.schedule.ready:
            return self.around.held[operand.name]
        base = self.base[operand.name]
        return base if isinstance(base, Literal) else self.kept(operand.name)

    # ---- operations ----

    def emit(self, operation: Operation, step: int) -> None:
        match operation.opcode:
            case Opcode.READ:
                self.read(operation, step)
            case Opcode.WRITE:
                self.write(operation, step)
            case Opcode.LOAD:
                self.load(operation, step)
            case Opcode.STORE:
                self.store(operation, step)
            case Opcode.EMPTY:
                self.poll(operation, negate(self.around.inputs[operation.target].valid))
            case Opcode.FULL:
                self.reserve(operation, step)
            case _:
                self.compute(operation, step)

    def compute(self, operation: Operation, step: int) -> None:
        result = operation.result
        assert result is not None
        operands = [self.value(operand, step) for operand in operation.operands]
        ready = self.schedule.ready[result.name].step
        if operation.opcode is Opcode.MUL and self.around.target.around_dsp and ready > step + 1:
            step += 1
            operands = [self.registered(operand, f"{result.name}_of", step) for operand in operands]
        term = expression(operation.opcode, operands, result.width, operation.low)
        if isinstance(term, Literal):
            self.base[result.name] = term
            return
        net = self.around.module.wire(result.name, term, operation.location)
        for stage in range(step + 1, ready + 1):
            following = self.around.module.net(f"{result.name}_stage{stage - step}", net.width)
            net = self.around.module.register(following, net, self.moves[stage])
        self.base[result.name] = net

    def registered(self, term: Term, name: str, step: int) -> Term:
        """What `term` was a step before `step`."""
        if isinstance(term, Literal):
            return term
        return self.around.module.register(self.around.module.net(name, term.width), term, self.moves[step])

    def read(self, operation: Operation, step: int) -> None:
        end = self.around.inputs[operation.target]
        predicate = self.value(operation.predicate, step)
        missing = all_of([predicate, negate(end.valid)])
        if step == 0:
            self.gates.append(negate(missing))
        else:
            self.stalls[step].append(all_of([self.valid[step], missing]))
        end.pops.append(all_of([self.completes[step], predicate]))
        if operation.result is not None:
            self.base[operation.result.name] = self.around.module.wire(
                operation.result.name, end.data, operation.location
            )

    def poll(self, operation: Operation, term: Term) -> None:
        assert operation.result is not None
        self.base[operation.result.name] = self.around.module.wire(operation.result.name, term, operation.location)

    def reserve(self, operation: Operation, step: int) -> None:
        """FULL takes the place of a word if there is one; the write that it allows uses it or gives it back."""
        end = self.around.outputs[operation.target]
        members = [op for op in self.body.operations if op.target == operation.target]
        writes = [op for op in members if op.opcode is Opcode.WRITE]
        assert operation.result is not None
        if (
            len(members) - len(writes) > 1
            or len(writes) > 1
            or not all(exclusive(write.predicate, operation.result, self.body.definitions) for write in writes)
        ):
            raise Unsupported(
                operation.location,
                f"full() of stream {operation.target} is not followed by one write that depends on it",
                "use write_nb, once in a loop",
            )
        room = end.room_for(self.around.module, 1)
        granted = all_of([room, self.value(operation.predicate, step)])
        self.poll(operation, negate(granted))
        if writes:
            last = max(s for op, s in self.accesses() if op.target == operation.target)
            end.claims.append(Claim(all_of([self.completes[step], granted]), 1, last - step + 2))

    def write(self, operation: Operation, step: int) -> None:
        predicate = self.value(operation.predicate, step)
        polls = (op.result for op in self.body.operations if op.opcode is Opcode.FULL and op.target == operation.target)
        full = next(polls, None)
        granted = ONE if full is None else negate(self.value(full, step))
        push = Push(self.completes[step], predicate, self.value(operation.operands[0], step), granted)
        self.around.outputs[operation.target].pushes.append(push)

    def bank(self, operation: Operation) -> int | None:
        storage = self.around.arrays[operation.target].storage
        return storage.bank_of(operation, self.body.definitions)

    def load(self, operation: Operation, step: int) -> None:
        assert operation.result is not None
        name, module = operation.result.name, self.around.module
        end = self.around.arrays[operation.target]
        index = self.value(operation.operands[0], step)
        self.check_index(operation, index, step)
        term = end.load(index, self.completes[step], self.bank(operation), name, operation.port)
        ready = self.schedule.ready[name].step
        net = module.wire(name, term, operation.location)
        if end.storage.kind is not Kind.RAM and ready > step:
            net = module.register(module.net(f"{name}_stage1", net.width), net, self.moves[ready])
        self.base[name] = net

    def check_index(self, operation: Operation, index: Term, step: int) -> None:
        """Lets a simulation stop at an index beyond the array."""
        storage = self.around.arrays[operation.target].storage
        length = storage.array.length
        inside: Term = ONE
        if not isinstance(index, Literal) and not length >> index.width:
            inside = operate(Opcode.ULT, index, literal(index.width, length))
        message = f"{operation.location}: an index beyond {operation.target}, which has {length} elements"
        if operation.row is not None and not isinstance(index, Literal):
            first = operation.row * storage.bank_length
            past = operate(Opcode.ULT, index, literal(index.width, first))
            last = operate(Opcode.ULE, index, literal(index.width, first + storage.words - 1))
            inside = all_of([negate(past), last])
            message = f"{operation.location}: an index beyond row {operation.row} of {operation.target}"
        elif storage.array.block and not isinstance(index, Literal):
            bits = (storage.bank_length - 1).bit_length()
            place = operate(Opcode.EXTRACT, index, width=bits) if index.width > bits else index
            if index.width >= bits:
                inside = all_of([inside, operate(Opcode.ULT, place, literal(bits, storage.words))])
            message = f"{operation.location}: an index beyond a row of {operation.target}, which has {storage.words}"
        if inside != ONE:
            accessed = all_of([self.completes[step], self.value(operation.predicate, step)])
            self.around.module.checks.append(Check(any_of([negate(accessed), inside]), message))

    def store(self, operation: Operation, step: int) -> None:
        end = self.around.arrays[operation.target]
        index, data = (self.value(operand, step) for operand in operation.operands)
        enable = all_of([self.completes[step], self.value(operation.predicate, step)])
        self.check_index(operation, index, step)
        end.store(index, data, enable, self.bank(operation), f"{operation.target}_store", operation.port)


def expression(opcode: Opcode, operands: list[Term], width: int, low: int) -> Term:
    """`operate`, with the parts and extensions of constants worked out."""
    first = operands[0]
    if opcode is Opcode.EXTRACT and (isinstance(first, Literal) or first.width == width):
        return literal(width, first.bits >> low) if isinstance(first, Literal) else first
    if opcode in (Opcode.ZEXT, Opcode.SEXT) and (isinstance(first, Literal) or first.width == width):
        if not isinstance(first, Literal):
            return first
        negative = opcode is Opcode.SEXT and first.bits >> (first.width - 1)
        return literal(width, first.bits - (1 << first.width) if negative else first.bits)
    if opcode is Opcode.CONCAT and len(operands) == 1:
        return first
    return operate(opcode, *operands, width=width, low=low)
