#include <pybind11/operators.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>
#include <pybind11/stl/filesystem.h>

#include <filesystem>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "app/python/bindings.h"
#include "backends/host/files.h"
#include "schedules/error.h"
#include "schedules/units.h"
#include "simulator/report/metrics.h"
#include "simulator/text/counted.h"
#include "simulator/timeline/chrome.h"
#include "simulator/timeline/html.h"
#include "simulator/timeline/svg.h"
#include "simulator/trace/span_kind.h"
#include "simulator/trace/trace.h"
#include "simulator/trace/trace_csv.h"

namespace py = pybind11;

namespace pw::python {
namespace {

using Released = py::call_guard<py::gil_scoped_release>;

/// A column for each fact of the spans: what a table of them is made of.
py::dict columnsOf(const Trace& trace) {
  const std::size_t count = trace.spans.size();
  py::list rank(count), kind(count), stage(count), microbatch(count), peer(count), bytes(count), start(count), end(count);
  for (std::size_t i = 0; i < count; ++i) {
    const Span& span = trace.spans[i];
    rank[i] = span.rank.value;
    kind[i] = nameOf(span.kind);
    stage[i] = span.stage.value;
    microbatch[i] = span.microbatch.value;
    peer[i] = span.peer.value;
    bytes[i] = span.bytes;
    start[i] = span.start;
    end[i] = span.end;
  }
  py::dict columns;
  columns["rank"] = rank;
  columns["kind"] = kind;
  columns["stage"] = stage;
  columns["microbatch"] = microbatch;
  columns["peer"] = peer;
  columns["bytes"] = bytes;
  columns["start_ns"] = start;
  columns["end_ns"] = end;
  return columns;
}

std::vector<std::tuple<int, Ns, Bytes>> memoryOf(const Trace& trace) {
  std::vector<std::tuple<int, Ns, Bytes>> samples;
  for (const MemorySample& sample : trace.memory) samples.emplace_back(sample.rank.value, sample.time, sample.bytes);
  return samples;
}

using PackedSpan = std::tuple<int, int, int, int, int, Bytes, Ns, Ns>;
using PackedTrace = std::tuple<int, std::vector<PackedSpan>, std::vector<std::tuple<int, Ns, Bytes>>>;

PackedTrace packedTrace(const Trace& trace) {
  std::vector<PackedSpan> spans;
  for (const Span& s : trace.spans) {
    spans.emplace_back(s.rank.value, static_cast<int>(s.kind), s.stage.value, s.microbatch.value, s.peer.value, s.bytes, s.start, s.end);
  }
  return {trace.ranks, std::move(spans), memoryOf(trace)};
}

Trace unpackedTrace(const PackedTrace& state) {
  const auto& [ranks, spans, memory] = state;
  Trace trace{ranks, {}, {}};
  for (const auto& [rank, kind, stage, microbatch, peer, bytes, start, end] : spans) {
    if (kind < 0 || kind >= static_cast<int>(kSpanKinds)) throw py::value_error("a pickled Trace is damaged");
    trace.spans.push_back({Rank(rank), static_cast<SpanKind>(kind), Stage(stage), Microbatch(microbatch), Rank(peer), bytes, start, end});
  }
  for (const auto& [rank, time, bytes] : memory) trace.memory.push_back({Rank(rank), time, bytes});
  return trace;
}

std::string chromeOf(const Trace& trace, const std::string& title) { return toChromeJson({&trace}, {title}); }

/// The optional library for tables.
py::module_ pandas() {
  try {
    return py::module_::import("pandas");
  } catch (py::error_already_set& e) {
    if (!e.matches(PyExc_ModuleNotFoundError)) throw;
    throw py::import_error("Trace.to_dataframe needs pandas; install it, or use Trace.columns()");
  }
}

/// Writes the file in the format of its extension.
void saveTrace(const Trace& trace, const std::filesystem::path& path, const std::string& title) {
  const std::string ending = path.extension().string();
  if (ending == ".json") return writeFile(path, chromeOf(trace, title.empty() ? "step" : title));
  if (ending == ".svg") return writeFile(path, toSvg(trace, {.title = title}));
  if (ending == ".html") return writeFile(path, toHtml(trace, title));
  if (ending == ".csv") return writeFile(path, toSpanCsv(trace));
  throw UsageError(fmt::format("{} does not end in .json (for Perfetto), .svg, .html or .csv; name the file so", path.string()));
}

void bindRankFigures(py::module_& m) {
  py::class_<RankMetrics>(m, "RankFigures")
      .def_property_readonly("rank", [](const RankMetrics& r) { return r.rank.value; })
      .def_readonly("busy_ns", &RankMetrics::busy)
      .def_readonly("idle_ns", &RankMetrics::idle)
      .def_readonly("exposed_ns", &RankMetrics::exposedComm)
      .def_readonly("peak_bytes", &RankMetrics::peakBytes)
      .def_readonly("peak_live", &RankMetrics::peakLiveMicrobatches);
}

}  // namespace

void bindTraces(py::module_& m) {
  bindRankFigures(m);
  py::class_<Span>(m, "Span")
      .def_property_readonly("rank", [](const Span& s) { return s.rank.value; })
      .def_property_readonly("kind", [](const Span& s) { return nameOf(s.kind); })
      .def_property_readonly("stage", [](const Span& s) { return s.stage.value; })
      .def_property_readonly("microbatch", [](const Span& s) { return s.microbatch.value; })
      .def_property_readonly("peer", [](const Span& s) { return s.peer.value; })
      .def_readonly("bytes", &Span::bytes)
      .def_readonly("start_ns", &Span::start)
      .def_readonly("end_ns", &Span::end)
      .def(py::self == py::self);  // NOLINT(misc-redundant-expression): as above
  py::class_<Trace>(m, "Trace")
      .def_readonly("ranks", &Trace::ranks)
      .def_property_readonly("spans", [](const Trace& t) { return t.spans; })
      .def_property_readonly("memory", &memoryOf)
      .def_property_readonly("makespan_ns", [](const Trace& t) { return metricsOf(t).makespan; })
      .def_property_readonly("window_ns", [](const Trace& t) { return metricsOf(t).window; })
      .def_property_readonly("step_ns", [](const Trace& t) { return metricsOf(t).step; })
      .def_property_readonly("bubble", [](const Trace& t) { return metricsOf(t).bubbleFraction; })
      .def_property_readonly("by_rank", [](const Trace& t) { return metricsOf(t).ranks; })
      .def("columns", &columnsOf)
      .def("to_dataframe", [](const Trace& t) { return pandas().attr("DataFrame")(columnsOf(t)); })
      .def("save", &saveTrace, py::arg("path"), py::arg("title") = "", Released())
      .def("__repr__",
           [](const Trace& t) {
             const Metrics metrics = metricsOf(t);
             return fmt::format("<Trace of {}: {}, makespan {}, bubble {:.1f} %>", counted(t.ranks, "rank"),
                                counted(static_cast<std::int64_t>(t.spans.size()), "span"), formatDuration(metrics.makespan),
                                100 * metrics.bubbleFraction);
           })
      .def("to_csv", &toSpanCsv, Released())
      .def_static(
          "from_csv", [](const std::string& text) { return parseSpanCsv(text, "The table of spans"); }, py::arg("text"), Released())
      .def("to_chrome", &chromeOf, py::arg("title") = "step", Released())
      .def(
          "to_svg", [](const Trace& t, const std::string& title, int width) { return toSvg(t, {.title = title, .width = width}); },
          py::arg("title") = "", py::kw_only(), py::arg("width") = 1200, Released())
      .def("to_html", &toHtml, py::arg("title") = "", Released())
      .def(
          "_repr_html_", [](const Trace& t) { return toHtmlPart(t, ""); }, Released())
      .def("_html_part", &toHtmlPart, py::arg("title"), Released())
      .def(py::pickle(&packedTrace, &unpackedTrace))
      .def("__len__", [](const Trace& t) { return t.spans.size(); })
      .def(py::self == py::self);  // NOLINT(misc-redundant-expression): as above
}

}  // namespace pw::python
