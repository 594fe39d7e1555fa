#pragma once

#include <cstring>
#include <exception>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "backends/pt2.h"
#include "backends/torch_backend.h"
#include "engine/executor.h"
#include "schedules/generate.h"
#include "schedules/lower.h"
#include "simulator/plan.h"

namespace pw::test {

using Tensors = std::map<std::string, std::vector<float>>;

/// What a training gave: losses of all steps, gradients of the first, parameters after the last.
struct Trained {
  std::vector<double> losses;
  Tensors gradients, parameters;
};

/// An archive of resources/models, else of tests/data.
inline std::string samplePath(const std::string& name) {
  const std::string shipped = std::string(PW_SOURCE_DIR) + "/resources/models/" + name + ".pt2";
  return std::filesystem::exists(shipped) ? shipped : std::string(PW_SOURCE_DIR) + "/tests/data/" + name + ".pt2";
}

/// A sample, or two parts joined: `two_part_a+two_part_b`.
inline ModelGraph sample(const std::string& name) {
  const std::size_t plus = name.find('+');
  if (plus == std::string::npos) return readPt2(samplePath(name));
  return join({readPt2(samplePath(name.substr(0, plus))), readPt2(samplePath(name.substr(plus + 1)))});
}

/// A plan with stages balanced by estimated time; costs are not needed to run.
inline Plan planFor(const ModelGraph& graph, const std::string& schedule, int ranks, int microbatches, std::int64_t batch, const std::string& loss,
                    const std::vector<NodeId>& splits = {}) {
  Cluster cluster;
  cluster.peakFlops["fp32"] = 1e11;
  cluster.memoryBytesPerSecond = 1e10;
  const std::int64_t size = microbatchSizes(batch, microbatches).front();
  Plan plan;
  plan.modelFiles = graph.files;
  plan.modelName = graph.name;
  plan.batch = batch;
  plan.microbatchSize = size;
  plan.loss = loss;
  const auto begins = splits.empty() ? balance(graph, estimate(graph, size, cluster), ranks, Balance::Time) : splits;
  plan.partition = cut(graph, begins, bindBatch(graph, size), nullptr);
  plan.schedule = lower(generate(schedule, {ranks, ranks, microbatches}));
  plan.costs.stages.resize(static_cast<std::size_t>(ranks));
  return plan;
}

inline std::vector<float> floatsOf(const Buffer& buffer) {
  std::vector<float> numbers(buffer.bytes / sizeof(float));
  std::memcpy(numbers.data(), buffer.data, numbers.size() * sizeof(float));
  return numbers;
}

/// Trains with one thread per rank over the in-memory communicator. Parameters that several stages hold must be equal in all (`copies` counts
/// the elements that are not).
inline Trained trainInThreads(const ModelGraph& graph, const Plan& plan, int steps, const StageOptions& options, int* copies = nullptr) {
  const TorchBackend& torch = torchBackend();
  torch.prepareProcess(1);
  const std::size_t ranks = plan.schedule.rows.size();
  auto communicators = inMemoryCommunicators(static_cast<int>(ranks), std::chrono::seconds(60));
  std::vector<Trained> results(ranks);
  std::vector<std::exception_ptr> failures(ranks);
  std::vector<std::thread> threads;
  for (std::size_t r = 0; r < ranks; ++r) {
    threads.emplace_back([&, r] {
      try {
        const auto stage = torch.makeTracedStage(graph, plan, Stage(r), options);
        Executor executor(plan, {{Stage(r), stage.get()}}, *communicators[r]);
        for (int step = 0; step < steps; ++step) {
          const StepLog log = executor.step(step, [&] {
            if (step > 0) return;
            for (const ParameterView& p : stage->parameters()) results[r].gradients[p.name] = floatsOf(p.gradient);
          });
          if (log.loss) results[r].losses.push_back(*log.loss);
        }
        for (const ParameterView& p : stage->parameters()) results[r].parameters[p.name] = floatsOf(p.value);
      } catch (...) {
        failures[r] = std::current_exception();
        communicators[r]->abort();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const auto& failure : failures) {
    if (failure) std::rethrow_exception(failure);
  }
  Trained all;
  for (const Trained& one : results) {
    if (!one.losses.empty()) all.losses = one.losses;
    for (const auto& [name, values] : one.gradients) all.gradients.emplace(name, values);
    for (const auto& [name, values] : one.parameters) {
      const auto [found, isNew] = all.parameters.emplace(name, values);
      if (isNew || copies == nullptr) continue;
      for (std::size_t i = 0; i < values.size(); ++i) *copies += std::memcmp(&values[i], &found->second[i], sizeof(float)) == 0 ? 0 : 1;
    }
  }
  return all;
}

/// The first element of `actual` that is farther than `absolute + relative · |expected|` from `expected`, in words; empty if none.
inline std::string firstDifference(const Tensors& actual, const Tensors& expected, double relative, double absolute) {
  if (actual.size() != expected.size()) return std::to_string(actual.size()) + " tensors instead of " + std::to_string(expected.size());
  for (const auto& [name, values] : expected) {
    const auto found = actual.find(name);
    if (found == actual.end()) return name + " is missing";
    if (found->second.size() != values.size()) return name + " has another size";
    for (std::size_t i = 0; i < values.size(); ++i) {
      const double difference = std::abs(static_cast<double>(found->second[i]) - static_cast<double>(values[i]));
      if (difference <= absolute + relative * std::abs(static_cast<double>(values[i]))) continue;  // NaN is a difference
      return name + "[" + std::to_string(i) + "] is " + std::to_string(found->second[i]) + " instead of " + std::to_string(values[i]);
    }
  }
  return {};
}

}  // namespace pw::test
