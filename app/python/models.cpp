#include <pybind11/functional.h>
#include <pybind11/operators.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>
#include <pybind11/stl/filesystem.h>

#include <algorithm>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "app/python/bindings.h"
#include "app/python/signals.h"
#include "backends/host/files.h"
#include "backends/resources/resources.h"
#include "engine/planning/inputs/layer_costs.h"
#include "engine/planning/inputs/limits.h"
#include "engine/planning/inputs/measure.h"
#include "engine/planning/inspection.h"
#include "engine/planning/plan_model.h"
#include "schedules/error.h"
#include "simulator/costs/estimate.h"
#include "simulator/costs/profile.h"
#include "simulator/order/problem/made_schedules.h"
#include "simulator/plan/optimizer.h"

namespace py = pybind11;

namespace pw::python {
namespace {

using Released = py::call_guard<py::gil_scoped_release>;

void bindModelOptions(py::module_& m) {
  py::class_<MeasureOptions>(m, "MeasureOptions")
      .def(py::init<>())
      .def_property(
          "device", [](const MeasureOptions& o) { return o.device ? nameOf(*o.device) : std::string(); },
          [](MeasureOptions& o, const std::string& name) {
            o.device = name.empty() ? std::nullopt : std::optional(parseMeasureDevice(name));
          })
      .def_property(
          "precision", [](const MeasureOptions& o) { return precisionName(o.precision); },
          [](MeasureOptions& o, const std::string& name) {
            const auto precision = precisionNamed(name);
            if (!precision) throw UsageError("precision is \"" + name + "\"; use traced, bf16, fp16, or for estimates fp8");
            o.precision = *precision;
          })
      .def_property(
          "attention", [](const MeasureOptions& o) { return nameOf(o.attention); },
          [](MeasureOptions& o, const std::string& name) { o.attention = valueFor<Attention>("attention", name); })
      .def_readwrite("tf32", &MeasureOptions::tf32)
      .def_readwrite("no_graphs", &MeasureOptions::noGraphs)
      .def_readwrite("threads", &MeasureOptions::threads)
      .def_readwrite("libraries", &MeasureOptions::libraries);
  py::class_<PlanOptions>(m, "PlanOptions")
      .def(py::init<>())
      .def_readwrite("models", &PlanOptions::models)
      .def_readwrite("schedule", &PlanOptions::schedule)
      .def_readwrite("seconds", &PlanOptions::seconds)
      .def_readwrite("ranks", &PlanOptions::ranks)
      .def_readwrite("chunks", &PlanOptions::chunks)
      .def_readwrite("microbatches", &PlanOptions::microbatches)
      .def_readwrite("microbatch", &PlanOptions::microbatch)
      .def_readwrite("batch", &PlanOptions::batch)
      .def_readwrite("replicas", &PlanOptions::replicas)
      .def_readwrite("splits", &PlanOptions::splits)
      .def_property(
          "balance", [](const PlanOptions& o) { return o.balance ? std::optional(nameOf(*o.balance)) : std::nullopt; },
          [](PlanOptions& o, const std::optional<std::string>& name) {
            o.balance = name ? std::optional(valueFor<Balance>("balance", *name)) : std::nullopt;
          })
      .def_readwrite("profile", &PlanOptions::profile)
      .def_readwrite("profile_at_hand", &PlanOptions::profileAtHand)
      .def_readwrite("cluster", &PlanOptions::cluster)
      .def_readwrite("rank_order", &PlanOptions::rankOrder)
      .def_readwrite("same_splits", &PlanOptions::sameSplits)
      .def_readwrite("memory_limit", &PlanOptions::memoryLimit)
      .def_property(
          "recompute", [](const PlanOptions& o) { return wordsOf(o.recompute); },
          [](PlanOptions& o, const std::vector<std::string>& words) { o.recompute = parseRecompute(words); })
      .def_property(
          "share", [](const PlanOptions& o) { return o.share ? nameOf(*o.share) : "auto"; },
          [](PlanOptions& o, const std::string& name) {
            o.share = name == "auto" ? std::nullopt : std::optional(valueFor<Sharing>("share", name));
          })
      .def_property(
          "optimizer", [](const PlanOptions& o) { return nameOf(o.optimizer.kind); },
          [](PlanOptions& o, const std::string& name) { o.optimizer.kind = parseOptimizer(name); })
      .def_property(
          "momentum", [](const PlanOptions& o) { return o.optimizer.momentum; },
          [](PlanOptions& o, double momentum) { o.optimizer.momentum = momentum; })
      .def_readwrite("zero1", &PlanOptions::zero1)
      .def_readwrite("loss", &PlanOptions::loss)
      .def_readwrite("how", &PlanOptions::how);
}

/// Our names by those of torch.optim's classes, in the order in which they are offered.
py::dict optimizers() {
  py::dict names;
  for (const OptimizerFacts& facts : kOptimizers) names[py::str(std::string(facts.className))] = std::string(facts.name);
  return names;
}

Plan planned(PlanOptions options) {
  PendingSignals signals;
  options.shouldContinue = signals.shouldContinue();
  PlannedModel planned = planModel(std::move(options), &warn);
  signals.rethrow();
  if (planned.tooLarge) throw TooLarge(tooLargeSentence(planned));
  return std::move(planned.plan);
}

Profile profiled(const std::vector<std::string>& models, std::int64_t microbatch, int ranks, const MeasureOptions& how,
                 const std::string& loss, const std::string& cluster) {
  requireWhole("--ranks", ranks, 0, kMostPlanRanks);
  if (!cluster.empty()) refuseBesideEstimate(how, ranks);
  refuseWhatCannotMeasure(how, cluster.empty() ? CostsFrom::Measuring : CostsFrom::Cluster);
  const ModelGraph graph = loadModel(models);
  requireOperators(graph);
  if (microbatch == 0) microbatch = exportedBatch(graph);
  if (!cluster.empty()) return estimateFor(graph, microbatch, loadCluster(cluster), how, lossNamed(loss, graph));
  return measureWithRanks(models, microbatch, std::max(1, ranks), how, lossNamed(loss, graph), &warn);
}

std::string inspected(const std::vector<std::string>& models, std::int64_t microbatch) {
  InspectOptions options;
  options.models = models;
  options.microbatch = microbatch;
  return documentOf(inspect(options), options);
}

}  // namespace

void bindModels(py::module_& m) {
  bindModelOptions(m);
  py::class_<Profile>(m, "Profile")
      .def_readonly("model", &Profile::model)
      .def_readonly("microbatch", &Profile::microbatch)
      .def_readonly("estimated", &Profile::estimated)
      .def_property_readonly("source", [](const Profile& p) { return sourceOf(p); })
      .def("to_json", py::overload_cast<const Profile&>(&toJson), Released())
      .def_static(
          "from_json", [](const std::string& text) { return parseProfile(text, "The profile"); }, py::arg("text"), Released())
      .def(
          "save", [](const Profile& p, const std::filesystem::path& path) { writeFile(path, toJson(p)); }, py::arg("path"), Released())
      .def_static(
          "load", [](const std::filesystem::path& path) { return loadProfile(path); }, py::arg("path"), Released())
      .def(py::self == py::self)  // NOLINT(misc-redundant-expression): pybind11 defines operator== so
      .def("__repr__", [](const Profile& p) { return "<Profile of " + p.model + ", " + sourceOf(p) + ">"; })
      .def(py::pickle([](const Profile& p) { return toJson(p); },
                      [](const std::string& text) { return parseProfile(text, "A pickled profile"); }));
  m.def("clusters", &clusterPresets);
  m.def("optimizers", &optimizers);
  m.def("made_schedules", [] {
    std::vector<std::string> names;
    names.reserve(std::size(kMadeSchedules));
    for (const MadeSchedule& made : kMadeSchedules) names.emplace_back(made.name);
    return names;
  });
  m.def("plan", &planned, Released());
  m.def("profile", &profiled, Released());
  m.def("inspect", &inspected, Released());
}

}  // namespace pw::python
