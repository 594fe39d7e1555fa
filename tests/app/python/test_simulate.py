"""Predictions against closed forms. F, B: times of a stage; I, W: the parts of a split backward; R ranks, M microbatches, c latency."""

import _thread
import threading

import pipewright as pw
import pytest

MS = 1_000_000
SHAPES = [(1, 1), (2, 2), (2, 6), (4, 8), (8, 16)]


def simulated(name, ranks, microbatches, **costs):
    return pw.simulate(pw.schedule(name, ranks=ranks, microbatches=microbatches), **costs)


@pytest.mark.parametrize("name", ["gpipe", "1f1b"])
@pytest.mark.parametrize("r, m", SHAPES)
def test_gpipe_and_1f1b_idle_for_r_minus_1_microbatches(name, r, m):
    p = simulated(name, r, m, forward="1ms", backward="2ms")
    assert p.makespan_ns == (m + r - 1) * 3 * MS
    assert p.bubble == pytest.approx((r - 1) / (m + r - 1))
    assert p.makespan_ns >= p.lower_bound_ns > 0


@pytest.mark.parametrize("r, m", [(2, 4), (4, 8), (3, 9)])
def test_1f1b_with_latency(r, m):
    c = 50_000
    p = simulated("1f1b", r, m, forward="1ms", backward="2ms", latency="50us")
    # (M + R − 1)(F + B) + 2(R − 1)cM/R + 2(R − 2)c where R divides M
    assert p.makespan_ns == (m + r - 1) * 3 * MS + 2 * (r - 1) * c * m // r + 2 * (r - 2) * c


@pytest.mark.parametrize("r, m", [(2, 4), (4, 8), (4, 16)])
def test_interleaved_divides_the_bubble_by_the_chunks(r, m):
    v = 2
    p = simulated("interleaved-1f1b", r, m, forward="1ms", backward="2ms")
    assert p.makespan_ns == m * v * 3 * MS + (r - 1) * 3 * MS  # (R − 1)(F + B)/V of a rank's whole share, V chunk times


@pytest.mark.parametrize("f, i, w", [(3, 3, 2), (2, 2, 2), (5, 4, 1)])
@pytest.mark.parametrize("r, m", [(2, 4), (4, 8)])
def test_zb_h1_fills_the_bubble_with_weights(r, m, f, i, w):
    p = simulated("zb-h1", r, m, forward=f * MS, input=i * MS, weight=w * MS)
    assert p.makespan_ns == (m * (f + i + w) + (r - 1) * (f + i - w)) * MS


@pytest.mark.parametrize("r, m", [(2, 4), (4, 8), (4, 12)])
def test_zbv_has_no_bubble_in_the_window(r, m):
    p = simulated("zbv", r, m, forward="1ms", input="1ms", weight="1ms")
    assert p.window_ns == 6 * m * MS
    assert p.makespan_ns == (6 * m + r - 1) * MS


def test_the_line_of_the_issue():
    # 51 units, of which each rank works 48
    assert pw.simulate(pw.schedule("zbv", ranks=4, microbatches=8), forward="1ms").bubble == pytest.approx(3 / 51)


@pytest.mark.parametrize("name, live", [("gpipe", [8, 8, 8, 8]), ("1f1b", [4, 3, 2, 1]), ("zbv", [8, 8, 8, 8])])
def test_live_microbatches(name, live):
    assert [rank.peak_live for rank in simulated(name, 4, 8).by_rank] == live


def test_durations_are_texts_or_nanoseconds():
    texts = simulated("1f1b", 2, 4, forward="1.5ms", backward="3000us")
    numbers = simulated("1f1b", 2, 4, forward=1_500_000, backward=3 * MS)
    assert texts.makespan_ns == numbers.makespan_ns == (4 + 1) * 4_500_000


def test_costs_per_stage():
    p = simulated("1f1b", 2, 1, forward=["1ms", 2 * MS], backward=["2ms", "5ms"])
    assert p.makespan_ns == (1 + 2 + 5 + 2) * MS  # one microbatch: forth and back
    assert [rank.busy_ns for rank in p.by_rank] == [3 * MS, 7 * MS]


def test_a_slow_rank_stretches_its_stage():
    p = simulated("1f1b", 2, 1, forward="1ms", backward="2ms", slow={1: 3})
    assert p.makespan_ns == (1 + 3 + 6 + 2) * MS
    link = simulated("1f1b", 2, 1, forward="1ms", backward="2ms", latency="1ms", slow={(0, 1): 2})
    assert link.makespan_ns == (1 + 2 + 1 + 2 + 2 + 2) * MS


class Index:
    """An integer of another package's, as numpy's are."""

    def __init__(self, value):
        self.value = value

    def __index__(self):
        return self.value


def test_a_name_takes_the_shape_of_its_schedule():
    assert pw.simulate("zbv", ranks=4, microbatches=8).makespan_ns == simulated("zbv", 4, 8).makespan_ns
    assert pw.simulate("interleaved-1f1b", ranks=2, chunks=3, microbatches=4).bubble == pytest.approx(1 / 13)


def test_integers_of_other_packages_are_integers(gpt):
    p = pw.simulate("gpipe", ranks=Index(4), microbatches=Index(8), forward=Index(MS), backward=[Index(2 * MS)] * 4, live_limit=Index(8))
    assert p.makespan_ns == 33 * MS and p.fits
    found = pw.search(gpt, ranks=2, microbatches=Index(4), schedules="1f1b", cluster="cpu-workstation", recompute=False)
    assert {(c.schedule, c.microbatches) for c in found.candidates} == {("1f1b", 4)}


def test_limits_are_answers_and_not_errors():
    tight = simulated("gpipe", 4, 8, live_limit=4)
    assert not tight.fits and "8 live" in tight.excess
    assert simulated("1f1b", 4, 8, live_limit=[4, 3, 2, 1]).fits
    assert simulated("1f1b", 4, 8).excess == ""


def test_blocking_sends_are_slower():
    overlapped = simulated("1f1b", 4, 8, forward="1ms", transfer="100us")
    blocking = simulated("1f1b", 4, 8, forward="1ms", transfer="100us", sends="blocking")
    assert blocking.makespan_ns > overlapped.makespan_ns


@pytest.mark.parametrize("what", ["1f1b", pw.schedule("1f1b", ranks=8, microbatches=256)])
def test_ctrl_c_ends_the_draws(what):
    timer = threading.Timer(0.5, _thread.interrupt_main)
    with pytest.raises(KeyboardInterrupt):  # else it draws for minutes
        try:
            timer.start()
            pw.simulate(what, jitter=0.2, draws=1_000_000, **({"ranks": 8, "microbatches": 256} if isinstance(what, str) else {}))
        finally:
            timer.cancel()


def test_jitter_is_seeded():
    one, same, other = (simulated("1f1b", 2, 4, jitter=0.1, draws=20, seed=seed).to_dict()["jitter"] for seed in (1, 1, 2))
    assert one == same != other


def test_why_names_what_each_rank_waits_for():
    p = simulated("gpipe", 2, 2, why=True)
    assert p.bubbles and all("rank" in line for line in p.bubbles)
    assert simulated("gpipe", 2, 2).bubbles == []


def test_idle_time_by_cause():
    # GPipe, F = 1 and B = 2 of equal stages: rank r waits r F and (R - 1 - r)(F + B) at first, r B at the end.
    by_rank = simulated("gpipe", 3, 4, forward="1ms").idle_by_cause
    for r, idle in enumerate(by_rank):
        assert idle["start-up"] == (r + 3 * (2 - r)) * MS
        assert idle["drain"] == 2 * r * MS
        assert idle["imbalance"] == idle["message"] == idle["work ready"] == 0


def test_the_document_has_the_figures():
    p = simulated("1f1b", 2, 4)
    document = p.to_dict()
    assert document["makespan_ns"] == p.makespan_ns
    assert document["bubble_fraction"] == pytest.approx(p.bubble)


def test_a_problem_file(tmp_path):
    file = tmp_path / "problem.json"
    file.write_text('{"ranks": 2, "microbatches": 4, "place": [0, 1], "forward_ns": [10, 10], "input_ns": [10, 10], "weight_ns": [10, 10],'
                    ' "latency_ns": [0], "activation": [1, 1], "limit": [4, 4]}')
    p = pw.simulate(pw.schedule("1f1b", ranks=2, microbatches=4), costs=file)
    assert p.makespan_ns == (4 + 1) * 30 and p.fits


def test_what_was_simulated_is_lowered_and_named():
    p = simulated("1f1b", 2, 4)
    assert p.schedule.name == "1f1b" and "forward 1.00 ms" in p.costs
    assert "makespan 15.0 ms" in repr(p)


def test_what_an_order_depends_on_limits():
    # Two ranks, two microbatches, F = I = 2, W = 1. With one pair alive the microbatches follow one after the other.
    def made(limit):
        return pw.simulate("auto", ranks=2, microbatches=2, forward=[2, 2], input=[2, 2], weight=[1, 1], live_limit=limit)

    one, two = made(1), made(2)
    assert one.makespan_ns > two.makespan_ns
    assert one.limit_sensitivity()[0] == (None, one.makespan_ns, two.makespan_ns, None)
    everyone, first, second = two.limit_sensitivity()
    assert everyone == (None, two.makespan_ns, two.makespan_ns, one.makespan_ns) and (first[0], second[0]) == (0, 1)
    assert pw.simulate(pw.schedule("1f1b", ranks=2, microbatches=2)).limit_sensitivity() == []


def test_what_the_makespan_depends_on():
    # gpipe of two stages, the second three times as long: M of its forwards and backwards, between the first's forward and backward.
    slow = pw.simulate(pw.schedule("gpipe", ranks=2, microbatches=4), forward=[100, 300], backward=[100, 300], latency=30)
    assert slow.makespan_ns == 100 + 30 + 4 * 600 + 30 + 100
    assert slow.sensitivity(0.1) == [
        ("stage 1", 2400, slow.makespan_ns - 240, slow.makespan_ns + 240),
        ("stage 0", 200, slow.makespan_ns - 20, slow.makespan_ns + 20),
        ("link 0–1", 60, slow.makespan_ns - 6, slow.makespan_ns + 6),
    ]
    with pytest.raises(pw.UsageError, match="0.1 for 10 %"):
        slow.sensitivity(1.5)
