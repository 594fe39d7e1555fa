"""Jobs of other people: their traces as costs, what explains them, layouts, hangs, gates."""

import json
import signal
import subprocess

import pipewright as pw
import pytest

MS = 1_000_000


@pytest.fixture(scope="module")
def primus(root):
    return root / "tests" / "data" / "primus" / "pp8"


@pytest.fixture(scope="module")
def job(primus):
    return pw.read_job(primus, steps="5-8")


def printed(root, *arguments):
    """What the program prints as JSON; its exit status may be 1: an answer."""
    program = root / "build" / "bin" / "pipewright"
    done = subprocess.run([program, *map(str, arguments), "--json"], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode in (0, 1), done.stderr
    document = json.loads(done.stdout)
    document.pop("version")
    return document


def test_a_job_is_what_its_traces_hold(job):
    schedule = job.schedule
    assert (schedule.name, schedule.ranks, schedule.stages, schedule.microbatches) == ("1f1b", 8, 8, 16)
    assert [name for name, _ in job.steps] == [f"iteration {k}" for k in (5, 6, 7, 8)]
    assert all(time > 0 for _, time in job.steps)
    assert job.times == "measured" and "4 measured steps" in repr(job)


def test_a_job_is_kept_in_a_file(job, tmp_path):
    path = tmp_path / "job.json"
    job.save(path)
    again = pw.read_job(path)
    assert again.steps == job.steps and again.schedule == job.schedule
    assert pw.explain(again) == pw.explain(job)


def test_what_explains_it_is_what_the_program_prints(root, primus, job):
    assert pw.explain(job) == printed(root, "explain", primus, "--steps", "5-8")
    with pytest.raises(pw.UsageError, match="give them to read_job"):
        pw.explain(job, steps="5")


def test_an_explanation_ends_with_ctrl_c(job, tmp_path):
    path = tmp_path / "long.json"
    job.save(path)
    document = json.loads(path.read_text())
    document["steps"] *= 1000
    path.write_text(json.dumps(document))
    long = pw.read_job(path)
    previous = signal.signal(signal.SIGALRM, signal.default_int_handler)
    signal.setitimer(signal.ITIMER_REAL, 0.2)
    try:
        with pytest.raises(KeyboardInterrupt):
            pw.explain(long)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)


def test_usual_times_of_some_steps_predict_the_next(primus, job):
    predicted = pw.simulate(costs_from=job)
    for step in pw.explain(primus, steps="9-12")["steps"]:
        assert predicted.makespan_ns == pytest.approx(step["makespan_ns"], rel=0.012)
    assert pw.simulate(costs_from=primus, steps="5-8").makespan_ns == predicted.makespan_ns


def test_a_job_times_other_schedules(job):
    own = pw.simulate(costs_from=job)
    gpipe = pw.simulate(pw.schedule("gpipe", ranks=8, microbatches=16), costs_from=job)
    assert own.schedule.name == "1f1b" and gpipe.schedule.name == "gpipe"
    # GPipe keeps all 16 microbatches of the first stage, 1F1B 8: neither idles less with these costs by more than a part of the step.
    assert gpipe.makespan_ns == pytest.approx(own.makespan_ns, rel=0.25)
    assert pw.simulate(costs_from=job, slow={3: 2}).makespan_ns > 1.3 * own.makespan_ns
    with pytest.raises(TypeError, match="nothing to simulate"):
        pw.simulate()


def test_a_jobs_costs_are_taken_or_refused_whatever_it_is_called(job, gpt_plan, tmp_path):
    path = tmp_path / "job.json"
    job.save(path)
    document = json.loads(path.read_text())
    document["name"] = ""
    path.write_text(json.dumps(document))
    nameless = pw.read_job(path)
    own = pw.simulate(costs_from=job).makespan_ns
    assert pw.simulate(costs_from=nameless).makespan_ns == own
    assert pw.simulate(pw.schedule("1f1b", ranks=8, microbatches=16), costs_from=nameless).makespan_ns == own
    for given in ({"costs_from": job}, {"costs_from": path}, {"steps": "1"}):
        with pytest.raises(pw.UsageError, match="a plan has its own costs"):
            pw.simulate(gpt_plan, **given)


def test_counts_below_zero_are_refused(job, tmp_path):
    for call in (lambda: pw.layout("Et|t|t|tL", ranks=-1), lambda: pw.layout("Et|tL", microbatches=-5),
                 lambda: pw.read_job(store=tmp_path / "runs.db", run=-3), lambda: pw.gate("a.db", "b.db", run=-1)):
        with pytest.raises(pw.UsageError, match="is below 0"):
            call()


def test_names_of_a_trace_are_read_by_patterns(tmp_path):
    # GPipe of one microbatch: F of 5, B of 9, one after the other [us].
    events = [
        {"ph": "X", "name": f"mb0 {kind}", "pid": rank, "tid": 1, "ts": 100 * step + begin, "dur": time}
        for step in range(2) for rank in range(2) for kind, begin, time in (("fwd", 5 * rank, 5), ("bwd", 19 - 9 * rank, 9))
    ]
    trace, patterns = tmp_path / "t.json", tmp_path / "p.json"
    trace.write_text(json.dumps(events))
    patterns.write_text(json.dumps({"patterns": [{"regex": r"mb(?<microbatch>\d+) (?<kind>fwd|bwd)"}]}))
    job = pw.read_job(trace, patterns=patterns)
    assert pw.simulate(costs_from=job).makespan_ns == 28_000
    assert pw.explain(trace, patterns=patterns)["step_ns"] == 28_000
    with pytest.raises(pw.UsageError, match="no pipeline labels"):
        pw.read_job(trace)


def test_a_search_cuts_a_jobs_stages_anew(job, primus, tmp_path):
    path = tmp_path / "job.json"
    job.save(path)
    found = pw.search(costs_from=path, ranks=8, microbatches=[16], schedules=["1f1b"], recompute=False)
    assert found.best[0].makespan_ns <= pw.simulate(costs_from=job).makespan_ns
    with pytest.raises(pw.UsageError, match="instead of a model"):
        pw.search(layers="layers.csv", costs_from=path, ranks=8)
    with pytest.raises(pw.UsageError, match="is not a job"):
        pw.search(costs_from=primus.parent / "README.md", ranks=8)


def test_reading_ends_where_progress_says_so(tmp_path):
    large = tmp_path / "large.json"
    pw.simulate(pw.schedule("1f1b", ranks=4, microbatches=8000)).trace.save(large)
    calls = []
    whole = pw.read_job(large, progress=lambda done, every: calls.append((done, every)))
    assert whole.schedule.microbatches == 8000
    assert calls == sorted(calls) and calls[-1][0] <= calls[-1][1] == large.stat().st_size
    with pytest.raises(pw.UsageError, match="ended before"):
        pw.read_job(large, progress=lambda done, every: False)

    def fails(done, every):
        raise RuntimeError("of the caller")

    with pytest.raises(RuntimeError, match="of the caller"):
        pw.read_job(large, progress=fails)
    with pytest.raises(pw.UsageError, match="name a trace"):
        pw.read_job()


def test_a_layout_is_what_megatron_makes_of_it(root, table):
    accepted = pw.layout("Et*3|(tt|)*29m|L", ranks=16)
    assert accepted == printed(root, "layout", "--check", "Et*3|(tt|)*29m|L", "--ranks", "16")
    # 3 + 29 × 2 transformer layers on 31 stages, which 16 ranks do not divide
    assert accepted["transformer_layers"] == 61 and accepted["mtp_layers"] == 1
    refused = pw.layout("Et|tL", num_layers=3)
    assert not refused["valid"] and refused["problems"]
    with pytest.raises(pw.UsageError):
        pw.layout("Ex|L")


def test_a_hang_is_named(root):
    dumps = root / "tests" / "data" / "torch_hangs"
    truths = json.loads((dumps / "truths.json").read_text())
    for name in ("inverted_order", "missing_send", "wrong_size"):
        case, truth = dumps / name, truths[name]
        found = pw.hang(case, case / "schedule.csv")
        assert found == printed(root, "hang", case, "--schedule", case / "schedule.csv")
        assert found["verdict"] == truth["verdict"]
        if "action" in truth:
            assert (found["first_stuck"]["rank"], found["first_stuck"]["action"]) == (truth["rank"], truth["action"])
    assert pw.hang([dumps / "inverted_order"])["verdict"] == "cycle", "without a schedule too"


def test_a_gate_judges_runs_by_others(root, gpt_plan, tmp_path):
    stores = [tmp_path / "now.db", tmp_path / "base.db"]
    for store in stores:
        pw.run(gpt_plan, steps=8, synthetic=True, store=store)
    answer = pw.gate(*stores, limit=5.0)
    assert answer == printed(root, "gate", "--store", stores[0], "--against", stores[1], "--limit", "500%")
    # One run on each side does not show what differs from run to run.
    assert answer["verdict"] in ("unclear", "not slower") and answer["run_ids"] == [1] and answer["against_run_ids"] == [1]
    with pytest.raises(pw.UsageError, match="5 % is 0.05"):
        pw.gate(*stores, limit=0)
