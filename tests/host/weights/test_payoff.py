"""When reading experts ahead pays."""

from kvdrive.weights.payoff import Pace, Payoff


def seen(missing, used, computing, layers=40):
    payoff = Payoff(in_flight=0.5)
    for _ in range(layers):
        payoff.add(missing, used, computing)
    return payoff


def test_right_guesses_pay_and_wrong_ones_do_not():
    assert seen(6, 4, 1000).pays(1000)
    assert not seen(3, 0, 1000).pays(1000)
    assert not seen(6, 1, 1000).pays(1000)


def test_more_right_guesses_never_turn_it_off():
    for missing in (1, 3, 8):
        for computing in (100, 1000, 10_000):
            paying = [seen(missing, used, computing).pays(1000) for used in range(missing + 1)]
            assert paying == sorted(paying)
            assert paying[-1]


def test_a_layer_that_takes_no_time_hides_no_read():
    assert not seen(4, 3, 0).pays(1000)
    assert not seen(8, 3, 100).pays(1000)  # 3 of 8 are right, but a tenth of a read is hidden
    assert seen(8, 3, 10_000).pays(1000)


def test_nothing_is_decided_without_guesses():
    assert not seen(4, 4, 1000, layers=15).pays(1000)
    assert seen(4, 4, 1000, layers=16).pays(1000)
    assert not seen(0, 0, 1000).pays(1000)
    assert seen(0, 0, 1000).precision is None


def test_it_follows_a_change():
    payoff = seen(4, 4, 1000, layers=500)
    for _ in range(200):
        payoff.add(4, 0, 1000)
    assert not payoff.pays(1000)
    for _ in range(200):
        payoff.add(4, 4, 1000)
    assert payoff.pays(1000)


class Reads:
    """A file whose disk reads 4096 bytes in 100 ns."""

    ahead_in_flight_bytes = 2048
    bytes = 0

    def counters(self):
        return {"bytes": self.bytes, "busy_ns": self.bytes * 100 // 4096}


class Held(set):
    """Slots with these experts."""

    stride = 4096


def test_the_pace_counts_what_was_missing_and_used_and_the_time_between():
    times = iter([0, 150] * 40)
    reads, held = Reads(), Held({(1, 5)})
    pace = Pace(held, reads, lambda: next(times))
    reads.bytes = 40960
    for number in range(20):
        assert pace.foresees([(1, 2), (1, 5), (1, 7)]) == (number >= 16)
        pace.computes()
        pace.routed([(1, 2), (1, 5), (1, 9)])
    assert pace.payoff.precision == 0.5
    assert pace.payoff.in_flight == 0.5
    pace.routed([(0, 1)])  # a layer without a guess
    assert pace.payoff.layers == 20
