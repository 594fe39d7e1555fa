#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "app/python/bindings.h"
#include "backends/store/run_store.h"
#include "engine/planning/run_verdict.h"
#include "simulator/plan/model_cut.h"
#include "simulator/report/json.h"
#include "simulator/report/verdict.h"

namespace py = pybind11;

namespace pw::python {
namespace {

using Released = py::call_guard<py::gil_scoped_release>;

std::optional<RunId> idOf(std::optional<int> number) { return number ? std::optional<RunId>(RunId(*number)) : std::nullopt; }

std::string_view textOf(std::optional<Transport> transport) { return transport ? nameOf(*transport) : ""; }

/// Every fact of how a run was computed, by the store's names.
py::dict factsOf(const RunFacts& facts) {
  py::dict dict;
  for (const RunColumn& column : kRunColumns) dict[py::str(column.name)] = textOf(column, facts);
  return dict;
}

/// Losses of all steps, read a few at a time, as their traces may be large.
std::vector<double> lossesOf(const RunStore& store, RunId run) {
  constexpr int kAtOnce = 64;
  std::vector<double> losses;
  const int count = store.stepCount(run);
  for (int first = 0; first < count; first += kAtOnce) {
    for (const StepRecord& step : store.loadSteps(run, first, kAtOnce)) losses.push_back(step.loss);
  }
  return losses;
}

void bindRecords(py::module_& m) {
  py::class_<RunSummary>(m, "RunSummary")
      .def_property_readonly("id", [](const RunSummary& r) { return r.id.value; })
      .def_readonly("started_at", &RunSummary::startedAt)
      .def_readonly("model", &RunSummary::model)
      .def_readonly("schedule", &RunSummary::schedule)
      .def_property_readonly("backend", [](const RunSummary& r) { return textOf(r.transport); })
      .def_readonly("failure", &RunSummary::failure)
      .def_readonly("ranks", &RunSummary::ranks)
      .def_readonly("microbatches", &RunSummary::microbatches)
      .def_readonly("steps", &RunSummary::steps)
      .def_readonly("predicted_step_ns", &RunSummary::predictedStep)
      .def_readonly("measured_step_ns", &RunSummary::medianMeasuredStep)
      .def_property_readonly("state", [](const RunSummary& r) { return nameOf(r.state); })
      .def_property_readonly("facts", [](const RunSummary& r) { return factsOf(r.facts); })
      .def("__repr__", [](const RunSummary& r) {
        return "<Run " + std::to_string(r.id.value) + ": " + r.model + ", " + r.schedule + ", " + std::string(nameOf(r.state)) + ">";
      });
  py::class_<RunRecord>(m, "RunRecord")
      .def_property_readonly("id", [](const RunRecord& r) { return r.id.value; })
      .def_readonly("started_at", &RunRecord::startedAt)
      .def_property_readonly("backend", [](const RunRecord& r) { return textOf(r.transport); })
      .def_readonly("failure", &RunRecord::failure)
      .def_readonly("seed", &RunRecord::seed)
      .def_readonly("plan", &RunRecord::plan)
      .def_readonly("predicted", &RunRecord::predicted)
      .def_property_readonly("state", [](const RunRecord& r) { return nameOf(r.state); })
      .def_property_readonly("facts", [](const RunRecord& r) { return factsOf(r.facts); });
}

StepVerdict judgeTwo(Trace before, Trace after, const std::optional<ModelCut>& cut, const std::optional<ModelCut>& cutAfter) {
  return judgeSteps({std::move(before)}, {std::move(after)}, splitsOf(cut, cutAfter));
}

void bindVerdicts(py::module_& m) {
  py::class_<StepVerdict>(m, "Verdict")
      .def_property_readonly("makespan_error", [](const StepVerdict& v) { return v.verdict.comparison.makespanError; })
      .def_property_readonly("step_error", [](const StepVerdict& v) { return v.verdict.comparison.stepError; })
      .def_property_readonly("action_error", [](const StepVerdict& v) { return v.verdict.comparison.actionError; })
      .def_property_readonly("matched", [](const StepVerdict& v) { return v.verdict.comparison.matched; })
      .def_property_readonly("matched_split", [](const StepVerdict& v) { return v.verdict.comparison.matchedSplit; })
      .def_property_readonly("unmatched", [](const StepVerdict& v) { return v.verdict.comparison.unmatched; })
      .def_property_readonly("same_splits", [](const StepVerdict& v) { return v.verdict.comparison.splits == Splits::Same; })
      .def_property_readonly("replayed_makespan_ns", [](const StepVerdict& v) { return v.verdict.replayed; })
      .def_readonly("before_reduction_waits_ns", &StepVerdict::beforeWaits)
      .def_readonly("after_reduction_waits_ns", &StepVerdict::afterWaits)
      .def("sentence", [](const StepVerdict& v, const std::string& before, const std::string& after,
                          bool happened) { return verdictText(v.verdict, before, after, happened ? Happened::Yes : Happened::No); })
      .def("json", [](const StepVerdict& v, const std::string& sentence) { return comparisonJson(v, sentence); });
  m.def("judge", &judgeTwo, Released());
  m.def("judge_run", &judgeRun, Released());
}

}  // namespace

void bindStores(py::module_& m) {
  bindRecords(m);
  bindVerdicts(m);
  py::class_<RunStore>(m, "RunStore")
      .def(py::init([](const std::string& path) { return std::make_unique<RunStore>(path, RunStore::Mode::ReadOnly); }), Released())
      .def_property_readonly("note", &RunStore::note)
      .def("runs", &RunStore::list, Released())
      .def(
          "load", [](const RunStore& s, std::optional<int> id) { return s.load(idOf(id)); }, Released())
      .def(
          "step_numbers", [](const RunStore& s, int run, int most) { return s.stepNumbers(RunId(run), most); }, Released())
      .def(
          "losses", [](const RunStore& s, int run) { return lossesOf(s, RunId(run)); }, Released())
      .def(
          "trace", [](const RunStore& s, const RunRecord& run, std::optional<int> step) { return s.loadStep(run, step).measured; },
          Released());
}

}  // namespace pw::python
