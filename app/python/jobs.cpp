#include <pybind11/functional.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>
#include <pybind11/stl/filesystem.h>

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "app/python/bindings.h"
#include "app/python/signals.h"
#include "backends/dumps/read.h"
#include "backends/host/files.h"
#include "backends/resources/file_kind.h"
#include "backends/store/judged_runs.h"
#include "engine/planning/inputs/job_source.h"
#include "engine/planning/layout_answer.h"
#include "simulator/hang/report.h"
#include "simulator/job/explain_job.h"
#include "simulator/job/explain_job_json.h"
#include "simulator/job/job_json.h"
#include "simulator/plan/optimizer.h"

namespace py = pybind11;

namespace pw::python {
namespace {

using Released = py::call_guard<py::gil_scoped_release>;
using SharedJob = std::shared_ptr<Job>;

/// Nothing where `progress` stopped it.
SharedJob readJob(const JobOptions& options, const JobProgress& progress) {
  PendingSignals signals;
  const auto job = loadJob(options, [&, shouldContinue = signals.shouldContinue()](std::uint64_t done, std::uint64_t all) {
    return shouldContinue(0) && (!progress || progress(done, all));
  });
  signals.rethrow();
  return job ? std::make_shared<Job>(*job) : nullptr;
}

std::string explain(const Job& job) {
  const JobShape shape(job);
  PendingSignals signals;
  const auto explained = explainJob(shape, job, [shouldContinue = signals.shouldContinue()] { return shouldContinue(0); });
  signals.rethrow();
  return explanationJson(shape, job, *explained);
}

std::string hangOf(const std::vector<std::string>& dumps, const Schedule* schedule) {
  const hang::Dumps read = readDumps(dumps);
  return hang::diagnosisJson(read, hang::diagnose(read, schedule));
}

void bindJob(py::module_& m) {
  py::class_<JobOptions>(m, "JobOptions")
      .def(py::init<>())
      .def_readwrite("paths", &JobOptions::paths)
      .def_readwrite("store", &JobOptions::store)
      .def_property(
          "run", [](const JobOptions& options) { return options.run ? options.run->value : 0; },
          [](JobOptions& options, int id) { options.run = id > 0 ? std::optional(RunId(id)) : std::nullopt; })
      .def_readwrite("steps", &JobOptions::steps)
      .def_readwrite("patterns", &JobOptions::patterns);
  py::class_<Job, SharedJob>(m, "Job")
      .def_readonly("name", &Job::name)
      .def_readonly("replicas", &Job::replicas)
      .def_readonly("tensor", &Job::tensor)
      .def_readonly("notes", &Job::notes)
      .def_property_readonly("times", [](const Job& j) { return nameOf(j.times); })
      .def_property_readonly("schedule", [](const Job& j) { return j.schedule; })
      .def_property_readonly("steps",
                             [](const Job& j) {
                               std::vector<std::pair<std::string, Ns>> steps;
                               for (const JobStep& step : j.steps) steps.emplace_back(step.name, step.step);
                               return steps;
                             })
      .def(
          "save", [](const Job& j, const std::filesystem::path& path) { writeFile(path, toJson(j)); }, py::arg("path"), Released())
      .def("__repr__", [](const Job& j) { return fmt::format("<Job {}: {}, {}>", j.name, shapeText(j), stepsText(j)); });
  m.def("read_job", &readJob, Released());
  m.def("explain", &explain, Released());
  m.def(
      "is_job", [](const std::string& path) { return fileKindOf(path) == FileKind::Job; }, Released());
}

void bindLayouts(py::module_& m) {
  py::class_<LayoutOptions>(m, "LayoutOptions")
      .def(py::init<>())
      .def_readwrite("layout", &LayoutOptions::layout)
      .def_readwrite("ranks", &LayoutOptions::ranks)
      .def_readwrite("chunks", &LayoutOptions::chunks)
      .def_readwrite("microbatches", &LayoutOptions::microbatches)
      .def_readwrite("group", &LayoutOptions::group)
      .def_readwrite("num_layers", &LayoutOptions::layers)
      .def_readwrite("mtp_num_layers", &LayoutOptions::mtp)
      .def_readwrite("table", &LayoutOptions::table)
      .def_readwrite("cluster", &LayoutOptions::cluster)
      .def_readwrite("optimizer", &LayoutOptions::optimizer);
  m.def(
      "layout", [](const LayoutOptions& options) { return layoutJson(answerLayout(options)); }, Released());
}

}  // namespace

void bindJobs(py::module_& m) {
  bindJob(m);
  bindLayouts(m);
  m.def("hang", &hangOf, py::arg("dumps"), py::arg("schedule").none(true), Released());
  m.def(
      "gate",
      [](const std::string& store, const std::string& against, int run, double limit) {
        return judgedRunsJson(judgeRuns({store, against, run > 0 ? std::optional(RunId(run)) : std::nullopt, limit}, &warn));
      },
      Released());
}

}  // namespace pw::python
