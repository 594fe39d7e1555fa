"""Unusable and hostile arguments end in one sentence, never in a crash."""

import pipewright as pw
import pytest

MS = 1_000_000
ONE = {"ranks": 2, "microbatches": 2}


def simulate(**options):
    return pw.simulate(pw.schedule("1f1b", **ONE), **options)


def test_errors_are_a_family():
    assert issubclass(pw.UsageError, pw.Error) and issubclass(pw.Error, RuntimeError)


@pytest.mark.parametrize(
    "name, options, words",
    [
        ("1f1c", ONE, "1f1b"),
        ("", ONE, "schedule"),
        ("1f1b", {}, "ranks"),
        ("1f1b", {"ranks": 2}, "microbatches"),
        ("dualpipe", {"ranks": 3, "microbatches": 6}, "even"),
        ("1f1b", {"ranks": -1, "microbatches": 2}, "ranks -1"),
        ("1f1b", {"ranks": 5000, "microbatches": 2}, "ranks 5000"),
        ("1f1b", {"ranks": 2, "microbatches": -5}, "microbatches"),
        ("1f1b", {"ranks": 2, "microbatches": 10**7}, "microbatches"),
        ("1f1b", {"ranks": 2**40, "microbatches": 2}, "out of range"),
        ("1f1b", {"ranks": 2.5, "microbatches": 2}, "not an integer"),
        ("1f1b", {"ranks": True, "microbatches": 2}, "not an integer"),
        ("1f1b", {**ONE, "chunks": -1}, "chunks"),
        ("1f1b", {**ONE, "group": 1}, "group"),
        ("1f1b", {**ONE, "lowered": "upwards"}, "torch"),
        ("no/such/file.csv", {}, "file"),
    ],
)
def test_unusable_schedules(name, options, words):
    with pytest.raises(pw.UsageError, match=words) as caught:
        pw.schedule(name, **options)
    assert "--" not in str(caught.value)


@pytest.mark.parametrize("text", ["", "nonsense", "0F0,0B1", "\0\0\0", "0F99999999999\n", "9" * 5000, "0F0,0B0\n" * 5000])
def test_damaged_csv(text):
    try:
        assert pw.check(pw.Schedule.from_csv(text))  # read, but it cannot run
    except pw.UsageError as refused:
        assert str(refused)


@pytest.mark.parametrize("name", ["forward", "backward", "overlap", "latency", "transfer", "load", "store"])
@pytest.mark.parametrize("value", [1.5, "1", "ms", "", " ", -1, "-1ms", 2**63, "99999999999s", True, None.__class__, b"1ms"])
def test_unusable_durations(name, value):
    with pytest.raises(pw.UsageError) as caught:
        simulate(**{name: value})
    assert "--" not in str(caught.value)


@pytest.mark.parametrize(
    "options, words",
    [
        ({"forward": ["1ms", "2ms", "3ms"]}, "3"),
        ({"forward": []}, "empty"),
        ({"input": "1ms"}, "weight"),
        ({"backward": "1ms", "input": "2ms"}, "longer"),
        ({"memory_limit": 1.5}, "memory_limit"),
        ({"memory_limit": "much"}, "much"),
        ({"memory_limit": "1GiB"}, "memory_limit needs the memory of stages"),
        ({"slow": "0=2"}, "not a dict of factors"),
        ({"jitter": "0.1"}, "jitter='0.1' is not a number"),
        ({"ranks": 4}, "ranks, chunks and microbatches are for a schedule that is given by its name"),
        ({"live_limit": 0}, "live_limit"),
        ({"live_limit": [1, 2, 3]}, "3 numbers"),
        ({"slow": {5: 2}}, "rank 5"),
        ({"slow": {0: -1}}, "slow"),
        ({"slow": {0: float("nan")}}, "slow"),
        ({"slow": {(0, 0): 2}}, "slow"),
        ({"sends": "by-mail"}, "by-mail"),
        ({"jitter": 3.0}, "jitter"),
        ({"jitter": float("nan")}, "jitter"),
        ({"jitter": 0.1, "draws": 0}, "draws"),
        ({"costs": "no-such-file.json"}, "no-such-file"),
        ({"costs": "x.json", "forward": "1ms"}, "omit forward, backward"),
    ],
)
def test_unusable_simulations(options, words):
    with pytest.raises(pw.UsageError, match=words) as caught:
        simulate(**options)
    assert "--" not in str(caught.value)


def test_a_schedule_that_cannot_run_says_where():
    with pytest.raises(pw.UsageError, match="cannot be run: rank 1"):
        pw.simulate(pw.Schedule.from_csv("0F0,0B0\n1B0,\n"))


@pytest.mark.parametrize("what", [None, 5, object()])
def test_what_is_no_source(what):
    with pytest.raises(TypeError):
        pw.simulate(what)


def test_types_that_do_not_fit_are_type_errors():
    with pytest.raises(TypeError):
        pw.schedule(5)
    with pytest.raises(TypeError):
        pw.check(5)


@pytest.mark.parametrize("text", ["", "{}", "[]", "nonsense", '{"version": 99}', "{" * 10000])
def test_damaged_plans_and_profiles(text, tmp_path):
    for kind in (pw.Plan, pw.Profile):
        with pytest.raises(pw.UsageError):
            kind.from_json(text)
        file = tmp_path / "damaged.json"
        file.write_text(text)
        with pytest.raises(pw.UsageError, match="damaged.json"):
            kind.load(file)


def test_files_that_are_not_there(tmp_path):
    missing = tmp_path / "missing.pt2"
    for call in (lambda: pw.inspect(missing), lambda: pw.plan(missing, ranks=2, cluster="cpu-workstation"), lambda: pw.Plan.load(missing),
                 lambda: pw.search(missing, ranks=2, cluster="cpu-workstation"), lambda: pw.Store(missing), lambda: pw.simulate("missing.json")):
        with pytest.raises(pw.UsageError, match="missing"):
            call()


def test_a_file_that_is_no_model(tmp_path):
    file = tmp_path / "model.pt2"
    file.write_bytes(b"PK\3\4" + bytes(100))
    with pytest.raises(pw.UsageError, match="model.pt2"):
        pw.inspect(file)


def test_a_file_that_is_no_store(tmp_path):
    file = tmp_path / "runs.db"
    file.write_text("not a store")
    with pytest.raises(pw.Error, match="runs.db"):
        pw.Store(file).runs


@pytest.mark.parametrize(
    "options, words",
    [
        ({"ranks": 2000}, "ranks 2000"),
        ({"ranks": -2}, "ranks"),
        ({"ranks": 2, "microbatch": -1}, "microbatch"),
        ({"ranks": 2, "replicas": 0}, "replicas"),
        ({"ranks": 2, "splits": ["no.such.module"]}, "no.such.module"),
        ({"ranks": 2, "balance": "luck"}, "luck"),
        ({"ranks": 2, "share": "fairly"}, "fairly"),
        ({"ranks": 2, "optimizer": "magic"}, "magic"),
        ({"ranks": 2, "momentum": 5.0, "optimizer": "sgd"}, "momentum"),
        ({"ranks": 2, "momentum": 0.5, "optimizer": "adam"}, "momentum"),
        ({"ranks": 2, "precision": "fp8"}, "fp8"),
        ({"ranks": 2, "recompute": "auto"}, "memory_limit"),
        ({"ranks": 2, "tf32": True}, "tf32"),
        ({"ranks": 2, "schedule": "no-such"}, "no-such"),
        ({"ranks": 2, "cluster": "no-such-cluster"}, "no-such-cluster"),
        ({"ranks": 2, "batch": 1, "microbatches": 8}, "batch"),
    ],
)
def test_unusable_plans(gpt, options, words):
    with pytest.raises(pw.UsageError, match=words) as caught:
        pw.plan(gpt, **{"cluster": "cpu-workstation", **options})
    assert "--" not in str(caught.value)


def test_a_plan_that_does_not_fit_is_not_returned(gpt):
    with pytest.raises(pw.TooLargeError, match="more than the limit"):
        pw.plan(gpt, ranks=2, microbatches=4, cluster="cpu-workstation", memory_limit="1KiB")


def test_a_profile_of_another_model_is_refused(gpt, root):
    other = pw.profile(root / "resources/models/resnet18_narrow.pt2", cluster="cpu-workstation")
    with pytest.raises(pw.UsageError, match="not a profile of"):
        pw.plan(gpt, ranks=2, profile=other)


@pytest.mark.parametrize("options", [{"ranks": 0}, {"ranks": 5000}, {"ranks": 2, "microbatches": [0]}, {"ranks": 2, "schedules": ["none"]},
                                     {"ranks": 2, "chunks": [-1]}, {"ranks": 2, "batch": -4}, {"ranks": 2, "top": 0},
                                     {"ranks": 2, "threads": -1}, {"ranks": 2, "threads": 10**6}])
def test_unusable_searches(gpt, options):
    with pytest.raises(pw.UsageError):
        pw.search(gpt, cluster="cpu-workstation", **options)


@pytest.mark.parametrize("count, where", [(-1, {}), (4, {"cluster": "cpu-workstation"})])
def test_threads_that_measure_have_their_own_name_in_a_search(gpt, count, where):
    with pytest.raises(pw.UsageError, match=r"\bmeasure_threads\b") as caught:
        pw.search(gpt, ranks=2, measure_threads=count, **where)
    assert " threads" not in str(caught.value)


def test_commands_in_messages_stay_commands(gpt, gpt_plan):
    with pytest.raises(pw.UsageError, match="pipewright run --store"):
        pw.Store(gpt)
    with pytest.raises(pw.UsageError, match="pipewright run --help"):
        pw.run(gpt_plan, synthetic=True, steps=0)


def test_a_loss_that_the_model_does_not_have_is_refused(gpt):
    with pytest.raises(pw.UsageError, match="has no output nope"):
        pw.plan(gpt, ranks=2, cluster="cpu-workstation", loss="output:nope")


def test_a_run_that_is_refused_says_why(gpt_plan):
    with pytest.raises(pw.UsageError, match="betas"):
        pw.run(gpt_plan, synthetic=True, betas=(0.9, 0.99))
    with pytest.raises(pw.UsageError, match="steps"):
        pw.run(gpt_plan, synthetic=True, steps=0)


@pytest.mark.parametrize(
    "call, words",
    [
        (lambda gpt, plan: pw.plan(gpt, ranks=2, cluster="cpu-workstation", libraries=["nosuch.so"]), "give libraries the path"),
        (lambda gpt, plan: pw.profile(gpt, graphs=False), "^graphs=False is for GPUs; add device cuda"),
        (lambda gpt, plan: pw.profile(gpt, cluster="cpu-workstation", ranks=2), "omit ranks and libraries"),
        (lambda gpt, plan: pw.profile(gpt, cluster="cpu-workstation", device="cpu"), "omit them"),
        (lambda gpt, plan: simulate(splits=["a"]), "^splits, cluster and optimizer are for a layer table"),
        (lambda gpt, plan: simulate(seconds=1), "^seconds is how long"),
        (lambda gpt, plan: pw.plan(gpt, ranks=2, cluster="cpu-workstation", seconds=1), "^seconds is how long"),
        (lambda gpt, plan: pw.plan(gpt, splits=["blocks.2"], balance="memory", cluster="cpu-workstation"), "^splits says where"),
        (lambda gpt, plan: pw.run(plan, load_library=["nosuch.so"]), "give load_library the path"),
    ],
)
def test_sentences_name_the_arguments_of_the_function(gpt, gpt_plan, call, words):
    with pytest.raises(pw.UsageError, match=words) as caught:
        call(gpt, gpt_plan)
    assert "--" not in str(caught.value)
