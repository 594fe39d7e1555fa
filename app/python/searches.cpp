#include <pybind11/functional.h>
#include <pybind11/operators.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <atomic>
#include <csignal>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "app/python/bindings.h"
#include "engine/planning/search_model.h"
#include "engine/processes/process.h"
#include "simulator/partition/recompute.h"
#include "simulator/plan/optimizer.h"

namespace py = pybind11;

namespace pw::python {
namespace {

using Released = py::call_guard<py::gil_scoped_release>;

/// Called with what is done of all; false ends the search.
using SearchProgress = std::function<bool(int done, int all)>;

/// What the call returns. Its errors name options as the arguments of `search` are called.
template <class Call>
auto inWordsOfSearch(const Call& call) {
  try {
    return call();
  } catch (const UsageError& e) {
    throw UsageError(spelled(e.what(), {{"--threads", "measure_threads"}}));
  }
}

/// `interruptible`: Ctrl-C ends the search, and the best so far is the result; SIGTERM ends the process as it would have without a search.
/// One such search at a time in a process.
std::shared_ptr<SearchedModel> searched(const SearchOptions& options, const SearchProgress& progress, bool interruptible) {
  std::optional<Interrupts> interrupts;
  if (interruptible) interrupts.emplace();
  std::atomic<int> signal = 0;
  const auto shouldContinue = [&](int done, int all, const Candidate*) {
    if (interrupts && signal == 0) signal = interrupts->take();
    return signal == 0 && (!progress || progress(done, all));
  };
  const auto measuring = [&](bool begins) {  // the launcher listens itself
    interrupts.reset();
    if (!begins && interruptible) interrupts.emplace();
  };
  auto result = std::make_shared<SearchedModel>(inWordsOfSearch([&] { return searchModel(options, shouldContinue, warn, measuring); }));
  interrupts.reset();
  if (signal == SIGTERM) ::raise(SIGTERM);
  return result;
}

std::vector<Candidate> copies(const std::vector<const Candidate*>& candidates) {
  std::vector<Candidate> list;
  list.reserve(candidates.size());
  for (const Candidate* c : candidates) list.push_back(*c);
  return list;
}

/// What varies between the candidates of searches with the same options, and what was found.
using PackedCandidate =
    std::tuple<std::tuple<std::string, int, int, int, int, std::int64_t, std::int64_t>, std::vector<int>, std::vector<std::vector<int>>,
               std::vector<int>, std::string, std::vector<std::string>, std::tuple<std::string, double, bool, Bytes>,
               std::tuple<int, std::string, int, Ns, Ns, double, Bytes, Bytes, std::int64_t, double, bool, bool, bool>,
               std::optional<std::tuple<Ns, Ns, std::string, std::vector<int>>>>;

PackedCandidate packed(const Candidate& c) {
  const PlanRequest& r = c.request;
  const auto numbersOf = [](const std::vector<NodeId>& nodes) {
    std::vector<int> numbers;
    for (const NodeId node : nodes) numbers.push_back(node.value);
    return numbers;
  };
  std::vector<std::vector<int>> replicaBegins;
  for (const auto& own : r.replicaBegins) replicaBegins.push_back(numbersOf(own));
  std::vector<int> rankOrder;
  for (const Rank rank : r.rankOrder) rankOrder.push_back(rank.value);
  std::optional<std::tuple<Ns, Ns, std::string, std::vector<int>>> certificate;
  if (c.certificate) {
    std::vector<int> recomputed;
    for (const Stage stage : c.certificate->recomputed) recomputed.push_back(stage.value);
    certificate.emplace(c.certificate->time, c.certificate->lowerBound, c.certificate->foundBy, std::move(recomputed));
  }
  return {{r.schedule, r.ranks, r.chunks, r.microbatches, r.replicas, r.microbatch, r.batch},
          numbersOf(r.begins),
          replicaBegins,
          rankOrder,
          toString(r.loss),
          wordsOf(r.recompute),
          {std::string(nameOf(r.optimizer.kind)), r.optimizer.momentum, r.zero1, r.memoryLimit},
          {c.stages, std::string(nameOf(c.split)), c.moves, c.step, c.makespan, c.bubbleFraction, c.peak, c.excess, c.samples,
           c.samplesPerSecond, c.scaled, c.leads, c.onFront},
          certificate};
}

Candidate unpacked(const PackedCandidate& state) {
  const auto& [shape, begins, replicaBegins, rankOrder, loss, recompute, memory, figures, certificate] = state;
  Candidate c;
  PlanRequest& r = c.request;
  std::tie(r.schedule, r.ranks, r.chunks, r.microbatches, r.replicas, r.microbatch, r.batch) = shape;
  const auto nodesOf = [](const std::vector<int>& numbers) {
    std::vector<NodeId> nodes;
    for (const int number : numbers) nodes.emplace_back(number);
    return nodes;
  };
  r.begins = nodesOf(begins);
  for (const auto& own : replicaBegins) r.replicaBegins.push_back(nodesOf(own));
  for (const int rank : rankOrder) r.rankOrder.emplace_back(rank);
  r.loss = parseLoss(loss);
  r.recompute = parseRecompute(recompute);
  r.optimizer = plannedOptimizer(std::get<0>(memory), std::get<1>(memory));
  r.zero1 = std::get<2>(memory);
  r.memoryLimit = std::get<3>(memory);
  std::string split;
  std::tie(c.stages, split, c.moves, c.step, c.makespan, c.bubbleFraction, c.peak, c.excess, c.samples, c.samplesPerSecond, c.scaled,
           c.leads, c.onFront) = figures;
  c.split = valueFor<SplitSource>("split", split);
  if (certificate) {
    c.certificate.emplace();
    std::vector<int> recomputed;
    std::tie(c.certificate->time, c.certificate->lowerBound, c.certificate->foundBy, recomputed) = *certificate;
    for (const int stage : recomputed) c.certificate->recomputed.emplace_back(stage);
  }
  return c;
}

/// Candidates, what was impossible, and how many combinations there were: what a search of a part of the schedules found.
using Part = std::tuple<std::vector<Candidate>, std::vector<std::string>, int, bool>;

std::shared_ptr<SearchedModel> merged(const SearchOptions& options, const std::vector<Part>& parts) {
  std::vector<Found> found;
  found.reserve(parts.size());
  for (const auto& [candidates, skipped, shapes, cancelled] : parts) found.push_back({candidates, skipped, shapes, cancelled});
  return std::make_shared<SearchedModel>(inWordsOfSearch([&] { return mergeSearches(options, std::move(found)); }));
}

void bindCandidates(py::module_& m) {
  py::class_<Candidate>(m, "Candidate")
      .def_property_readonly("schedule", [](const Candidate& c) { return c.request.schedule; })
      .def_property_readonly("ranks", [](const Candidate& c) { return c.request.ranks; })
      .def_property_readonly("microbatches", [](const Candidate& c) { return c.request.microbatches; })
      .def_property_readonly("microbatch", [](const Candidate& c) { return c.request.microbatch; })
      .def_property_readonly("recompute", [](const Candidate& c) { return wordsOf(c.request.recompute); })
      .def_property_readonly("rank_order",
                             [](const Candidate& c) {
                               std::vector<int> order;
                               for (const Rank rank : c.request.rankOrder) order.push_back(rank.value);
                               return order;
                             })
      .def_readonly("stages", &Candidate::stages)
      .def_property_readonly("balance", [](const Candidate& c) { return nameOf(c.split); })
      .def_readonly("moves", &Candidate::moves)
      .def_readonly("step_ns", &Candidate::step)
      .def_readonly("makespan_ns", &Candidate::makespan)
      .def_readonly("bubble", &Candidate::bubbleFraction)
      .def_readonly("peak_bytes", &Candidate::peak)
      .def_property_readonly("fits", &Candidate::fits)
      .def_readonly("samples_per_second", &Candidate::samplesPerSecond)
      .def_property_readonly("gap", [](const Candidate& c) { return c.certificate ? std::optional(c.certificate->gap()) : std::nullopt; })
      .def_readonly("scaled_costs", &Candidate::scaled)
      .def_readonly("on_front", &Candidate::onFront)
      .def(py::self == py::self)  // NOLINT(misc-redundant-expression): pybind11 defines operator== so
      .def(py::pickle(&packed, &unpacked))
      .def("__repr__", [](const Candidate& c) {
        return "<Candidate " + c.request.schedule + ", " + std::to_string(c.stages) + " stages, " + std::to_string(c.request.microbatches) +
               " microbatches, step " + std::to_string(c.step.value) + " ns>";
      });
}

void bindSearchOptions(py::module_& m) {
  py::class_<SearchOptions>(m, "SearchOptions")
      .def(py::init<>())
      .def_readwrite("models", &SearchOptions::models)
      .def_readwrite("ranks", &SearchOptions::ranks)
      .def_readwrite("replicas", &SearchOptions::replicas)
      .def_readwrite("microbatches", &SearchOptions::microbatches)
      .def_readwrite("batch", &SearchOptions::batch)
      .def_readwrite("microbatch", &SearchOptions::microbatch)
      .def_readwrite("rank_order", &SearchOptions::rankOrder)
      .def_readwrite("memory_limit", &SearchOptions::memoryLimit)
      .def_readwrite("schedules", &SearchOptions::schedules)
      .def_readwrite("chunks", &SearchOptions::chunks)
      .def_readwrite("no_recompute", &SearchOptions::noRecompute)
      .def_readwrite("profiles", &SearchOptions::profiles)
      .def_readwrite("profiles_at_hand", &SearchOptions::profilesAtHand)
      .def_readwrite("cluster", &SearchOptions::cluster)
      .def_property(
          "optimizer", [](const SearchOptions& o) { return nameOf(o.optimizer.kind); },
          [](SearchOptions& o, const std::string& name) { o.optimizer.kind = parseOptimizer(name); })
      .def_property(
          "momentum", [](const SearchOptions& o) { return o.optimizer.momentum; },
          [](SearchOptions& o, double momentum) { o.optimizer.momentum = momentum; })
      .def_readwrite("zero1", &SearchOptions::zero1)
      .def_readwrite("loss", &SearchOptions::loss)
      .def_readwrite("threads", &SearchOptions::threads)
      .def_readwrite("is_part", &SearchOptions::isPart)
      .def_readwrite("how", &SearchOptions::how);
}

}  // namespace

void bindSearches(py::module_& m) {
  bindCandidates(m);
  bindSearchOptions(m);
  py::class_<SearchedModel, std::shared_ptr<SearchedModel>>(m, "Searched")
      .def_property_readonly("model", [](const SearchedModel& s) { return s.graph.name; })
      .def_property_readonly("candidates", [](const SearchedModel& s) { return s.found.candidates; })
      .def_property_readonly("skipped", [](const SearchedModel& s) { return s.found.skipped; })
      .def_property_readonly("shapes", [](const SearchedModel& s) { return s.found.shapes; })
      .def_property_readonly("one_rank",
                             [](const SearchedModel& s) -> std::optional<std::pair<Ns, Bytes>> {
                               return s.oneRank ? std::optional(std::pair(s.oneRank->step, s.oneRank->peak)) : std::nullopt;
                             })
      .def_property_readonly("cancelled", [](const SearchedModel& s) { return s.found.cancelled; })
      .def("best", [](const SearchedModel& s, int most) { return copies(bestOf(s.found, most)); })
      .def("front", [](const SearchedModel& s) { return copies(frontOf(s.found)); })
      .def(
          "plan", [](const SearchedModel& s, const Candidate& c) { return planOf(s, c); }, Released())
      .def("json", &searchJson, Released());
  m.def("search", &searched, Released());
  m.def(
      "require_parts", [](const SearchOptions& o) { inWordsOfSearch([&] { requireSearchInParts(o); }); }, Released());
  m.def("merge", &merged, Released());
}

}  // namespace pw::python
