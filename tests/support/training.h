#pragma once

#include <algorithm>
#include <cstring>
#include <exception>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "backends/messages/in_memory_communicator.h"
#include "backends/pt2/read.h"
#include "backends/torch/backend.h"
#include "engine/executor.h"
#include "schedules/generate.h"
#include "schedules/lower.h"
#include "simulator/costs/estimate.h"
#include "simulator/model/join.h"
#include "simulator/partition/split.h"
#include "simulator/plan/plan.h"
#include "simulator/plan/replica_prices.h"

namespace pw::test {

using Tensors = std::map<std::string, std::vector<float>>;

/// The results of a training: losses of all steps, gradients of the first, parameters and buffers after the last.
struct Trained {
  std::vector<double> losses, norms;
  Tensors gradients, parameters, buffers;
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
  return joinGraphs({readPt2(samplePath(name.substr(0, plus))), readPt2(samplePath(name.substr(plus + 1)))});
}

/// A plan with stages balanced by estimated time, as many on a rank as the schedule usually has; costs are not needed to run.
inline Plan planFor(const ModelGraph& graph, const std::string& schedule, int ranks, int microbatches, std::int64_t batch,
                    const std::string& loss, const std::vector<NodeId>& splits = {}, int replicas = 1) {
  Cluster cluster;
  cluster.peakFlops["fp32"] = 1e11;
  cluster.memoryBytesPerSecond = 1e10;
  const std::int64_t size = microbatchSizes(batch, replicas * microbatches).front();
  const int stages = ranks * generatorOf(schedule).chunks;
  Plan plan;
  plan.replicas = replicas;
  plan.modelFiles = graph.files;
  plan.modelName = graph.name;
  plan.batch = batch;
  plan.microbatchSize = size;
  plan.loss = parseLoss(loss);
  const auto begins = splits.empty() ? balancedSplits(graph, estimate(graph, size, cluster), stages, Balance::Time) : splits;
  plan.partition = cutGraph(graph, begins, bindBatch(graph, size), nullptr);
  plan.schedule = lower(generate(schedule, {ranks, stages, microbatches}));
  plan.costs.stages.resize(static_cast<std::size_t>(stages));
  return plan;
}

/// The plan with replicas that are cut differently.
inline Plan withCuts(Plan plan, const ModelGraph& graph, const std::vector<std::vector<NodeId>>& begins) {
  plan.cuts.emplace();
  for (const auto& own : begins)
    plan.cuts->replicas.push_back({cutGraph(graph, own, bindBatch(graph, plan.microbatchSize), nullptr), {}, plan.costs});
  plan.cuts->summed = summedParameters(graph, plan.cuts->replicas);
  return ofReplica(std::move(plan), 0);
}

inline std::vector<float> floatsOf(const Buffer& buffer) {
  std::vector<float> numbers(buffer.bytes / sizeof(float));
  std::memcpy(numbers.data(), buffer.data, numbers.size() * sizeof(float));
  return numbers;
}

/// A floating or integer tensor of a state.
inline std::vector<float> numbersOf(const StatePiece& piece) {
  if (piece.dtype == DType::Float32) return floatsOf(piece.data);
  std::vector<float> numbers;
  if (piece.dtype != DType::Int64) return numbers;
  for (std::size_t at = 0; at < piece.data.bytes; at += sizeof(std::int64_t)) {
    std::int64_t number = 0;
    std::memcpy(&number, piece.data.data + at, sizeof(number));
    numbers.push_back(static_cast<float>(number));
  }
  return numbers;
}

struct ThreadOptions {
  StageOptions stage;
  ExecutorOptions executor;
  std::function<void(std::unique_ptr<Communicator>&)> wrap;  ///< may put another communicator around each
};

/// Trains with one thread per rank over the in-memory communicator. Parameters that several stages or ranks hold must be equal in all
/// (`copies` counts the elements that are not).
inline Trained trainInThreads(const ModelGraph& graph, const Plan& plan, int steps, const ThreadOptions& options, int* copies = nullptr) {
  const TorchBackend& torch = torchBackend();
  torch.prepareProcess(1);
  const auto ranks = static_cast<std::size_t>(worldSize(plan));
  auto communicators = inMemoryCommunicators(static_cast<int>(ranks), std::chrono::seconds(60));
  if (options.wrap) std::ranges::for_each(communicators, options.wrap);
  std::vector<std::vector<Trained>> results(ranks);
  std::vector<std::exception_ptr> failures(ranks);
  std::vector<std::thread> threads;
  for (std::size_t r = 0; r < ranks; ++r) {
    threads.emplace_back([&, r] {
      try {
        std::vector<std::unique_ptr<StageModule>> modules;
        std::map<Stage, StageModule*> stages;
        StageOptions stageOptions = options.stage;
        stageOptions.replica = static_cast<int>(r / plan.schedule.rows.size());
        const Plan own = ofReplica(plan, stageOptions.replica);
        for (std::size_t s = 0; s < plan.schedule.placement.stages(); ++s) {
          if (!plan.schedule.placement.holds(Rank(r % plan.schedule.rows.size()), Stage(s))) continue;
          modules.push_back(torch.makeTracedStage(graph, own, Stage(s), stageOptions));
          stages[Stage(s)] = modules.back().get();
        }
        results[r].resize(modules.size());
        ExecutorOptions executorOptions = options.executor;
        executorOptions.sumLoss = true;
        Executor executor(own, stages, *communicators[r], executorOptions);
        std::vector<double> losses, norms;
        for (int step = 0; step < steps; ++step) {
          std::function<void()> take;
          if (step == 0) {
            take = [&] {
              for (std::size_t k = 0; k < modules.size(); ++k) {
                for (const ParameterView& p : modules[k]->parameters()) results[r][k].gradients[p.name] = floatsOf(p.gradient);
              }
            };
          }
          const StepLog log = executor.step(step, take);
          losses.push_back(*log.loss);
          if (log.gradientNorm) norms.push_back(*log.gradientNorm);
        }
        for (std::size_t k = 0; k < modules.size(); ++k) {
          results[r][k].losses = losses;
          results[r][k].norms = norms;
          for (const ParameterView& p : modules[k]->parameters()) results[r][k].parameters[p.name] = floatsOf(p.value);
          for (const StatePiece& piece : modules[k]->state()) {
            const bool isBuffer = std::ranges::any_of(graph.buffers, [&](const StateTensor& b) { return b.name == piece.name; });
            if (isBuffer) results[r][k].buffers[piece.name] = numbersOf(piece);
          }
        }
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
  for (const auto& rank : results) {
    for (const Trained& one : rank) {
      all.losses = one.losses;
      all.norms = one.norms;
      all.buffers.insert(one.buffers.begin(), one.buffers.end());
      for (const auto& [name, values] : one.gradients) all.gradients.emplace(name, values);
      for (const auto& [name, values] : one.parameters) {
        const auto [found, isNew] = all.parameters.emplace(name, values);
        if (isNew || copies == nullptr) continue;
        for (std::size_t i = 0; i < values.size(); ++i) *copies += std::memcmp(&values[i], &found->second[i], sizeof(float)) == 0 ? 0 : 1;
      }
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
