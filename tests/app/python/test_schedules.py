"""Schedules by name and by file, and their checks."""

import pickle

import pipewright as pw
import pytest

NAMES = [family.name for family in pw.schedules()]
SHAPE = {"ranks": 4, "microbatches": 8}


def a_schedule(name):
    return pw.schedule(name, **SHAPE)


def test_every_family_has_its_facts():
    assert {"gpipe", "1f1b", "zbv", "dualpipe", "interleaved-1f1b"} <= set(NAMES)
    for family in pw.schedules():
        assert family.summary and family.needs and family.chunks >= 1
        assert family.placement in ("loop", "v", "wave", "bidirectional", "custom")


@pytest.mark.parametrize("name", NAMES)
def test_every_schedule_is_complete_and_free_of_deadlock(name):
    s = a_schedule(name)
    assert (s.name, s.ranks, s.microbatches) == (name, 4, 8)
    assert pw.check(s) == []
    assert len(s.rank_of_stage) == s.stages and set(s.rank_of_stage) == set(range(4))
    assert len(s.rows) == s.ranks


@pytest.mark.parametrize("name", NAMES)
def test_every_schedule_survives_pickle(name):
    s = a_schedule(name)
    assert pickle.loads(pickle.dumps(s)) == s


@pytest.mark.parametrize("name", [n for n in NAMES if n != "lockstep"])
def test_every_schedule_survives_csv(name):
    s = a_schedule(name)
    again = pw.Schedule.from_csv(s.to_csv(), name=name)
    assert (again.rows, again.rank_of_stage) == (s.rows, s.rank_of_stage)


def test_the_rows_of_1f1b_on_two_ranks():
    # One forward is ahead on the first rank; then one forward, one backward.
    assert pw.schedule("1f1b", ranks=2, microbatches=2).rows[1] == ["", "1F0", "1B0", "1F1", "1B1"] or \
        [a for a in pw.schedule("1f1b", ranks=2, microbatches=2).rows[1] if a] == ["1F0", "1B0", "1F1", "1B1"]


def test_torchs_names_are_known():
    assert pw.schedule("Interleaved1F1B", ranks=2, microbatches=4).rows == pw.schedule("interleaved-1f1b", ranks=2, microbatches=4).rows


@pytest.mark.parametrize("order", ["torch", "deferred"])
def test_a_lowered_schedule_sends_each_value_once(order):
    s = pw.schedule("1f1b", ranks=3, microbatches=5, lowered=order)
    actions = [a for row in s.rows for a in row]
    # 5 microbatches cross 2 links, forward and back; each send has its receive
    for kind in ("SEND_F", "RECV_F", "SEND_B", "RECV_B"):
        assert sum(kind in a for a in actions) == 10
    assert s.is_lowered and not pw.schedule("1f1b", ranks=3, microbatches=5).is_lowered
    assert pw.schedule("1f1b", ranks=3, microbatches=5).lowered(order) == s


def test_chunks_multiply_stages():
    assert pw.schedule("interleaved-1f1b", ranks=2, chunks=3, microbatches=4).stages == 6


def test_a_missing_forward_is_named():
    problems = pw.check(pw.Schedule.from_csv("0F0,0B0\n1B0,\n"))
    assert problems and problems[0].rank == 1 and problems[0].stops == "always"
    assert "1F0" in problems[0].message or "F" in problems[0].message


def test_a_deadlock_shows_its_cycle():
    csv = "0F0,0F1,0B1,0B0\n1F1,1B1,1F0,1B0\n"
    lowered = pw.Schedule.from_csv("0F0,0SEND_F0,0RECV_B0,0B0\n1RECV_F0,1F0,1B0,1SEND_B0\n")
    assert pw.check(lowered) == []
    assert pw.check(pw.Schedule.from_csv(csv)) == []  # another order of microbatches is no deadlock
    stuck = pw.Schedule.from_csv("0F0,0RECV_B0,0SEND_F0,0B0\n1RECV_F0,1F0,1B0,1SEND_B0\n")
    assert any(p.stops == "always" for p in pw.check(stuck))


def test_sizes_that_do_not_fit_are_a_problem():
    s = pw.schedule("1f1b", ranks=2, microbatches=2)
    assert pw.check(s, sends=[100, 0], receives=[0, 100]) == []
    assert len(pw.check(s, sends=[100, 0], receives=[0, 50])) == 1
    with pytest.raises(pw.UsageError, match="both ends"):
        pw.check(s, sends=[100, 0])


def test_a_schedule_of_a_file(tmp_path):
    file = tmp_path / "mine.csv"
    file.write_text(a_schedule("zbv").to_csv())
    s = pw.schedule(file)
    assert (s.name, s.ranks, s.microbatches) == ("mine", 4, 8)
    assert pw.check(str(file)) == []
    with pytest.raises(pw.UsageError, match="ranks"):
        pw.schedule(file, ranks=3)


def test_torch_alone_refuses_with_strict():
    pw.schedule("1f1b", ranks=4, microbatches=2)
    with pytest.raises(pw.UsageError):
        pw.schedule("1f1b", ranks=4, microbatches=2, strict=True)
