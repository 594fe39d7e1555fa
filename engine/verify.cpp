#include "engine/verify.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "backends/messages/buffer_math.h"
#include "backends/messages/in_memory_communicator.h"
#include "engine/executor.h"
#include "schedules/error.h"
#include "schedules/generate.h"
#include "schedules/lower.h"
#include "simulator/model/graph_facts.h"

namespace pw {
namespace {

constexpr double kLossRelative = 1.3e-6, kLossAbsolute = 1e-5;
constexpr double kRelative = 1e-5, kAbsolute = 4e-5;
constexpr double kGpuRelative = 1e-4;  // kernels add in an order that varies from run to run
constexpr int kLossPosition = 1 << 28, kGradientPosition = 1 << 30;

/// The type of the two numbers that a complex one is made of; other types as they are.
DType realOf(DType dtype) {
  if (dtype == DType::ComplexHalf) return DType::Float16;
  if (dtype == DType::ComplexFloat) return DType::Float32;
  return dtype == DType::ComplexDouble ? DType::Float64 : dtype;
}

/// The rounding of one addition in a type, as a part of its result: a unit in the last place. 0 for types of 32 bits and more.
double roundingOf(DType dtype) {
  const DType real = realOf(dtype);
  return real == DType::BFloat16 ? 0x1p-7 : real == DType::Float16 ? 0x1p-10 : 0;
}

/// Any type as numbers: integers and booleans are compared byte by byte, complex numbers by their parts.
std::vector<double> numbersOf(DType dtype, Buffer value) {
  if (isDifferentiable(dtype)) return toDoubles(realOf(dtype), value);
  std::vector<double> bytes;
  for (std::size_t i = 0; i < value.bytes; ++i) bytes.push_back(static_cast<double>(static_cast<unsigned char>(value.data[i])));
  return bytes;
}

}  // namespace

Verification joinVerifications(const Verification& a, const Verification& b) {
  const Verification& first = b.equal || (!a.equal && a.position <= b.position) ? a : b;
  Verification both = first;
  both.equal = a.equal && b.equal;
  both.lossDifference = std::max(a.lossDifference, b.lossDifference);
  both.boundaryDifference = std::max(a.boundaryDifference, b.boundaryDifference);
  both.gradientDifference = std::max(a.gradientDifference, b.gradientDifference);
  return both;
}

Plan singleRankPlan(const ModelGraph& graph, const Plan& plan) {
  Plan single = plan;
  const int microbatches = plan.replicas * plan.schedule.microbatches;
  single.replicas = 1;
  single.cuts.reset();
  single.partition = cutGraph(graph, {}, bindBatch(graph, plan.microbatchSize), nullptr);
  single.schedule = lower(generate("gpipe", {1, 1, microbatches}));
  single.costs = {};
  single.costs.stages.resize(1);
  return single;
}

Verifier::Verifier(const ModelGraph& graph, const Plan& plan, const StageOptions& options, int step, std::chrono::milliseconds deadline,
                   const TorchBackend& torch)
    : plan_(plan),
      relative_(options.device != nullptr ? kGpuRelative : kRelative),
      firstMicrobatch_(options.replica * plan.schedule.microbatches) {
  const Plan single = singleRankPlan(graph, plan);
  const std::vector<bool> changes = changedInPlace(graph);
  StageOptions whole = options;
  whole.replica = 0;
  whole.betweenOperators = {};
  whole.distributed = false;
  for (const Transfer& t : plan.partition.transfers) {
    const bool known = positions_.contains(graph.value(t.value).name);
    if (known || changes[t.value.index()]) continue;  // a copy, as later changes were not sent
    whole.watched.push_back(t.value);
    positions_[graph.value(t.value).name] = t.value.value;
    positions_["gradient of " + graph.value(t.value).name] = kGradientPosition - t.value.value;
  }
  whole.observe = [this](const std::string& name, Microbatch m, DType dtype, Buffer value) {
    values_[{name, m.value}] = numbersOf(dtype, value);
  };
  const auto stage = torch.makeTracedStage(graph, single, Stage(0), whole);
  const auto alone = inMemoryCommunicators(1, deadline);
  Executor executor(single, {{Stage(0), stage.get()}}, *alone.front(), {});
  const StepLog log = executor.step(step, [&] {
    for (const ParameterView& view : stage->parameters()) gradients_[view.name] = numbersOf(view.dtype, view.gradient);
  });
  loss_ = log.loss.value_or(0);
}

void Verifier::note(const std::string& what, double difference, double allowed, int position) {
  if (difference <= allowed) return;  // NaN counts as a difference
  if (result_.equal || position < result_.position) {
    result_.firstDifference = fmt::format("{} differs from one rank by {:.3g} (allowed: {:.3g}).", what, difference, allowed);
    result_.position = position;
    result_.notFinite = false;
  }
  result_.equal = false;
}

/// A NaN can be neither right nor wrong.
void Verifier::noteNan(const std::string& what, int position) {
  if (result_.equal || position < result_.position) {
    result_.firstDifference = fmt::format("{} is not finite, on one rank neither.", what);
    result_.position = position;
    result_.notFinite = true;
  }
  result_.equal = false;
}

void Verifier::compare(const std::string& what, const std::vector<double>& actual, const std::vector<double>& expected, double rounding,
                       double& largest, int position) {
  if (actual.size() != expected.size())
    throw Error(fmt::format("{} has {} numbers instead of {}; plan the model again.", what, actual.size(), expected.size()));
  for (std::size_t i = 0; i < actual.size(); ++i) {
    if (std::isnan(actual[i]) && std::isnan(expected[i])) return noteNan(fmt::format("{} at element {}", what, i), position);
    const double difference = actual[i] == expected[i] ? 0 : std::abs(actual[i] - expected[i]);
    const double allowed = kAbsolute + relative_ * std::abs(expected[i]) + rounding;
    largest = std::max(largest, difference);
    if (difference <= allowed) continue;
    note(fmt::format("{} at element {}", what, i), difference, allowed, position);
    return;
  }
}

void Verifier::observe(const std::string& name, Microbatch microbatch, DType dtype, Buffer value) {
  const auto found = values_.find({name, firstMicrobatch_ + microbatch.value});
  if (found == values_.end()) return;
  const bool gradient = name.starts_with("gradient of ");
  compare(fmt::format("{} {} of microbatch {}", gradient ? "The" : "Value", name, microbatch.value), numbersOf(dtype, value), found->second,
          0, result_.boundaryDifference, positions_.at(name));
}

void Verifier::compareGradients(StageModule& stage) {
  int position = kGradientPosition;
  for (const ParameterView& view : stage.parameters()) {
    const auto found = gradients_.find(view.name);
    if (found == gradients_.end()) throw Error(fmt::format("Parameter {} is not the same on one rank; plan the model again.", view.name));
    // Microbatches may be added in another order: in 16 bits each sum is rounded, in proportion to what is added, which may cancel, and, as
    // roundings do among themselves, to the root of their number.
    double magnitude = 0;
    for (const double number : found->second) magnitude = std::isfinite(number) ? std::max(magnitude, std::abs(number)) : magnitude;
    const double rounding = roundingOf(view.dtype) * magnitude * std::sqrt(plan_.replicas * plan_.schedule.microbatches);
    compare("Gradient of " + view.name, numbersOf(view.dtype, view.gradient), found->second, rounding, result_.gradientDifference,
            position++);
  }
}

void Verifier::compareLoss(double loss) {
  if (!std::isfinite(loss) && !std::isfinite(loss_)) return noteNan("The loss", kLossPosition);
  result_.lossDifference = std::abs(loss - loss_);
  note("The loss", result_.lossDifference, kLossAbsolute + std::max(kLossRelative, relative_ / 10) * std::abs(loss_), kLossPosition);
}

}  // namespace pw
