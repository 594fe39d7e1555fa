#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "app/python/bindings.h"
#include "app/python/pictures.h"
#include "app/python/signals.h"
#include "engine/planning/inputs/schedule_source.h"
#include "engine/planning/prediction.h"
#include "engine/planning/subject.h"
#include "schedules/check.h"
#include "schedules/error.h"
#include "schedules/units.h"
#include "simulator/job/job.h"
#include "simulator/order/limit_sensitivity.h"
#include "simulator/plan/model_cut.h"
#include "simulator/plan/plan.h"
#include "simulator/report/bubble_causes.h"
#include "simulator/report/explain_text.h"
#include "simulator/report/json.h"
#include "simulator/report/sensitivity.h"

namespace py = pybind11;

namespace pw::python {
namespace {

using Released = py::call_guard<py::gil_scoped_release>;

/// What `simulate` returns.
struct Prediction {
  Subject subject;
  SubjectPrediction predicted;
  Sending sending = Sending::Overlapped;
  std::optional<ModelCut> cut;  ///< of a plan; nothing: not known
};

/// The calling thread has released the GIL.
Prediction predictionOf(Subject subject, const std::string& sends, bool why, JitterOptions jitter) {
  const Sending sending = valueFor<Sending>("sends", sends);
  PendingSignals signals;
  jitter.tell = [shouldContinue = signals.shouldContinue()](int /*done*/) { return shouldContinue(1); };
  SubjectPrediction predicted = predictSubject(subject, sending, why, jitter);
  signals.rethrow();
  if (!predicted.problems.empty()) {
    throw UsageError(refusalOf(subject.schedule.name, predicted.problems.front()) + "; pipewright.check lists all problems");
  }
  return {std::move(subject), std::move(predicted), sending, {}};
}

std::vector<std::string> bubblesOf(const Prediction& p) {
  std::vector<std::string> lines;
  for (const Bubble& bubble : p.predicted.report.explanation.bubbles) lines.push_back(toString(bubble));
  return lines;
}

/// By rank: nanoseconds by cause.
std::vector<std::map<std::string, Ns>> idleOf(const Prediction& p) {
  std::vector<std::map<std::string, Ns>> ranks;
  for (const IdleByCause& by : idleByCause(p.predicted.report.explanation)) {
    auto& rank = ranks.emplace_back();
    for (const BubbleCause cause : kPlainCauses) rank[std::string(nameOf(cause))] = by.of(cause);
    rank["work ready"] = by.workReady;
  }
  return ranks;
}

/// The document of `simulate --json`.
py::object documentOf(const Prediction& p) {
  return py::module_::import("json").attr("loads")(predictionJson(p.predicted.report, p.predicted.rows, p.subject.costs));
}

void bindPredictionOptions(py::module_& m) {
  py::class_<SubjectOptions>(m, "SubjectOptions")
      .def(py::init<>())
      .def_readwrite("forward", &SubjectOptions::forward)
      .def_readwrite("backward", &SubjectOptions::backward)
      .def_readwrite("input", &SubjectOptions::input)
      .def_readwrite("weight", &SubjectOptions::weight)
      .def_readwrite("overlap", &SubjectOptions::overlap)
      .def_readwrite("latency", &SubjectOptions::latency)
      .def_readwrite("transfer", &SubjectOptions::transfer)
      .def_readwrite("load", &SubjectOptions::load)
      .def_readwrite("store", &SubjectOptions::store)
      .def_readwrite("costs", &SubjectOptions::costs)
      .def_readwrite("costs_from", &SubjectOptions::costsFrom)
      .def_readwrite("costs_from_steps", &SubjectOptions::costsFromSteps)
      .def_property(
          "job", [](const SubjectOptions& o) { return std::const_pointer_cast<Job>(o.job); },
          [](SubjectOptions& o, std::shared_ptr<Job> job) { o.job = std::move(job); })
      .def_readwrite("layers", &SubjectOptions::layers)
      .def_readwrite("splits", &SubjectOptions::splits)
      .def_readwrite("cluster", &SubjectOptions::cluster)
      .def_property(
          "optimizer", [](const SubjectOptions& o) { return std::string(o.optimizer ? nameOf(*o.optimizer) : std::string_view()); },
          [](SubjectOptions& o, const std::string& name) {
            o.optimizer = name.empty() ? std::nullopt : std::optional(parseOptimizer(name));
          })
      .def_readwrite("memory_limit", &SubjectOptions::memoryLimit)
      .def_readwrite("live_limit", &SubjectOptions::liveLimit)
      .def_readwrite("slow", &SubjectOptions::slow)
      .def_readwrite("schedule", &SubjectOptions::schedule)
      .def_readwrite("seconds", &SubjectOptions::seconds)
      .def_property(
          "shape", [](const SubjectOptions& o) { return std::tuple(o.shape.ranks, o.shape.chunks, o.shape.microbatches); },
          [](SubjectOptions& o, const std::tuple<int, int, int>& shape) {
            std::tie(o.shape.ranks, o.shape.chunks, o.shape.microbatches) = shape;
          });
}

/// `simulate` of a Schedule or a Plan.
template <class Source>
Prediction simulateSource(const Source& source, const SubjectOptions& options, const std::string& sends, bool why, double jitter, int draws,
                          std::uint64_t seed) {
  Prediction prediction = predictionOf(subjectOf(source, options), sends, why, {jitter, draws, seed, {}});
  if constexpr (std::is_same_v<Source, Plan>) prediction.cut = cutOf(source);
  return prediction;
}

/// `simulate` of the schedule that the options name.
Prediction simulateNamed(const py::none& /*what*/, SubjectOptions options, const std::string& sends, bool why, double jitter, int draws,
                         std::uint64_t seed) {
  const py::gil_scoped_release released;
  PendingSignals signals;
  options.shouldContinue = signals.shouldContinue();
  Subject subject = subjectOf(options);
  signals.rethrow();
  return predictionOf(std::move(subject), sends, why, {jitter, draws, seed, {}});
}

/// Its numbers.
void bindFigures(py::class_<Prediction>& prediction) {
  prediction.def_property_readonly("makespan_ns", [](const Prediction& p) { return p.predicted.report.metrics.makespan; })
      .def_property_readonly("window_ns", [](const Prediction& p) { return p.predicted.report.metrics.window; })
      .def_property_readonly("step_ns", [](const Prediction& p) { return p.predicted.report.metrics.step; })
      .def_property_readonly("bubble", [](const Prediction& p) { return p.predicted.report.metrics.bubbleFraction; })
      .def_property_readonly("bubble_in_window", [](const Prediction& p) { return p.predicted.report.metrics.bubbleFractionWindow; })
      .def_property_readonly("mfu",
                             [](const Prediction& p) -> std::optional<double> {
                               const double share = p.predicted.report.utilisation;
                               return share > 0 ? std::optional(share) : std::nullopt;
                             })
      .def_property_readonly("period_ns", [](const Prediction& p) { return p.predicted.report.steadyPeriod; })
      .def_property_readonly("lower_bound_ns", [](const Prediction& p) { return p.predicted.report.lowerBound.flush; })
      .def_property_readonly("by_rank", [](const Prediction& p) { return p.predicted.report.metrics.ranks; })
      .def_property_readonly("fits", [](const Prediction& p) { return p.predicted.report.fits; })
      .def_property_readonly("excess", [](const Prediction& p) { return p.predicted.excess.value_or(""); });
}

/// What it consists of, and comes from.
void bindParts(py::class_<Prediction>& prediction) {
  prediction.def_property_readonly("bubbles", &bubblesOf)
      .def_property_readonly("idle_by_cause", &idleOf)
      .def_property_readonly("schedule", [](const Prediction& p) { return p.predicted.rows; })
      .def_property_readonly("gap",
                             [](const Prediction& p) -> std::optional<double> {
                               const auto& certificate = p.predicted.report.certificate;
                               if (!certificate) return std::nullopt;
                               return certificate->gap();
                             })
      .def_property_readonly("trace", [](const Prediction& p) { return p.predicted.trace; })
      .def_readonly("_cut", &Prediction::cut)
      .def_property_readonly("costs", [](const Prediction& p) { return p.subject.costSource; });
}

/// How notebooks and prompts show it.
void bindDisplay(py::class_<Prediction>& prediction) {
  prediction
      .def(
          "_repr_html_", [](const Prediction& p) { return pictureOf(p.predicted.trace, p.subject.schedule, p.subject.costSource); },
          Released())
      .def("__repr__", [](const Prediction& p) {
        const Metrics& metrics = p.predicted.report.metrics;
        return fmt::format("<Prediction of {}: makespan {}, bubble {:.1f} %>", shapeLine(p.subject.schedule),
                           formatDuration(metrics.makespan), 100 * metrics.bubbleFraction);
      });
}

/// What is computed on demand.
void bindQuestions(py::class_<Prediction>& prediction) {
  prediction
      .def("memory",
           [](const Prediction& p) {
             const std::string json = [&] {
               const py::gil_scoped_release released;
               return memoryJson(memoryOf(p.predicted.rows, p.subject.costs, p.sending));
             }();
             return py::module_::import("json").attr("loads")(json);
           })
      .def(
          "sensitivity",
          [](const Prediction& p, double change) {
            std::vector<std::tuple<std::string, Ns, Ns, Ns>> all;
            for (const Sensitivity& s : sensitivityOf(p.predicted.rows, p.subject.costs, p.sending, change).all)
              all.emplace_back(nameOf(s.of), s.onPath, s.faster, s.slower);
            return all;
          },
          py::arg("change") = 0.1, Released())
      .def(
          "limit_sensitivity",
          [](const Prediction& p, double change) {
            std::vector<std::tuple<std::optional<int>, Ns, Ns, std::optional<Ns>>> all;
            if (!p.subject.sought || !p.subject.certificate) return all;
            PendingSignals signals;
            const OrderEffort effort{.threads = kOrderThreads, .shouldContinue = signals.shouldContinue()};
            for (const LimitSensitivity& limit : limitSensitivity(*p.subject.sought, p.subject.certificate->time, change, effort))
              all.emplace_back(limit.rank ? std::optional(limit.rank->value) : std::nullopt, limit.now, limit.more, limit.less);
            signals.rethrow();
            return all;
          },
          py::arg("change") = 0.1, Released());
}

}  // namespace

void bindPredictions(py::module_& m) {
  bindPredictionOptions(m);
  py::class_<Prediction> prediction(m, "Prediction");
  bindFigures(prediction);
  bindParts(prediction);
  bindDisplay(prediction);
  bindQuestions(prediction);
  prediction.def("to_dict", &documentOf);
  m.def("simulate", &simulateNamed);
  m.def("simulate", &simulateSource<Schedule>, Released());
  m.def("simulate", &simulateSource<Plan>, Released());
}

}  // namespace pw::python
