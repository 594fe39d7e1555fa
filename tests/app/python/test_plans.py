"""Models, plans and searches, with estimated costs: nothing is run and torch is not needed."""

import _thread
import concurrent.futures
import json
import os
import pickle
import signal
import subprocess
import sys
import threading

import pipewright as pw
import pytest

HERE = {"cluster": "cpu-workstation"}


def test_inspect_lists_modules_and_split_points(gpt):
    found = pw.inspect(gpt)
    assert found["model"] == "gpt_small" and found["weights"]
    names = [point["name"] for point in found["split_points"]]
    assert any(name.startswith("blocks.") for name in names)
    whole = next(module for module in found["modules"] if module["depth"] == 0)
    assert whole["parameters"] == sum(m["parameters"] for m in found["modules"] if m["depth"] == 1) or whole["parameters"] > 0
    assert pw.inspect([gpt], microbatch=2)["microbatch"] == 2


def test_flops_grow_with_the_microbatch(gpt):
    one, two = (next(m for m in pw.inspect(gpt, microbatch=b)["modules"] if m["depth"] == 0)["forward_flops"] for b in (1, 2))
    assert two == 2 * one


def test_clusters_have_names():
    assert "cpu-workstation" in pw.clusters() and pw.clusters() == sorted(pw.clusters())


def test_an_estimated_profile(gpt, tmp_path):
    costs = pw.profile(gpt, microbatch=2, **HERE)
    assert (costs.model, costs.microbatch, costs.estimated) == ("gpt_small", 2, True)
    costs.save(tmp_path / "profile.json")
    again = pw.Profile.load(tmp_path / "profile.json")
    assert again == costs == pickle.loads(pickle.dumps(costs))
    assert again.to_json() == costs.to_json() and costs != pw.profile(gpt, microbatch=4, **HERE)


def test_a_plan_has_what_was_asked(gpt, gpt_plan):
    assert (gpt_plan.model, gpt_plan.ranks, gpt_plan.stages, gpt_plan.microbatches) == ("gpt_small", 2, 2, 4)
    assert gpt_plan.world_size == 2 and len(gpt_plan.splits) == 1
    assert gpt_plan.batch == gpt_plan.microbatch * 4
    assert gpt_plan.model_files == [str(gpt)]
    assert gpt_plan.schedule.name == "1f1b" and gpt_plan.schedule.is_lowered
    assert "gpt_small" in repr(gpt_plan) and "<svg" in gpt_plan._repr_html_()


def test_a_plan_is_a_value(gpt_plan, tmp_path):
    file = tmp_path / "plan.json"
    gpt_plan.save(file)
    assert pw.Plan.load(file) == gpt_plan == pw.Plan.from_json(gpt_plan.to_json()) == pickle.loads(pickle.dumps(gpt_plan))
    assert pw.simulate(file).makespan_ns == pw.simulate(gpt_plan).makespan_ns
    assert json.loads(gpt_plan.to_json())["replicas"] == 1


def test_a_plan_takes_no_times(gpt_plan):
    with pytest.raises(pw.UsageError, match="a plan has its own costs"):
        pw.simulate(gpt_plan, forward="1ms")


def test_splits_by_name(gpt):
    plan = pw.plan(gpt, splits=["blocks.1"], microbatches=4, **HERE)
    assert plan.ranks == 2 and plan.splits == ["blocks.1"]


def test_replicas_multiply_ranks(gpt):
    plan = pw.plan(gpt, ranks=2, replicas=3, microbatches=4, **HERE)
    assert (plan.ranks, plan.replicas, plan.world_size) == (2, 3, 6)
    assert plan.batch == 3 * 4 * plan.microbatch


def test_a_profile_at_hand_is_as_its_file(gpt, tmp_path):
    costs = pw.profile(gpt, **HERE)
    costs.save(tmp_path / "profile.json")
    by_value = pw.plan(gpt, ranks=2, microbatches=4, profile=costs)
    by_file = pw.plan(gpt, ranks=2, microbatches=4, profile=tmp_path / "profile.json")
    assert by_value == by_file == pw.plan(gpt, ranks=2, microbatches=4, **HERE)


def test_a_cluster_may_be_a_path(gpt, root):
    file = root / "resources" / "clusters" / "h100-nvlink.json"
    of_file, of_name = (pw.plan(gpt, ranks=2, microbatches=4, cluster=cluster) for cluster in (file, "h100-nvlink"))
    assert pw.simulate(of_file).makespan_ns == pw.simulate(of_name).makespan_ns
    found = pw.search(gpt, ranks=2, microbatches=[4], schedules=["gpipe"], cluster=file, profile=None)
    assert found.candidates[0].step_ns > 0


def test_a_plan_of_a_csv(gpt, tmp_path):
    file = tmp_path / "mine.csv"
    file.write_text(pw.schedule("gpipe", ranks=2, microbatches=4).to_csv())
    assert pw.plan(gpt, schedule=file, **HERE).schedule.name == "mine"


@pytest.fixture(scope="module")
def found(gpt):
    return pw.search(gpt, ranks=2, microbatches=[2, 4], schedules=["1f1b", "gpipe"], **HERE)


def test_a_search_ranks_by_speed(found):
    speeds = [c.samples_per_second for c in found.candidates]
    assert speeds == sorted(speeds, reverse=True) and not found.cancelled
    assert {c.schedule for c in found.candidates} == {"1f1b", "gpipe"}
    assert {c.microbatches for c in found.candidates} == {2, 4}


def test_the_front_is_not_beaten(found):
    for c in found.pareto:
        assert c.on_front
        assert not any(o.samples_per_second > c.samples_per_second and o.peak_bytes <= c.peak_bytes for o in found.candidates)


def test_the_best_makes_a_plan_that_keeps_its_word(found):
    best = found.best[0]
    plan = found.plan()
    assert (plan.schedule.name, plan.microbatches) == (best.schedule, best.microbatches)
    assert pw.simulate(plan).makespan_ns == best.makespan_ns
    assert plan.loss  # a run takes it from here
    assert found.plan(found.best[-1]).schedule.name == found.best[-1].schedule


def test_an_order_made_for_the_costs_says_how_good_it_is(gpt):
    found = pw.search(gpt, ranks=2, microbatches=[4], schedules=["auto", "1f1b"], **HERE)
    orders = [c for c in found.candidates if c.schedule == "auto" and c.fits]
    assert orders and all(0 <= c.gap < 1 for c in orders)
    assert all(c.gap is None for c in found.candidates if c.schedule == "1f1b")
    assert pickle.loads(pickle.dumps(orders[0])) == orders[0]
    assert pw.simulate(found.plan(orders[0])).gap == orders[0].gap  # the plan keeps it


@pytest.mark.parametrize("schedule, recompute", [("1f1b", "auto"), ("auto", "none"), ("auto", "auto")])
def test_shared_weights_leave_the_room_that_the_fastest_plan_needs(root, schedule, recompute):
    """With little memory it needs the room that the tied embedding of GPT-2 leaves where one rank alone updates it."""

    def step(share):
        plan = pw.plan(
            root / "resources/models/hf_gpt2.pt2",
            ranks=2,
            microbatches=8,
            cluster="a100-nvlink",
            optimizer="adamw",
            memory_limit=2_591_539,
            schedule=schedule,
            recompute=recompute,
            share=share,
        )
        predicted = pw.simulate(plan)
        assert max(rank["peak_bytes"] for rank in predicted.memory()) <= 2_591_539
        return predicted.step_ns

    assert step("auto") <= step("transmit")


def test_one_rank_is_what_a_plan_of_one_rank_takes(gpt, found):
    best = found.best[0]
    alone = pw.simulate(pw.plan(gpt, ranks=1, microbatches=best.microbatches, microbatch=best.microbatch, schedule="1f1b", **HERE))
    step, peak = found.one_rank
    assert step == alone.step_ns and peak == alone.by_rank[0].peak_bytes
    useful = alone.mfu * alone.step_ns  # of the same batch
    assert pw.simulate(found.plan()).mfu * best.step_ns * 2 == pytest.approx(useful)


def test_ctrl_c_ends_the_search_for_an_order():
    threading.Timer(0.5, _thread.interrupt_main).start()
    with pytest.raises(KeyboardInterrupt):  # else it searches for minutes
        pw.simulate("auto", ranks=8, chunks=2, microbatches=33, forward=[11, 9, 10, 12, 8, 10, 11, 10] * 2, weight=[8, 7, 9, 9, 10, 6, 7, 8] * 2,
                    input=[10, 12, 9, 8, 10, 11, 9, 10] * 2, latency=7, live_limit=[6] * 8, seconds=600)


def test_the_document_of_a_search(found):
    document = found.to_dict()
    assert document["best"][0]["step_ns"] == found.best[0].step_ns
    assert document["tried"] == len(found.candidates)
    assert "<table>" in found._repr_html_() and "plans" in repr(found)


def test_threads_do_not_change_the_result(gpt, found):
    for threads in (1, 3):
        other = pw.search(gpt, ranks=2, microbatches=[2, 4], schedules=["1f1b", "gpipe"], threads=threads, **HERE)
        assert other.to_dict() == found.to_dict()


def test_progress_is_told_and_ends_a_search(gpt):
    seen = []
    pw.search(gpt, ranks=2, schedules=["1f1b"], progress=lambda done, every: seen.append((done, every)), **HERE)
    assert seen and all(0 <= done <= every for done, every in seen)
    calls = []
    stopped = pw.search(gpt, ranks=2, progress=lambda done, every: len(calls) < 20 and not calls.append(done), **HERE)
    assert stopped.cancelled


def test_what_progress_raises_arrives(gpt):
    def fail(done, every):
        raise LookupError("mine")

    with pytest.raises(LookupError, match="mine"):
        pw.search(gpt, ranks=2, progress=fail, **HERE)


def test_ctrl_c_returns_the_best_so_far(gpt):
    before = signal.getsignal(signal.SIGINT)
    sent = []

    def interrupt(done, every):
        if not sent and 2 * done > every:
            sent.append(os.kill(os.getpid(), signal.SIGINT))

    result = pw.search(gpt, ranks=2, progress=interrupt, **HERE)
    assert result.cancelled and result.candidates
    assert signal.getsignal(signal.SIGINT) is before
    with pytest.raises(KeyboardInterrupt):  # Python has its own handler back
        os.kill(os.getpid(), signal.SIGINT)
        threading.Event().wait(10)


def test_sigterm_ends_the_process_of_a_search(gpt):
    script = f"""
import os, signal
import pipewright as pw
pw.search({str(gpt)!r}, ranks=2, progress=lambda done, every: os.kill(os.getpid(), signal.SIGTERM), **{HERE!r})
print("went on")
"""
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120)
    assert (ended.returncode, ended.stdout) == (-signal.SIGTERM, "")


def test_searches_run_beside_each_other(gpt):
    def one(schedule):
        return pw.search(gpt, ranks=2, schedules=[schedule], microbatches=[4], **HERE).best[0].step_ns

    with concurrent.futures.ThreadPoolExecutor(3) as pool:
        together = list(pool.map(one, ["1f1b", "gpipe", "zb-h1"]))
    assert together == [one(name) for name in ["1f1b", "gpipe", "zb-h1"]]


def test_long_calls_release_the_interpreter():
    # While one thread simulates, another counts: it could not if the interpreter were held.
    s = pw.schedule("1f1b", ranks=64, microbatches=4096)
    done = threading.Event()
    counted = []

    def work():
        pw.simulate(s)
        done.set()

    thread = threading.Thread(target=work)
    thread.start()
    while not done.is_set():
        counted.append(len(counted))
    thread.join(60)
    assert len(counted) > 10


@pytest.mark.parametrize("pool", [concurrent.futures.ThreadPoolExecutor, concurrent.futures.ProcessPoolExecutor])
def test_an_executor_finds_no_less(gpt, found, pool):
    seen = []
    with pool(2) as executor:
        spread = pw.search(gpt, ranks=2, microbatches=[2, 4], schedules=["1f1b", "gpipe"], executor=executor,
                           progress=lambda done, every: seen.append((done, every)), **HERE)
    assert seen == [(1, 2), (2, 2)]
    assert spread.best[0].samples_per_second >= found.best[0].samples_per_second
    speeds = [c.samples_per_second for c in spread.candidates]
    assert speeds == sorted(speeds, reverse=True)
    assert pw.simulate(spread.plan()).makespan_ns == spread.best[0].makespan_ns


def test_an_executor_skips_what_is_impossible(gpt):
    with concurrent.futures.ThreadPoolExecutor(2) as executor:
        spread = pw.search(gpt, ranks=3, microbatches=[6], schedules=["1f1b", "dualpipe"], executor=executor, **HERE)
        assert {c.schedule for c in spread.candidates} == {"1f1b"}
        assert any("dualpipe" in line or "even" in line for line in spread.skipped)
        with pytest.raises(pw.UsageError, match="does not measure"):
            pw.search(gpt, ranks=2, executor=executor)


def test_what_the_merge_would_refuse_is_refused_before_parts_are_searched(gpt):
    begun = []

    class Counting(concurrent.futures.ThreadPoolExecutor):
        def submit(self, function, *arguments):
            begun.append(function)
            return super().submit(function, *arguments)

    with Counting(1) as executor:
        with pytest.raises(pw.UsageError, match="zero1 spreads"):
            pw.search(gpt, ranks=2, microbatches=[2], schedules=["1f1b"], zero1=True, executor=executor, **HERE)
    assert not begun


def test_a_file_that_a_worker_lacks_is_an_error(gpt, root, tmp_path):
    cluster = tmp_path / "cluster.json"
    cluster.write_bytes((root / "resources/clusters/cpu-workstation.json").read_bytes())

    class Forgetful(concurrent.futures.Executor):
        """Only the first worker has the file."""

        def submit(self, function, *arguments):
            future = concurrent.futures.Future()
            try:
                future.set_result(function(*arguments))
            except Exception as error:
                future.set_exception(error)
            cluster.unlink(missing_ok=True)
            return future

    with pytest.raises(pw.UsageError, match="cluster.json"):
        pw.search(gpt, ranks=2, microbatches=[4], schedules=["1f1b", "gpipe"], cluster=cluster, executor=Forgetful())


def test_candidates_survive_pickle(found):
    assert pickle.loads(pickle.dumps(found.candidates)) == found.candidates
