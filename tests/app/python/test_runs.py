"""Runs, stores and comparisons: rehearsals, which compute nothing, and a real run where there is torch."""

import json
import os
import re
import shutil
import signal
import subprocess
import threading
import warnings

import pipewright as pw
import pytest


def test_a_rehearsal_gives_losses_and_a_trace(rehearsal, gpt_plan):
    _, result = rehearsal
    assert len(result.losses) == 3 and result.to_dict()["run_id"] == 1
    trace = result.trace
    kinds = [span.kind for span in trace.spans]
    assert (kinds.count("F"), kinds.count("B")) == (2 * 4, 2 * 4)
    assert trace.makespan_ns > 0 and result.predicted.makespan_ns == pw.simulate(gpt_plan).makespan_ns
    assert "<svg" in result._repr_html_() and "3 steps" in repr(result)


def test_a_store_lists_its_runs(rehearsal, gpt_plan):
    path, _ = rehearsal
    store = pw.Store(path)
    assert len(store) == 2 and [run.id for run in store] == [1, 2]
    first, last = store.runs
    assert (first.steps, last.steps, first.state) == (3, 2, "completed")
    assert (first.model, first.schedule, first.ranks, first.microbatches) == ("gpt_small", "1f1b", 2, 4)
    assert first.facts["synthetic"] == "yes" and first.measured_step_ns > 0
    assert store[-1].id == 2 and store[-2].id == 1


def test_a_stored_run_has_plan_and_steps(rehearsal, gpt_plan):
    path, result = rehearsal
    run = pw.Store(path)[1]
    assert run.plan == gpt_plan and run.seed == 7 and run.failure == ""
    assert run.losses == result.losses and len(run.steps) == 3
    for number in run.steps:
        assert run.step(number).ranks == 2
    assert run.trace in [run.step(number) for number in run.steps]
    with pytest.raises(pw.UsageError):
        run.step(99)


def test_runs_that_are_not_there(rehearsal):
    store = pw.Store(rehearsal[0])
    with pytest.raises(pw.UsageError, match="1"):
        store[9]
    with pytest.raises(IndexError):
        store[-3]
    with pytest.raises(TypeError):
        store["1"]


def test_a_run_is_compared_with_its_prediction(rehearsal):
    run = pw.Store(rehearsal[0])[1]
    comparison = pw.compare(run)
    assert comparison.matched == 16 and comparison.unmatched == 0
    error = (run.trace.makespan_ns - run.predicted.makespan_ns) / run.predicted.makespan_ns
    assert comparison.makespan_error == pytest.approx(error)
    assert comparison.sentence and comparison.to_dict()["matched"] == 16


def test_two_runs_are_compared_by_number(rehearsal):
    store = pw.Store(rehearsal[0])
    comparison = pw.compare(store[1], store[2])
    assert "run 1" in comparison.sentence or "run 2" in comparison.sentence
    assert comparison.matched == 16


def test_reductions_count_without_waits_for_other_ranks(root, gpt, tmp_path):
    """As `pipewright compare` counts them, which prints the same document."""
    plan = pw.plan(gpt, ranks=2, replicas=2, microbatches=2, cluster="cpu-workstation")
    path = tmp_path / "replicas.db"
    for seed in (1, 2):
        pw.run(plan, steps=3, synthetic=True, store=path, seed=seed)
    store = pw.Store(path)
    program = root / "build" / "bin" / "pipewright"
    for comparison, more in ((pw.compare(store[2]), []), (pw.compare(store[1], store[2]), ["--run", "1", "--with", "2"])):
        words = [program, "compare", "--store", str(path), "--json", *more]
        printed = json.loads(subprocess.run(words, check=True, capture_output=True, text=True).stdout)
        ours = comparison.to_dict()
        assert {key: printed[key] for key in ours} == ours
        assert comparison.reduction_waits_ns == (ours["predicted_reduction_waits_ns"], ours["measured_reduction_waits_ns"])
        assert comparison.reduction_waits_ns[1] > 0, "no two ranks begin at one nanosecond"


def test_stages_are_not_compared_where_splits_differ(root, gpt, tmp_path):
    """As `pipewright compare` and the app, with their sentence."""
    even, other = (pw.plan(gpt, ranks=2, microbatches=2, splits=[at], cluster="cpu-workstation") for at in ("blocks.2", "blocks.1"))
    path = tmp_path / "splits.db"
    for plan in (even, other):
        pw.run(plan, steps=2, synthetic=True, store=path)
    store = pw.Store(path)
    comparison = pw.compare(store[1], store[2])
    assert not comparison.same_splits and comparison.to_dict()["by_stage"] == []
    assert "Their splits differ, so their stages are not compared." in comparison.sentence
    words = [root / "build" / "bin" / "pipewright", "compare", "--store", str(path), "--json", "--run", "1", "--with", "2"]
    printed = json.loads(subprocess.run(words, check=True, capture_output=True, text=True).stdout)
    assert {key: printed[key] for key in comparison.to_dict()} == comparison.to_dict()
    predicted = pw.compare(pw.simulate(even), pw.simulate(other))
    assert not predicted.same_splits and "of stage" not in predicted.sentence
    assert pw.compare(store[1], pw.simulate(even)).same_splits
    assert pw.compare(store[1].trace, pw.simulate(other)).same_splits, "a trace does not say it"


def test_a_step_equals_itself():
    p = pw.simulate(pw.schedule("1f1b", ranks=2, microbatches=4))
    same = pw.compare(p, p.trace)
    assert (same.makespan_error, same.action_error, same.unmatched) == (0, 0, 0)


def test_a_doubled_step_is_twice_as_long():
    s = pw.schedule("1f1b", ranks=2, microbatches=4)
    comparison = pw.compare(pw.simulate(s, forward="1ms"), pw.simulate(s, forward="2ms"))
    assert comparison.makespan_error == pytest.approx(1)
    assert comparison.sentence.startswith("The second takes 2.0 times as long as the first"), "neither happened"
    with pytest.raises(pw.UsageError, match="another one"):
        pw.compare(pw.simulate(s))


def test_a_whole_backward_is_matched_with_a_split_one():
    whole, split = (pw.simulate(pw.schedule(name, ranks=2, microbatches=4)) for name in ("1f1b", "zb-h1"))
    comparison = pw.compare(whole, split)
    assert (comparison.matched, comparison.matched_split, comparison.unmatched) == (16, 8, 0)


def test_progress_counts_steps(gpt_plan):
    seen = []
    pw.run(gpt_plan, steps=2, synthetic=True, progress=lambda done, every: seen.append((done, every)))
    assert seen and seen[-1] == (2, 2)


def test_a_plan_whose_name_begins_like_an_option(gpt_plan, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    gpt_plan.save("-plan.json")
    assert len(pw.run("-plan.json", synthetic=True, store="-runs.db").losses) == 1
    assert len(pw.Store("-runs.db")) == 1


def test_temporary_files_go_with_the_result(gpt_plan):
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # as one of Python's own folders would, when it is collected
        result = pw.run(gpt_plan, synthetic=True)
        folder = os.path.dirname(result.run._store.path)
        assert os.path.isdir(folder)
        del result
    assert not os.path.isdir(folder)


def test_a_failing_run_is_an_error_with_its_cause(gpt_plan, tmp_path):
    with pytest.raises(pw.Error, match="resume|no file|nowhere"):
        pw.run(gpt_plan, resume=tmp_path / "nowhere.pt")


def test_an_interrupt_ends_the_ranks(gpt_plan):
    interrupted = []

    def interrupt(done, every):
        if not interrupted:
            interrupted.append(done)
            signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        pw.run(gpt_plan, steps=1_000_000, synthetic=True, progress=interrupt)
    assert interrupted


def test_what_progress_raises_ends_the_run_and_is_raised(gpt_plan):
    def refuse(done, every):
        raise LookupError("enough")

    with pytest.raises(LookupError, match="enough"):
        pw.run(gpt_plan, steps=1_000_000, synthetic=True, progress=refuse)


def test_a_run_trains_and_equals_one_rank(gpt, tmp_path):
    pytest.importorskip("torch")
    plan = pw.plan(gpt, ranks=2, microbatches=2, cluster="cpu-workstation")
    result = pw.run(plan, steps=3, verify=True, optimizer="adamw", lr=1e-3, store=tmp_path / "runs.db")
    assert result.to_dict()["verification"]["equal"]
    assert len(result.losses) == 3 and result.losses[-1] < result.losses[0]
    json.dumps(result.to_dict())


def test_a_run_without_a_schedule_has_its_losses(gpt, tmp_path):
    pytest.importorskip("torch")
    plan = pw.plan(gpt, ranks=2, microbatches=2, cluster="cpu-workstation")
    scheduled, dynamic = (pw.run(plan, steps=2, backward=how, store=tmp_path / "runs.db") for how in ("schedule", "dynamic"))
    assert dynamic.losses == pytest.approx(scheduled.losses, rel=1e-5)
    assert [run.facts["backward"] for run in pw.Store(tmp_path / "runs.db")] == ["schedule", "dynamic"]
    kinds = [span.kind for span in dynamic.trace.spans]
    assert (kinds.count("F"), kinds.count("B"), kinds.count("SEND_F"), kinds.count("SEND_B")) == (4, 4, 2, 2)


def test_a_final_rate_without_an_end_of_the_decay_is_refused(gpt_plan):
    with pytest.raises(pw.UsageError, match="final_rate is what remains .* add decay_steps"):
        pw.run(gpt_plan, steps=2, warmup=1, final_rate=0.1)


def test_a_measured_profile(gpt):
    pytest.importorskip("torch")
    costs = pw.profile(gpt, ranks=2)
    assert not costs.estimated and costs.model == "gpt_small"
    assert pw.simulate(pw.plan(gpt, ranks=2, microbatches=2, profile=costs)).makespan_ns > 0


def test_the_record_that_a_failure_names_is_there(tmp_path):
    torch = pytest.importorskip("torch")

    class Counts(torch.nn.Module):
        """Its 21st forward has nothing to factorise."""

        def __init__(self):
            super().__init__()
            self.linear = torch.nn.Linear(4, 4)
            self.register_buffer("count", torch.zeros(()))

        def forward(self, x):
            self.count.add_(1)
            return self.linear(x) @ torch.linalg.cholesky(torch.eye(4) * (20.5 - self.count))

    pw.export(Counts(), (torch.randn(2, 4),), tmp_path / "counts.pt2")
    plan = pw.plan(tmp_path / "counts.pt2", ranks=1, microbatches=2, schedule="gpipe", loss="mse", cluster="a100-nvlink")
    with pytest.raises(pw.Error, match="cholesky.*flight-rank-0.json") as failure:
        pw.run(plan, steps=20)
    record = re.search(r"see (\S*flight-rank-0\.json)", str(failure.value))[1]
    assert json.loads(open(record, encoding="utf-8").read())["rank"] == 0
    folder = os.path.dirname(record)
    assert os.listdir(folder) == [os.path.basename(record)]
    shutil.rmtree(folder)
