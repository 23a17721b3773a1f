"""The discrete-event model: what a step takes follows from its tasks, and every number has a source."""

import dataclasses
import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvdrive.perf import hardware, shapes
from kvdrive.study.figures_page import INPUTS
from kvdrive.study.hilos import inputs as hilos_inputs
from kvdrive.study.hilos import machine as machine_of
from kvdrive.study.hilos.machine import HILOS
from kvdrive.study.inputs import Input
from kvdrive.study.instinfer import inputs as instinfer_inputs
from kvdrive.study.instinfer import machine, stated
from kvdrive.study.instinfer.machine import INSTINFER
from kvdrive.study.model import costs, decode, drives
from kvdrive.study.model.decode import Attending, Work
from kvdrive.study.model.events import Task, busy, critical, run

OPT = Work(shapes.OPT_66B, 16, 32768)


def test_tasks_wait_for_tasks_and_resources():
    a = Task("load", "link", 2)
    b = Task("load", "link", 3)
    c = Task("work", "gpu", 4, [a])
    d = Task("work", "gpu", 1, [a, b])
    assert run([a, b, c, d]) == 7
    assert [(task.begin, task.end) for task in (a, b, c, d)] == [(0, 2), (2, 5), (2, 6), (6, 7)]
    assert critical([a, b, c, d]) == {"load": 2, "work": 5}
    assert critical([a, b, c, d], since=5) == {"work": 2}
    assert busy([a, b, c, d], since=1) == {"link": 4, "gpu": 5}


def test_a_circle_is_an_error():
    a = Task("a", "gpu", 1)
    b = Task("b", "gpu", 1, [a])
    a.after = [b]
    with pytest.raises(ValueError, match="2 tasks wait for each other"):
        run([a, b])


@given(
    st.lists(
        st.tuples(st.sampled_from("xyz"), st.integers(1, 9), st.sets(st.integers(0, 11), max_size=3)),
        min_size=1,
        max_size=12,
    )
)
def test_no_resource_does_two_tasks_at_once_and_parts_add_up(drawn):
    tasks = []
    for number, (on, seconds, after) in enumerate(drawn):
        tasks.append(Task(on, on, seconds, [tasks[other] for other in after if other < number]))
    end = run(tasks)
    assert sum(critical(tasks).values()) == pytest.approx(end)
    for on in "xyz":
        spans = sorted((task.begin, task.end) for task in tasks if task.on == on)
        assert all(first[1] <= second[0] for first, second in itertools.pairwise(spans))
    assert all(task.begin >= other.end for task in tasks for other in task.after)


def test_the_drive_library_says_how_long_attention_takes():
    seconds = drives.attention_seconds(hardware.SMARTSSD, 8, 32768, 128, 1)
    assert 4 * 8 * 32768 * 128 / seconds == pytest.approx(2.98e9, rel=0.005)  # device time is deterministic
    assert 4 * 40 * 1536 * 128 / drives.attention_seconds(hardware.INSTCSD, 40, 1536, 128, 1) == pytest.approx(
        10.90e9, rel=0.005
    )
    between = [drives.attention_seconds(hardware.SMARTSSD, heads, 4096, 128, 1) for heads in (4, 4.5, 5)]
    assert between[1] == pytest.approx((between[0] + between[2]) / 2)


def test_sparse_reads_pay_with_long_contexts_only():
    short, long = (drives.sparse_share("instcsd", 8, tokens, 128, 8, in_runs=True) for tokens in (1024, 8192))
    assert short > 1 > long


def test_more_drives_attend_faster():
    times = [decode.attended(HILOS, OPT, Attending(count)).seconds for count in (1, 4, 16)]
    assert times[0] / times[1] == pytest.approx(4, rel=0.05)
    assert times == sorted(times, reverse=True)


def test_parts_add_up_and_bytes_are_those_of_the_shapes():
    step = decode.attended(HILOS, OPT, Attending(16, alpha=0.5))
    assert sum(step.parts.values()) == pytest.approx(step.seconds)
    kv, x = OPT.model.kv_bytes(16, 32768), OPT.model.x_bytes_per_token * 16 * 32768
    assert step.moved["drives"] == pytest.approx(0.5 * kv + 0.5 * x + step.written)
    assert step.written == pytest.approx(0.75 * OPT.model.kv_bytes(16, 1))  # alpha / 2 fewer


def test_writing_each_token_writes_whole_pages():
    once, often = (decode.attended(HILOS, OPT, Attending(16, interval=c)).written for c in (16, 4))
    assert often == pytest.approx(4 * once)


def test_x_cache_costs_more_than_it_saves_with_grouped_queries():
    work = Work(shapes.LLAMA_70B, 16, 32768)
    without, with_x = (decode.attended(HILOS, work, Attending(16, alpha)).seconds for alpha in (0, 0.5))
    assert with_x > without


def test_a_batch_that_does_not_fit_makes_deepspeed_swap():
    small, large = (machine.deepspeed(Work(shapes.OPT_13B, batch, 1536)) for batch in (16, 32))
    assert small.throughput / large.throughput == pytest.approx(stated.DEEPSPEED_FALL.value, rel=0.02)


@pytest.mark.parametrize("system", [machine.flexgen, machine.deepspeed])
def test_a_baseline_falls_where_k_and_v_leave_a_memory(system):
    """It gains with the batch while they stay there."""
    works = [Work(shapes.OPT_13B, batch, 1536) for batch in (4, 8, 16, 32, 64)]
    places = [0 if machine.in_gpu(work) else 1 if machine.in_host(work) else 2 for work in works]
    assert places == [0, 0, 1, 1, 2]
    four, eight, sixteen, *_, most = (system(work).throughput for work in works)
    assert eight > 1.5 * four
    assert eight > 10 * sixteen > 100 * most / 1.5


def test_weights_take_most_of_a_step_whose_k_and_v_are_in_the_gpu():
    steps = {batch: machine.flexgen(Work(shapes.OPT_13B, batch, 1536)) for batch in (4, 8, 64)}
    assert steps[4].share("weights") > steps[8].share("weights") > 0.5
    assert steps[64].share("K and V") == pytest.approx(stated.FLEXGEN_SHARE.value / 100, abs=1e-3)


def test_a_drives_commands_are_those_of_its_heads_and_the_hosts_software_stays():
    one, two = (decode.attended(INSTINFER, Work(shapes.OPT_13B, 64, 1536), Attending(count)) for count in (1, 2))
    layers, command = shapes.OPT_13B.layers, instinfer_inputs.INSTINFER_COMMAND.value
    saved = one.parts["software"] - two.parts["software"]
    assert saved == pytest.approx(20 * layers * command)
    assert two.parts["software"] > layers * instinfer_inputs.FLEXGEN_LAYER.value


def test_queries_do_not_wait_for_the_weights_of_the_next_layer():
    """A step lasts as long as the longer of attention and the weights' way to the GPU."""
    step = decode.attended(HILOS, OPT, Attending(16))
    assert step.busy["link"] > 0.1 * step.seconds
    assert step.seconds == pytest.approx(step.busy["drives"], rel=0.02)


def test_x_cache_is_bounded_by_the_lanes_that_drives_share():
    narrow = dataclasses.replace(HILOS, uplink=hardware.Figure(1e9, "assumed: slow"))
    step = decode.attended(narrow, OPT, Attending(16, 0.5))
    x = 0.5 * OPT.model.x_bytes_per_token * 16 * 32768
    assert step.seconds == pytest.approx(x / 1e9, rel=0.05)
    assert step.moved["uplink"] == pytest.approx(x)


def test_rows_that_wait_for_a_page_are_written_in_less_time():
    once = drives.append_seconds(hardware.SMARTSSD, 8, 16, 128)
    single = drives.append_seconds(hardware.SMARTSSD, 8, 1, 128)
    assert 0 < once < 4 * single


def test_no_paper_has_more_than_three_fitted_costs_of_software():
    named = {"hilos": vars(hilos_inputs), "instinfer": vars(instinfer_inputs)}
    found = {paper: {name for name, of in names.items() if isinstance(of, Input)} for paper, names in named.items()}
    assert found["hilos"] == {"FLEXGEN_COPY"}
    assert {"FLEXGEN_RATE", "FLEXGEN_LAYER", "INSTINFER_COMMAND"} < found["instinfer"]
    assert all(set(found[paper]) <= set(INPUTS) for paper in found)


def test_what_is_fitted_gives_its_own_claim():
    copied, near = hilos_inputs.FLEXGEN_COPY.value, Attending(8, interval=0)
    works = [Work(model, 16, tokens) for model in hilos_inputs.OPTS for tokens in hilos_inputs.LONG]
    gains = [decode.attended(HILOS, w, near).throughput / machine_of.flexgen(w, copied).throughput for w in works]
    assert max(gains) == pytest.approx(3.39, rel=0.002)


def test_attention_on_the_cpu_passes_memory_several_times():
    """It takes less of memory's rate than reading K and V once would, and bounds FlexGen from host memory."""
    assert HILOS.host.memory_rate.value > 5 * machine_of.CPU_ATTENTION
    step = machine_of.flexgen_dram(Work(shapes.OPT_66B, 2, 65536))
    assert step.seconds == pytest.approx(step.work.model.kv_bytes(2, 65536) / machine_of.CPU_ATTENTION, rel=0.05)
    assert machine_of.flexgen_dram(Work(shapes.OPT_175B, 16, 131072)) is None


def test_experts_that_the_batch_chooses_are_loaded():
    few, many = (
        decode.attended(HILOS, Work(shapes.GLAM_143B, batch, 4096), Attending(16)).moved["link"] for batch in (1, 64)
    )
    assert many > 10 * few


def test_gpus_hold_what_fits():
    eight = decode.gpu_batch(HILOS, shapes.OPT_66B, 32768, 16)
    assert eight * shapes.OPT_66B.kv_bytes(1, 32768) + shapes.OPT_66B.weight_bytes < 0.9 * 16 * 40e9
    assert decode.gpu_batch(HILOS, shapes.OPT_66B, 32768, 1) == 0
    one, two = (decode.in_gpus(HILOS, Work(shapes.OPT_13B, 4, 4096), gpus).seconds for gpus in (1, 2))
    assert one / 2 < two < one


def test_costs_follow_from_prices_and_powers():
    step = decode.attended(HILOS, OPT, Attending(16))
    assert sum(costs.watts_by_part(HILOS, 16).values()) == costs.watts(HILOS, 16)
    assert costs.price(HILOS, 16) == 15000 + 7000 + 16 * 2400 + 10000
    assert costs.joules_per_token(HILOS, step, 16) * step.throughput == pytest.approx(costs.watts(HILOS, 16))
    assert costs.years(HILOS, step, 16) == pytest.approx(
        16 * 7.008e15 / (OPT.model.kv_bytes(16, 1) / step.seconds) / (365 * 86400)
    )


def figures(of):
    if isinstance(of, hardware.Figure):
        yield of
    elif dataclasses.is_dataclass(of) and not isinstance(of, type):
        for field in dataclasses.fields(of):
            yield from figures(getattr(of, field.name))


def test_every_number_of_a_preset_has_a_source():
    presets = [value for name, value in vars(hardware).items() if not name.startswith("_")]
    found = [figure for preset in presets for figure in figures(preset)]
    assert len(found) > 60
    for figure in found:
        kind, colon, what = figure.source.partition(": ")
        assert kind in hardware.SOURCES, figure
        assert colon, figure
        assert what, figure
    for kind in (hardware.Gpu, hardware.Host, hardware.Ssd, hardware.AttendingDrive):
        numbers = [field for field in dataclasses.fields(kind) if field.name not in ("name", "preset")]
        assert all(field.type == "Figure" for field in numbers)
    assert {"A100 40 GB", "A100 80 GB", "H100 80 GB", "RTX A6000", "RTX 4090", "M1 Max"} == set(hardware.GPUS)
    assert {"PM9A3", "980 PRO", "SmartSSD", "InstCSD", "ISP-CSD"} == {*hardware.SSDS, *hardware.DRIVES}
    assert len(hardware.HOSTS) == 2
    bare = [name for name, value in vars(hardware).items() if isinstance(value, int | float)]
    assert bare == []


def test_every_calibrated_input_names_a_claim():
    from kvdrive.study.claims_page import PAPERS

    keys = {claim.key for claims in PAPERS.values() for claim in claims}
    for calibrated in INPUTS.values():
        assert calibrated.claims
        assert set(calibrated.claims) <= keys
        assert calibrated.value > 0
