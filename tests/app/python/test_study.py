"""Studies: every combination, as `plan` predicts it; kept, resumed and merged."""

import _thread
import json
import threading

import pipewright as pw
import pytest

GRID = {"schedule": ["gpipe", "1f1b"], "ranks": [2, 4], "microbatches": range(2, 5), "memory_limit": {"from": 62, "to": 1000, "step": 938}}


def test_every_combination_is_as_plan_predicts_it(table):
    study = pw.study({"model": table, **GRID})
    rows = study.rows()
    assert study.points == study.done == len(rows) == 2 * 2 * 3 * 2
    assert {(r["schedule"], r["ranks"], r["microbatches"], r["memory_limit"]) for r in rows} == {
        (s, ranks, m, limit) for s in ("gpipe", "1f1b") for ranks in (2, 4) for m in (2, 3, 4) for limit in (62, 1000)}
    for row in rows:
        shape = {"ranks": row["ranks"], "microbatches": row["microbatches"], "schedule": row["schedule"]}
        if row["excess_bytes"] > 0:
            with pytest.raises(pw.Error, match=f"limit of {row['memory_limit']} B"):
                pw.plan(layers=table, **shape, memory_limit=row["memory_limit"])
            continue
        plan = pw.plan(layers=table, **shape, memory_limit=row["memory_limit"])
        predicted = pw.simulate(plan)
        assert row["problem"] == "" and row["splits"].split() == plan.splits
        assert row["makespan_ns"] == predicted.makespan_ns and row["peak_bytes"] == max(r.peak_bytes for r in predicted.by_rank)
    # Two stages of two layers, F = 2 and B = 6, of gpipe: as in test_layers.
    (gpipe,) = (r for r in rows if (r["schedule"], r["ranks"], r["microbatches"], r["memory_limit"]) == ("gpipe", 2, 3, 1000))
    assert gpipe["makespan_ns"] == 42
    assert study.fitting == sum(r["excess_bytes"] == 0 for r in rows) < len(rows)
    best = study.best(1)[0]
    assert best["samples_per_second"] == max(r["samples_per_second"] for r in rows if r["excess_bytes"] == 0)
    assert [r["ranks"] for r in study.best_of_ranks()] == [2, 4]
    assert study.definition["microbatches"] == [2, 3, 4] and "24 of 24" in repr(study)


def test_a_file_is_resumed_and_its_shards_are_merged(table, tmp_path):
    file = tmp_path / "s.json"
    file.write_text(json.dumps({"version": 1, "model": "four.csv", **GRID, "microbatches": {"from": 2, "to": 4}}))
    seen = []
    first = pw.study(file, out=tmp_path / "s.db", progress=lambda done, every: len(seen) < 5 and not seen.append((done, every)))
    assert 0 < first.done < first.points == 24 and seen[-1][1] == 24
    whole = pw.study(file, out=tmp_path / "s.db")
    assert whole.done == 24 and pw.Study(tmp_path / "s.db").rows() == whole.rows()
    parts = [pw.study(file, out=tmp_path / f"s{i}.db", shard=f"{i}/2") for i in range(2)]
    assert sum(part.done for part in parts) == 24 and all(part.done for part in parts)
    parts[0].merge(tmp_path / "s1.db")
    assert parts[0].rows() == whole.rows()


def test_what_is_no_study_is_refused(table, tmp_path):
    with pytest.raises(pw.UsageError, match="unknown member rank"):
        pw.study({"model": table, "rank": 2, "ranks": 2, "microbatches": 2})
    with pytest.raises(pw.UsageError, match="give out"):
        pw.study({"model": table, **GRID}, shard="0/2")
    with pytest.raises(pw.UsageError, match="not a shard"):
        pw.study({"model": table, **GRID}, out=tmp_path / "s.db", shard="2/2")
    with pytest.raises(pw.UsageError, match="missing.json"):
        pw.study(tmp_path / "missing.json")
    with pytest.raises(pw.UsageError, match="There is no study"):
        pw.Study(tmp_path / "missing.db")


def test_what_progress_raises_is_raised(table):
    def fail(done, every):
        raise RuntimeError("enough")

    with pytest.raises(RuntimeError, match="enough"):
        pw.study({"model": table, **GRID}, progress=fail)


def test_ctrl_c_ends_a_study_and_what_is_done_is_kept(table, tmp_path):
    large = {"model": table, "schedule": "auto", "ranks": 4, "microbatches": range(2, 2000), "seconds": 0.1}  # minutes
    seen = threading.Event()

    def interrupt(done, every):
        if done >= 3 and not seen.is_set():
            seen.set()
            _thread.interrupt_main()

    with pytest.raises(KeyboardInterrupt):
        pw.study(large, out=tmp_path / "s.db", progress=interrupt)
    assert 3 <= pw.Study(tmp_path / "s.db").done < 1998
