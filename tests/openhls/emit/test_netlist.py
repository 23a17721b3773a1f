# SPDX-License-Identifier: Apache-2.0
import pytest

from openhls.emit.netlist import (
    Literal,
    Module,
    Net,
    NetlistError,
    add,
    all_of,
    any_of,
    choose,
    choose_first,
    negate,
    operate,
)
from openhls.emit.verilog import module_text
from openhls.ir import Opcode

A, B = Net("a", 8), Net("b", 8)


def module_with_input() -> tuple[Module, Net]:
    module = Module("unit")
    return module, module.input("a", 8)


def test_a_second_driver_is_refused() -> None:
    module, a = module_with_input()
    net = module.wire("x", a)
    with pytest.raises(NetlistError, match="x has two drivers"):
        module.register(net, a)


def test_an_input_port_cannot_be_driven() -> None:
    module, a = module_with_input()
    with pytest.raises(NetlistError, match="a has two drivers"):
        module.assign(a, Literal(8, 0))


def test_an_instance_is_a_driver() -> None:
    module, a = module_with_input()
    net = module.wire("x", a)
    with pytest.raises(NetlistError, match="x has two drivers"):
        module.instance("cell", "one", {"in": a}, {"out": net})


def test_a_net_without_driver_is_refused() -> None:
    module, a = module_with_input()
    module.wire("x", add(a, module.net("loose", 8)))
    with pytest.raises(NetlistError, match="loose has no driver"):
        module_text(module)


def test_an_output_without_driver_is_refused() -> None:
    module, _ = module_with_input()
    module.output("y", 3)
    with pytest.raises(NetlistError, match="y has no driver"):
        module_text(module)


def test_a_combinational_loop_is_refused_and_named() -> None:
    module, a = module_with_input()
    first = module.net("first", 8)
    second = module.wire("second", add(first, a))
    module.assign(first, add(second, a))
    with pytest.raises(NetlistError, match=r"loop .*first.*second|loop .*second.*first"):
        module_text(module)


def test_a_register_breaks_a_loop() -> None:
    module, a = module_with_input()
    state = module.net("state", 8)
    module.register(state, add(state, a))
    assert "state <= (state + a);" in module_text(module)


@pytest.mark.parametrize(
    ("opcode", "arguments", "width"),
    [
        (Opcode.ADD, (A, Net("c", 7)), 0),
        (Opcode.EQ, (A, Net("c", 9)), 0),
        (Opcode.SELECT, (A, A, B), 0),
        (Opcode.SELECT, (Net("c", 1), A, Net("d", 9)), 0),
        (Opcode.ZEXT, (A,), 8),
        (Opcode.EXTRACT, (A,), 9),
        (Opcode.READ, (), 1),
    ],
)
def test_widths_that_do_not_fit_are_refused(opcode: Opcode, arguments: tuple, width: int) -> None:
    with pytest.raises((NetlistError, IndexError)):
        operate(opcode, *arguments, width=width)


def test_a_value_of_another_width_is_refused() -> None:
    module, a = module_with_input()
    with pytest.raises(NetlistError, match="x has 9 bits, its value 8"):
        module.assign(module.net("x", 9), a)


def test_names_are_legal_and_unique() -> None:
    module, a = module_with_input()
    names = [module.wire(name, a).name for name in ("a", "a", "wire", "1st", "x.y", "x_y", "rst", "clk")]
    assert names == ["a_2", "a_3", "n_wire", "n_1st", "x_y", "x_y_2", "rst_2", "clk_2"]


def test_conditions_fold() -> None:
    bit, one, zero = Net("bit", 1), Literal(1, 1), Literal(1, 0)
    assert all_of([one, bit, one]) == bit
    assert all_of([bit, zero]) == zero
    assert any_of([zero, bit, bit]) == bit
    assert any_of([bit, one]) == one
    assert all_of([]) == one
    assert any_of([]) == zero
    assert negate(negate(bit)) == bit
    assert choose(zero, A, B) == B
    assert choose_first([(one, A), (bit, B)]) == A
