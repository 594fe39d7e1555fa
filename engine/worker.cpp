#include "engine/worker.h"

#include <fmt/format.h>
#include <sched.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <iterator>

#include "backends/trace_blob.h"
#include "schedules/error.h"
#include "schedules/generate.h"
#include "schedules/lower.h"

namespace pw {
namespace {

constexpr double kLossRelative = 1.3e-6, kLossAbsolute = 1e-5;
constexpr double kGradientRelative = 1e-5, kGradientAbsolute = 4e-5;

double fromHalf(std::uint16_t bits) {
  const int exponent = (bits >> 10) & 31, mantissa = bits & 1023;
  const double size = exponent == 0    ? std::ldexp(mantissa, -24)
                      : exponent == 31 ? (mantissa == 0 ? HUGE_VAL : std::nan(""))
                                       : std::ldexp(mantissa + 1024, exponent - 25);
  return (bits & 0x8000) != 0 ? -size : size;
}

double fromBrainFloat(std::uint16_t bits) { return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16U); }

/// Gradients of a stage by parameter name, copied out as numbers.
std::map<std::string, std::vector<double>> gradientsOf(StageModule& stage) {
  std::map<std::string, std::vector<double>> gradients;
  for (const ParameterView& view : stage.parameters()) {
    std::vector<double>& numbers = gradients[view.name];
    const auto copy = [&](auto zero) {
      using Number = decltype(zero);
      std::vector<Number> raw(view.gradient.bytes / sizeof(Number));
      std::memcpy(raw.data(), view.gradient.data, raw.size() * sizeof(Number));
      numbers.assign(raw.begin(), raw.end());
    };
    const auto convert = [&](double (*number)(std::uint16_t)) {
      std::vector<std::uint16_t> raw(view.gradient.bytes / sizeof(std::uint16_t));
      std::memcpy(raw.data(), view.gradient.data, view.gradient.bytes);
      std::transform(raw.begin(), raw.end(), std::back_inserter(numbers), number);
    };
    if (view.dtype == DType::Float32) {
      copy(0.0F);
    } else if (view.dtype == DType::Float64) {
      copy(0.0);
    } else if (view.dtype == DType::Float16) {
      convert(&fromHalf);
    } else if (view.dtype == DType::BFloat16) {
      convert(&fromBrainFloat);
    } else {
      throw Error(fmt::format("Parameter {} is of type {}, which --verify cannot compare; run without it.", view.name, name(view.dtype)));
    }
  }
  return gradients;
}

/// Loss and gradients of the first step on one rank.
struct Reference {
  double loss = 0;
  std::map<std::string, std::vector<double>> gradients;
};

Reference runReference(const ModelGraph& graph, const Plan& plan, const TrainOptions& options, const TorchBackend& torch) {
  const Plan single = singleRankPlan(graph, plan);
  const auto stage = torch.makeTracedStage(graph, single, Stage(0), options.stage);
  const auto alone = inMemoryCommunicators(1, options.deadline);
  Executor executor(single, {{Stage(0), stage.get()}}, *alone.front());
  Reference reference;
  const StepLog log = executor.step(0, [&] { reference.gradients = gradientsOf(*stage); });
  reference.loss = log.loss.value_or(0);
  return reference;
}

void note(Verification& result, const std::string& what, double difference, double allowed) {
  if (difference <= allowed) return;  // NaN counts as a difference
  if (result.equal) result.firstDifference = fmt::format("{} differs from one rank by {:.3g}, {:.3g} is allowed.", what, difference, allowed);
  result.equal = false;
}

void compareGradients(StageModule& stage, const Reference& reference, Verification& result) {
  for (const auto& [name, numbers] : gradientsOf(stage)) {
    const auto found = reference.gradients.find(name);
    if (found == reference.gradients.end() || found->second.size() != numbers.size()) {
      throw Error(fmt::format("Parameter {} is not the same on one rank; plan the model again.", name));
    }
    for (std::size_t i = 0; i < numbers.size(); ++i) {
      const double difference = std::abs(numbers[i] - found->second[i]);
      result.gradientDifference = std::max(result.gradientDifference, difference);
      if (!(difference <= kGradientAbsolute + kGradientRelative * std::abs(found->second[i]))) {
        note(result, fmt::format("Gradient of {} at element {}", name, i), difference, kGradientAbsolute + kGradientRelative * std::abs(found->second[i]));
      }
    }
  }
}

int numberFrom(const char* variable, int fallback) {
  const char* text = std::getenv(variable);
  return text == nullptr ? fallback : std::atoi(text);
}

constexpr std::uint32_t kSizeTag = 0x7FFF0001, kPayloadTag = 0x7FFF0002, kPingTag = 0x7FFF0100;

std::string pack(const RankLog& log) {
  std::string bytes;
  const auto append = [&](const auto& value) { bytes.append(reinterpret_cast<const char*>(&value), sizeof(value)); };
  append(log.verification.equal);
  append(log.verification.lossDifference);
  append(log.verification.gradientDifference);
  append(log.verification.firstDifference.size());
  bytes += log.verification.firstDifference;
  append(log.steps.size());
  for (const StepLog& step : log.steps) {
    append(step.loss.has_value());
    append(step.loss.value_or(0));
    const std::string blob = toBlob({1 << 20, step.spans, step.memory});  // ranks: an upper bound, a log names peers
    append(blob.size());
    bytes += blob;
  }
  return bytes;
}

/// Reads what `pack` wrote on a rank of the same build.
RankLog unpack(const std::string& bytes, Rank rank) {
  std::size_t at = 0;
  const auto takeBytes = [&](std::size_t n) {
    if (n > bytes.size() - at) throw Error(fmt::format("Rank {} sent a broken log; run all ranks with the same build.", rank.value));
    at += n;
    return bytes.substr(at - n, n);
  };
  const auto take = [&](auto& value) { std::memcpy(&value, takeBytes(sizeof(value)).data(), sizeof(value)); };
  RankLog log;
  std::size_t size = 0;
  take(log.verification.equal);
  take(log.verification.lossDifference);
  take(log.verification.gradientDifference);
  take(size);
  log.verification.firstDifference = takeBytes(size);
  take(size);
  for (std::size_t i = 0, steps = size; i < steps; ++i) {
    StepLog step;
    bool hasLoss = false;
    double loss = 0;
    take(hasLoss);
    take(loss);
    if (hasLoss) step.loss = loss;
    take(size);
    Trace trace = parseBlob(takeBytes(size), fmt::format("the log of rank {}", rank.value));
    step.spans = std::move(trace.spans);
    step.memory = std::move(trace.memory);
    log.steps.push_back(std::move(step));
  }
  return log;
}

Buffer bufferOf(std::string& bytes) { return {reinterpret_cast<std::byte*>(bytes.data()), bytes.size()}; }

template <class T>
Buffer bufferOf(T& value) {
  return {reinterpret_cast<std::byte*>(&value), sizeof(value)};
}

/// Clock of `peer` minus ours, from the fastest of some round trips; 0 when it is less than a round trip can explain. The peer calls `answerPings`.
Ns clockOffset(Rank peer, Communicator& communicator) {
  Ns best = 0, shortest = -1;
  for (std::uint32_t i = 0; i < 10; ++i) {
    Ns sent = monotonicNow(), theirs = 0;
    const auto reply = communicator.receive(peer, kPingTag + 2 * i + 1, bufferOf(theirs));
    communicator.wait(communicator.send(peer, kPingTag + 2 * i, bufferOf(sent)));
    communicator.wait(reply);
    const Ns trip = monotonicNow() - sent;
    if (shortest >= 0 && trip >= shortest) continue;
    shortest = trip;
    best = theirs - (sent + trip / 2);
  }
  return std::abs(best) <= shortest ? 0 : best;
}

void answerPings(Communicator& communicator) {
  for (std::uint32_t i = 0; i < 10; ++i) {
    Ns sent = 0;
    communicator.wait(communicator.receive(Rank(0), kPingTag + 2 * i, bufferOf(sent)));
    Ns now = monotonicNow();
    communicator.wait(communicator.send(Rank(0), kPingTag + 2 * i + 1, bufferOf(now)));
  }
}

}  // namespace

Plan singleRankPlan(const ModelGraph& graph, const Plan& plan) {
  Plan single = plan;
  single.partition = cut(graph, {}, bindBatch(graph, plan.microbatchSize), nullptr);
  single.schedule = lower(generate("1f1b", {1, 1, plan.schedule.microbatches}));
  single.costs = {};
  single.costs.stages.resize(1);
  return single;
}

RankLog train(const ModelGraph& graph, const Plan& plan, const TrainOptions& options, Communicator& communicator, const TorchBackend& torch) {
  std::map<Stage, std::unique_ptr<StageModule>> modules;
  std::map<Stage, StageModule*> stages;
  for (std::size_t s = 0; s < plan.schedule.placement.rankOfStage.size(); ++s) {
    if (plan.schedule.placement.rankOfStage[s] != communicator.rank()) continue;
    modules[Stage(s)] = torch.makeTracedStage(graph, plan, Stage(s), options.stage);
    stages[Stage(s)] = modules[Stage(s)].get();
  }
  RankLog log;
  std::optional<Reference> reference;
  if (options.verify) reference = runReference(graph, plan, options, torch);
  Executor executor(plan, stages, communicator);
  for (int step = 0; step < options.steps; ++step) {
    const bool compares = step == 0 && reference.has_value();
    log.steps.push_back(executor.step(step, [&] {
      for (const auto& [id, stage] : stages) {
        if (compares) compareGradients(*stage, *reference, log.verification);
      }
    }));
    const auto& loss = log.steps.back().loss;
    if (compares && loss) {
      log.verification.lossDifference = std::abs(*loss - reference->loss);
      note(log.verification, "The loss", log.verification.lossDifference, kLossAbsolute + kLossRelative * std::abs(reference->loss));
    }
    if (compares) reference.reset();
    if (loss && options.onLoss) options.onLoss(step, *loss);
  }
  return log;
}

std::vector<RankLog> gather(const RankLog& own, Communicator& communicator) {
  communicator.barrier();
  if (communicator.rank().value != 0) {
    answerPings(communicator);
    std::string bytes = pack(own);
    std::uint64_t size = bytes.size();
    communicator.wait(communicator.send(Rank(0), kSizeTag, bufferOf(size)));
    communicator.wait(communicator.send(Rank(0), kPayloadTag, bufferOf(bytes)));
    communicator.barrier();
    return {};
  }
  std::vector<RankLog> logs{own};
  for (int r = 1; r < communicator.size(); ++r) {
    const Rank peer(r);
    const Ns offset = clockOffset(peer, communicator);
    std::uint64_t size = 0;
    communicator.wait(communicator.receive(peer, kSizeTag, bufferOf(size)));
    std::string bytes(size, '\0');
    communicator.wait(communicator.receive(peer, kPayloadTag, bufferOf(bytes)));
    RankLog log = unpack(bytes, peer);
    for (StepLog& step : log.steps) {
      for (Span& span : step.spans) {
        span.start -= offset;
        span.end -= offset;
      }
      for (MemorySample& sample : step.memory) sample.time -= offset;
    }
    logs.push_back(std::move(log));
  }
  communicator.barrier();
  return logs;
}

void bindToCores(const RankEnvironment& environment) {
  const int ranks = numberFrom("LOCAL_WORLD_SIZE", environment.worldSize);
  const int rank = numberFrom("LOCAL_RANK", environment.rank.value);
  cpu_set_t allowed;
  if (sched_getaffinity(0, sizeof(allowed), &allowed) != 0) return;
  const int cores = CPU_COUNT(&allowed);
  if (ranks < 1 || rank < 0 || rank >= ranks || ranks > cores) return;
  cpu_set_t share;
  CPU_ZERO(&share);
  int seen = 0;
  for (int core = 0; core < CPU_SETSIZE; ++core) {
    if (!CPU_ISSET(core, &allowed)) continue;
    if (seen >= rank * cores / ranks && seen < (rank + 1) * cores / ranks) CPU_SET(core, &share);
    ++seen;
  }
  sched_setaffinity(0, sizeof(share), &share);  // a refusal costs speed only
}

Rendezvous rendezvousOf(const RankEnvironment& environment, std::chrono::milliseconds deadline) {
  const char* agentStore = std::getenv("TORCHELASTIC_USE_AGENT_STORE");
  Rendezvous meeting;
  meeting.rank = environment.rank;
  meeting.size = environment.worldSize;
  meeting.masterAddress = environment.masterAddress;
  meeting.masterPort = environment.masterPort;
  meeting.listenFd = environment.listenFd;
  meeting.storeIsElsewhere = agentStore != nullptr && std::string(agentStore) == "True";
  meeting.oneHost = numberFrom("LOCAL_WORLD_SIZE", environment.worldSize) == environment.worldSize;
  meeting.deadline = deadline;
  return meeting;
}

}  // namespace pw
