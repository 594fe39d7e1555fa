"""Traces: spans, tables, drawings, files."""

import json
import pickle
import re
import xml.etree.ElementTree as xml

import pipewright as pw
import pytest

MS = 1_000_000


@pytest.fixture(scope="module")
def trace():
    return pw.simulate(pw.schedule("1f1b", ranks=2, microbatches=4), forward="1ms", backward="2ms", transfer="100us").trace


def test_spans_are_all_actions_and_messages(trace):
    kinds = [span.kind for span in trace.spans]
    # 4 microbatches on 2 stages, and each crosses the one link both ways
    assert [kinds.count(k) for k in ("F", "B", "SEND_F", "SEND_B")] == [8, 8, 4, 4]
    assert len(trace) == len(kinds) and trace.ranks == 2
    assert sum(s.end_ns - s.start_ns for s in trace.spans if s.kind == "F") == 8 * MS
    assert all(s.peer == 1 - s.rank for s in trace.spans if s.kind.startswith("SEND"))
    assert trace.spans == sorted(trace.spans, key=lambda s: (s.start_ns, s.rank, s.end_ns))


def test_figures_are_those_of_the_prediction(trace):
    p = pw.simulate(pw.schedule("1f1b", ranks=2, microbatches=4), forward="1ms", backward="2ms", transfer="100us")
    assert (p.makespan_ns, p.step_ns, p.bubble) == (trace.makespan_ns, trace.step_ns, trace.bubble)
    assert [r.busy_ns for r in trace.by_rank] == [12 * MS, 12 * MS]
    assert all(r.busy_ns + r.idle_ns == trace.makespan_ns for r in trace.by_rank)


def test_columns_are_the_spans(trace):
    columns = trace.columns()
    assert list(columns) == ["rank", "kind", "stage", "microbatch", "peer", "bytes", "start_ns", "end_ns"]
    assert [columns[name][3] for name in columns] == [getattr(trace.spans[3], name) for name in columns]


def test_a_data_frame(trace):
    frame = trace.to_dataframe()
    assert len(frame) == len(trace)
    busy = frame[frame.kind.isin(["F", "B"])].assign(time=lambda f: f.end_ns - f.start_ns).groupby("rank").time.sum()
    assert busy.to_dict() == {0: 12 * MS, 1: 12 * MS}


def test_a_data_frame_needs_pandas(trace, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "pandas", None)
    with pytest.raises(ImportError, match="needs pandas"):
        trace.to_dataframe()


def test_chrome_json_has_every_action(trace):
    events = json.loads(trace.to_chrome("mine"))
    events = events["traceEvents"] if isinstance(events, dict) else events
    compute = [e for e in events if e.get("ph") == "X" and re.fullmatch(r"\d+[FB]\d+", e["name"])]
    assert len(compute) == 16
    assert "mine" in trace.to_chrome("mine")


def test_the_table_reads_back(trace):
    again = pw.Trace.from_csv(trace.to_csv())
    assert again.spans == trace.spans
    assert trace.to_csv().count("\n") == len(trace) + 1


def test_pickle_keeps_memory_too(trace):
    assert pickle.loads(pickle.dumps(trace)) == trace


def test_svg_is_a_drawing_with_tooltips(trace):
    drawing = xml.fromstring(trace.to_svg("a < b"))
    titles = [e.text for e in drawing.iter("{http://www.w3.org/2000/svg}title")]
    assert titles[0] == "a < b"
    assert sum(bool(re.match(r"\d+[FB]\d+ ", t)) for t in titles[1:]) == 16


def test_html_is_one_file_without_references(trace):
    page = trace.to_html("title")
    assert page.startswith("<!doctype html>") and page.count("<svg") == 1
    assert not re.search(r"(src|href)=", page) and "<script" not in page
    assert page.count("<title>") > 16


def test_in_a_notebook_styles_concern_the_drawing_alone(trace):
    part = trace._repr_html_()
    assert "<html" not in part and "prefers-color-scheme:dark" in part
    style = re.search(r"<style>(.*?)</style>", part, re.S)[1]
    selectors = re.findall(r"([^{}]+)\{", re.sub(r"@media\([^)]*\)\{", "", style))
    assert selectors and all(".pipewright " in selector for selector in selectors)
    assert "data-jp-theme-light" in style and ".vscode-dark" in style


def test_an_svg_for_papers_stays_light(trace):
    assert "prefers-color-scheme" not in trace.to_svg()


@pytest.mark.parametrize("ending, begin", [("json", "{"), ("svg", "<svg"), ("html", "<!doctype"), ("csv", "rank,kind")])
def test_a_file_has_the_form_of_its_name(trace, tmp_path, ending, begin):
    file = tmp_path / f"step.{ending}"
    trace.save(file)
    assert file.read_text().lstrip().startswith(begin)


def test_another_name_is_refused(trace, tmp_path):
    with pytest.raises(pw.UsageError, match="does not end in"):
        trace.save(tmp_path / "step.png")


@pytest.mark.parametrize("text", ["", "rank", "rank,kind,stage,microbatch,peer,bytes,start_ns,end_ns\n0,F,0,0,0,0,5,3\n", "a,b\n1,2\n"])
def test_damaged_tables_are_refused(text):
    with pytest.raises(pw.UsageError):
        pw.Trace.from_csv(text)


@pytest.mark.parametrize("name", ["1f1b", "zbv", "dualpipe", "lockstep"])
def test_schedules_show_themselves(name):
    part = pw.schedule(name, ranks=4, microbatches=8)._repr_html_()
    assert "<svg" in part and f"{name}: 4 ranks" in part


def test_a_schedule_that_cannot_run_shows_why():
    part = pw.Schedule.from_csv("0F0,0B0\n1B0,\n", name="<b>")._repr_html_()
    assert "cannot run" in part and "<svg" not in part and "<b>" not in part
