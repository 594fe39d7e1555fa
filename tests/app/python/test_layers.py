"""Layer tables instead of models: exact, and without torch."""

import pipewright as pw
import pytest


def test_a_plan_a_simulation_and_a_search_of_a_table(table):
    # gpipe on stages of two layers, F = 2 and B = 6: stage 1 has its first value at 2 + 5 and works 3 * 8; 5 later stage 0 does a last B.
    plan = pw.plan(layers=table, ranks=2, microbatches=3, schedule="gpipe")
    assert plan.splits == ["c"]
    assert pw.simulate(plan).makespan_ns == 7 + 3 * 8 + 5 + 6
    gpipe = pw.schedule("gpipe", ranks=2, microbatches=3)
    assert pw.simulate(gpipe, layers=table).makespan_ns == 42
    split = pw.simulate(gpipe, layers=table, splits=["b"], optimizer="adamw")
    assert split.makespan_ns == 1 + 3 * 12 + 3
    assert [rank.peak_bytes for rank in split.by_rank] == [3 * 10 + 3 * 7, 3 * 30 + 3 * 21]
    kinds = [{part["kind"]: part["bytes"] for part in rank["parts"]} for rank in split.memory()]
    assert kinds == [{"activations": 21, "optimizer state": 20, "parameters": 10}, {"activations": 63, "optimizer state": 60, "parameters": 30}]
    found = pw.search(layers=table, ranks=2, microbatches=[3], schedules=["gpipe"], memory_limit=62)
    assert found.best[0].makespan_ns == 42 and found.best[0].peak_bytes == 62


def test_an_order_for_the_costs_of_a_table(table):
    plan = pw.plan(layers=table, ranks=2, microbatches=3, schedule="auto", seconds=0.1)
    predicted = pw.simulate(plan)
    assert predicted.gap == pytest.approx(1 - predicted.lower_bound_ns / predicted.makespan_ns)
    assert pw.simulate(pw.plan(layers=table, ranks=2, microbatches=3, schedule="1f1b")).gap is None  # not made for the costs
    assert predicted.makespan_ns < 42 and not pw.check(plan.schedule)
    order = pw.simulate("auto", layers=table, ranks=2, microbatches=3, seconds=0.1)
    assert order.makespan_ns == predicted.makespan_ns
    assert order.gap == pytest.approx(1 - order.lower_bound_ns / order.makespan_ns)
    assert order.to_dict()["optimal"] == (order.gap == 0)
    found = pw.search(layers=table, ranks=2, microbatches=[3], schedules=["gpipe", "auto"])
    assert found.best[0].schedule == "auto" and found.best[0].makespan_ns <= order.makespan_ns
    assert pw.simulate(found.plan()).makespan_ns == found.best[0].makespan_ns


def test_an_order_needs_a_shape_and_a_schedule_has_one():
    order = pw.simulate("auto", ranks=2, chunks=2, microbatches=4, forward="1ms", input="1ms", weight="1ms")
    assert order.makespan_ns == 25_000_000 and order.gap == 0  # M (F + I + W) of two chunks, and the way to rank 1
    with pytest.raises(pw.UsageError, match="ranks"):
        pw.simulate("auto", microbatches=4)
    with pytest.raises(pw.UsageError, match="has its own"):
        pw.simulate(pw.schedule("1f1b", ranks=2, microbatches=2), ranks=2)


def test_a_table_and_a_model_exclude_each_other(table):
    for arguments in ({}, {"model": table, "layers": table}):
        with pytest.raises(pw.UsageError, match="either a model or layers"):
            pw.plan(**arguments)
    with pytest.raises(pw.UsageError, match="layers"):
        pw.simulate(pw.schedule("1f1b", ranks=2, microbatches=2), layers=table, forward="1ms")
