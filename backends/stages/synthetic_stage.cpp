#include "backends/stages/synthetic_stage.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <map>
#include <string>
#include <utility>

#include "backends/messages/synthetic_message.h"
#include "schedules/error.h"

namespace pw {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::nanoseconds kSlice(50'000);  // between two looks at messages
constexpr std::size_t kZeros = 1U << 20U;           // what is cleared at once
constexpr std::size_t kGradientsSet = 64;           // of a group, at least where it has them

using Kind = MessageLabel::Kind;
using Slots = std::map<std::size_t, HeldBuffer>;  // by transfer

template <class Counts>
Bytes bytesOf(const Slots& slots, Counts counts) {
  Bytes bytes = 0;
  for (const auto& [transfer, buffer] : slots) bytes += counts(transfer) ? static_cast<Bytes>(buffer.buffer.bytes) : 0;
  return bytes;
}

/// What a microbatch holds from its first receive to its last W.
struct Flight {
  Slots inputs, outputs, outputGradients, inputGradients;
  std::vector<std::shared_ptr<void>> receivingValues, receivingGradients;  // the count of what was posted and is not used yet
  std::shared_ptr<void> kept;                                              // for the backward, or the W
  bool ran = false, answered = false, deferred = false;
};

struct Group {
  std::optional<std::size_t> shared, summed;  // as ParameterGroup has them
  HeldBuffer values, gradients;
  std::shared_ptr<void> state;  // of the optimizer, from the first update on
};

class SyntheticStage final : public StageModule {
 public:
  SyntheticStage(const Plan& plan, Stage stage, const SyntheticDevice& device, std::function<void()> betweenOperators);

  const Device& device() const override { return *on_.device; }
  void beginStep(int step, StepMode mode) override;

  HeldBuffer allocate(std::size_t transfer, Microbatch m) override;
  void setInput(std::size_t transfer, Microbatch m, HeldBuffer value) override {
    give(at(m).inputs, Kind::Value, transfer, m, std::move(value));
  }
  HeldBuffer takeOutput(std::size_t transfer, Microbatch m) override { return take(at(m).outputs, Kind::Value, transfer, m); }
  void setOutputGradient(std::size_t transfer, Microbatch m, HeldBuffer gradient) override {
    give(at(m).outputGradients, Kind::Gradient, transfer, m, std::move(gradient));
  }
  HeldBuffer takeInputGradient(std::size_t transfer, Microbatch m) override {
    return take(at(m).inputGradients, Kind::Gradient, transfer, m);
  }

  void forward(Microbatch microbatch) override;
  void backward(Microbatch m) override { propagate(m, cost().backward, cost().backwardPeak, 0); }
  void backwardInput(Microbatch m) override {
    propagate(m, cost().backwardInput, cost().inputPeak, cost().activationBytes - cost().freedByInput + cost().addedByInput);
    at(m).deferred = true;
  }
  void backwardWeight(Microbatch microbatch) override;

  void setLossScale(double /*scale*/) override {}
  std::optional<double> stepLoss() const override { return isLast() ? std::optional<double>(0) : std::nullopt; }
  HeldBuffer takeModelOutput(std::size_t /*output*/, Microbatch /*m*/) override { return {}; }
  std::vector<ParameterGroup> groups() override;
  void optimizerStep(std::size_t group, std::int64_t first, std::int64_t last, double gradientScale) override;
  std::vector<ParameterView> parameters() override { return {}; }
  std::vector<StatePiece> state() override { return {}; }
  Bytes bytesAlive() const override { return device().bytesAlive != nullptr ? device().bytesAlive() : on_.memory->alive; }
  Bytes peakBytes() override {
    return device().takePeakBytes != nullptr ? device().takePeakBytes() : std::exchange(on_.memory->peak, on_.memory->alive);
  }

 private:
  [[nodiscard]] bool isHost() const { return device().index < 0; }
  [[nodiscard]] bool isLast() const { return stage_.index() + 1 == plan_.partition.stages.size(); }
  [[nodiscard]] const StageCost& cost() const { return plan_.costs.stages[stage_.index()]; }
  [[nodiscard]] Flight& at(Microbatch m) { return flights_.at(m.index()); }
  [[nodiscard]] double scale(Microbatch m) const {
    return plan_.costs.microbatchScale.empty() ? 1 : plan_.costs.microbatchScale[m.index()];
  }
  [[nodiscard]] Ns scaled(Ns time, Microbatch m) const { return Ns(std::llround(static_cast<double>(time) * scale(m))); }
  /// The same at both ends of a transfer: the plan alone says it.
  [[nodiscard]] std::size_t sizeOf(std::size_t transfer, Microbatch m) const {
    return static_cast<std::size_t>(std::llround(static_cast<double>(plan_.partition.transfers.at(transfer).bytes) * scale(m)));
  }
  [[nodiscard]] MessageLabel label(std::size_t transfer, Microbatch m, Kind kind) const { return {kind, transfer, m, step_}; }
  /// Whether the other end of a transfer is on another rank.
  [[nodiscard]] bool crosses(std::size_t transfer, Microbatch m) const {
    const Transfer& t = plan_.partition.transfers[transfer];
    return plan_.schedule.placement.rankOf(t.from, m) != plan_.schedule.placement.rankOf(t.to, m);
  }
  /// Of these messages, without what another stage of this rank made.
  [[nodiscard]] Bytes received(const Slots& slots, Microbatch m) const {
    return bytesOf(slots, [&](std::size_t transfer) { return crosses(transfer, m); });
  }

  [[noreturn]] void refuse(const char* what, Microbatch m) const {
    throw Error(fmt::format("{}: stage {}, microbatch {}; this is a bug in the engine.", what, stage_.value, m.value));
  }
  void give(Slots& slots, Kind kind, std::size_t transfer, Microbatch m, HeldBuffer buffer);
  [[nodiscard]] HeldBuffer take(Slots& slots, Kind kind, std::size_t transfer, Microbatch m) const;
  void make(Slots& slots, Kind kind, const std::vector<std::size_t>& transfers, Microbatch m);
  void requireAll(const Slots& slots, Kind kind, const std::vector<std::size_t>& transfers, Microbatch m) const;
  void propagate(Microbatch m, Ns time, Bytes peak, Bytes keptAfter);
  void work(Clock::time_point begin, Ns duration) const;
  void addGroup(std::optional<std::size_t> shared, std::optional<std::size_t> summed, Bytes bytes);
  [[nodiscard]] HeldBuffer zeros(std::size_t bytes) const;
  [[nodiscard]] HeldBuffer memory(std::size_t bytes, const char* what) const;
  [[nodiscard]] std::shared_ptr<void> count(Bytes bytes) const;
  [[nodiscard]] std::shared_ptr<void> hold(Bytes planned, Bytes inBuffers, const char* what) const;

  const Plan& plan_;
  Stage stage_;
  SyntheticDevice on_;
  std::function<void()> betweenOperators_;
  std::vector<std::size_t> incoming_, outgoing_, gradientsIn_, gradientsOut_;  // transfers; of gradients as they go
  std::vector<Group> groups_;
  std::shared_ptr<void> constant_;  // parameters that are not trained, buffers and data
  std::vector<Flight> flights_;
  StepMode mode_ = StepMode::Train;
  int step_ = 0;
};

SyntheticStage::SyntheticStage(const Plan& plan, Stage stage, const SyntheticDevice& device, std::function<void()> betweenOperators)
    : plan_(plan),
      stage_(stage),
      on_(device),
      betweenOperators_(std::move(betweenOperators)),
      flights_(static_cast<std::size_t>(plan.schedule.microbatches)) {
  if (!on_.memory) on_.memory = std::make_shared<SyntheticMemory>();
  for (std::size_t t = 0; t < plan.partition.transfers.size(); ++t) {
    const Transfer& transfer = plan.partition.transfers[t];
    if (transfer.to == stage) incoming_.push_back(t);
    if (transfer.to == stage && transfer.gradient) gradientsOut_.push_back(t);
    if (transfer.from == stage) outgoing_.push_back(t);
    if (transfer.from == stage && transfer.gradient) gradientsIn_.push_back(t);
  }
  const auto holds = [&](const SharedParameter& shared) { return std::ranges::count(shared.stages, stage) > 0; };
  Bytes own = cost().gradientBytes;
  for (const SharedParameter& shared : plan.partition.shared) own -= holds(shared) ? shared.bytes : 0;
  if (own > 0 && !plan.cuts) addGroup(std::nullopt, std::nullopt, own);
  for (std::size_t g = 0; own > 0 && plan.cuts && g < plan.cuts->summed.size(); ++g) {
    const SummedParameters& together = plan.cuts->summed[g];
    if (together.stages.at(static_cast<std::size_t>(plan.cuts->shown)) == stage) addGroup(std::nullopt, g, together.bytes);
  }
  for (std::size_t s = 0; s < plan.partition.shared.size(); ++s) {
    if (holds(plan.partition.shared[s])) addGroup(s, std::nullopt, plan.partition.shared[s].bytes);
  }
  Bytes inGroups = 0;
  for (const Group& group : groups_) inGroups += static_cast<Bytes>(group.values.buffer.bytes + group.gradients.buffer.bytes);
  constant_ = hold(cost().parameterBytes + cost().gradientBytes + cost().fixedBytes + cost().dataBytes * plan.schedule.microbatches,
                   inGroups, "parameters, buffers and data");
}

void SyntheticStage::addGroup(std::optional<std::size_t> shared, std::optional<std::size_t> summed, Bytes bytes) {
  const auto whole = static_cast<std::size_t>(bytes) / sizeof(float) * sizeof(float);
  groups_.push_back({shared, summed, zeros(whole), zeros(whole), nullptr});
}

HeldBuffer SyntheticStage::zeros(std::size_t bytes) const {
  HeldBuffer buffer = memory(bytes, "parameters and gradients");
  std::vector<std::byte> none(std::min(bytes, kZeros));
  for (std::size_t done = 0; done < bytes; done += none.size()) {
    const std::size_t now = std::min(bytes - done, none.size());
    device().copy({buffer.buffer.data + done, now}, {none.data(), now});
  }
  return buffer;
}

HeldBuffer SyntheticStage::memory(std::size_t bytes, const char* what) const {
  try {
    return device().allocate(bytes);
  } catch (const std::exception& e) {
    throw Error(fmt::format(
        "there is no memory for {} of stage {} ({} bytes) in addition to what this rank holds; plan with more ranks, smaller microbatches "
        "or --recompute auto ({}).",
        what, stage_.value, bytes, e.what()));
  }
}

/// Counts bytes until the owner goes.
std::shared_ptr<void> SyntheticStage::count(Bytes bytes) const {
  const std::shared_ptr<SyntheticMemory>& counted = on_.memory;
  counted->alive += bytes;
  counted->peak = std::max(counted->peak, counted->alive);
  return {counted.get(), [counted, bytes](void*) { counted->alive -= bytes; }};
}

/// Memory that the plan says is held until the owner goes; of that, messages and groups have `inBuffers` already.
std::shared_ptr<void> SyntheticStage::hold(Bytes planned, Bytes inBuffers, const char* what) const {
  if (isHost()) return count(planned);
  return planned > inBuffers ? memory(static_cast<std::size_t>(planned - inBuffers), what).owner : nullptr;
}

/// Waits until `duration` after the start, so that work done meanwhile is included; a GPU is kept busy.
void SyntheticStage::work(Clock::time_point begin, Ns duration) const {
  if (!isHost()) on_.spin(duration);
  const Clock::time_point end = begin + std::chrono::nanoseconds(isHost() ? duration.value : 0);
  for (;;) {
    if (betweenOperators_) betweenOperators_();
    const std::chrono::nanoseconds left = end - Clock::now();
    if (left.count() <= 0) return;
    on_.spin(Ns(std::min(left, kSlice).count()));
  }
}

void SyntheticStage::beginStep(int step, StepMode mode) {
  step_ = step;
  mode_ = mode;
  for (Flight& flight : flights_) flight = {};
  if (!isHost()) return;
  for (Group& group : groups_) {
    auto* gradients = reinterpret_cast<float*>(group.gradients.buffer.data);
    const std::size_t elements = group.gradients.buffer.bytes / sizeof(float), stride = std::max<std::size_t>(1, elements / kGradientsSet);
    for (std::size_t i = 0; i < elements; i += stride) gradients[i] = 1;
  }
}

HeldBuffer SyntheticStage::allocate(std::size_t transfer, Microbatch m) {
  HeldBuffer buffer = memory(sizeOf(transfer, m), "a message");
  const bool value = plan_.partition.transfers[transfer].to == stage_;
  if (isHost()) (value ? at(m).receivingValues : at(m).receivingGradients).push_back(count(static_cast<Bytes>(buffer.buffer.bytes)));
  return buffer;
}

void SyntheticStage::give(Slots& slots, Kind kind, std::size_t transfer, Microbatch m, HeldBuffer buffer) {
  const std::vector<std::size_t>& expected = kind == Kind::Value ? incoming_ : gradientsIn_;
  const MessageLabel what = label(transfer, m, kind);
  if (std::ranges::count(expected, transfer) == 0) throw Error(fmt::format("{} is not for stage {}.", what.text(), stage_.value));
  if (buffer.buffer.bytes != sizeOf(transfer, m)) {
    throw Error(fmt::format("{} has {} bytes and not {}; run all ranks with the same plan.", what.text(), buffer.buffer.bytes,
                            sizeOf(transfer, m)));
  }
  if (isHost()) requireLabel(what, buffer.buffer);
  if (!slots.emplace(transfer, std::move(buffer)).second) throw Error(fmt::format("{} came twice.", what.text()));
}

HeldBuffer SyntheticStage::take(Slots& slots, Kind kind, std::size_t transfer, Microbatch m) const {
  auto node = slots.extract(transfer);
  if (!node) throw Error(fmt::format("stage {} has not made {}, or it was taken before.", stage_.value, label(transfer, m, kind).text()));
  return std::move(node.mapped());
}

void SyntheticStage::make(Slots& slots, Kind kind, const std::vector<std::size_t>& transfers, Microbatch m) {
  for (const std::size_t t : transfers) {
    HeldBuffer buffer = memory(sizeOf(t, m), "a message");
    if (isHost()) writeLabel(label(t, m, kind), buffer.buffer);
    // The plan counts values as activations, and gradients that stay on this rank where they are used.
    if (isHost() && kind == Kind::Gradient && crosses(t, m)) {
      buffer.owner = std::make_shared<std::pair<std::shared_ptr<void>, std::shared_ptr<void>>>(
          buffer.owner, count(static_cast<Bytes>(buffer.buffer.bytes)));
    }
    slots.emplace(t, std::move(buffer));
  }
}

void SyntheticStage::requireAll(const Slots& slots, Kind kind, const std::vector<std::size_t>& transfers, Microbatch m) const {
  for (const std::size_t t : transfers) {
    if (!slots.contains(t)) throw Error(fmt::format("stage {} was to run without {}.", stage_.value, label(t, m, kind).text()));
  }
}

void SyntheticStage::forward(Microbatch m) {
  const Clock::time_point begin = Clock::now();
  Flight& flight = at(m);
  if (std::exchange(flight.ran, true)) refuse("a forward ran twice", m);
  requireAll(flight.inputs, Kind::Value, incoming_, m);
  flight.receivingValues.clear();
  make(flight.outputs, Kind::Value, outgoing_, m);
  const Bytes made = bytesOf(flight.outputs, [](std::size_t) { return true; });
  flight.kept = hold(cost().activationBytes, made + received(flight.inputs, m), "the activations of a microbatch");
  const auto beyond = hold(std::max<Bytes>(0, cost().forwardPeak - cost().activationBytes), 0, "the work of a forward");
  work(begin, scaled(cost().forward, m));
  if (mode_ == StepMode::Train) return;
  flight.inputs.clear();
  flight.kept.reset();
}

/// B, or I: gradients of the inputs.
void SyntheticStage::propagate(Microbatch m, Ns time, Bytes peak, Bytes keptAfter) {
  const Clock::time_point begin = Clock::now();
  Flight& flight = at(m);
  if (!flight.ran || std::exchange(flight.answered, true)) refuse("a backward ran before its forward, or twice", m);
  requireAll(flight.outputGradients, Kind::Gradient, gradientsIn_, m);
  flight.receivingGradients.clear();
  {
    const auto beyond = hold(peak, received(flight.outputGradients, m), "the work of a backward");
    work(begin, scaled(time, m));
  }
  flight.inputs.clear();
  flight.outputGradients.clear();
  flight.kept.reset();
  if (keptAfter > 0) flight.kept = hold(keptAfter, 0, "the work of weight gradients");
  make(flight.inputGradients, Kind::Gradient, gradientsOut_, m);
}

void SyntheticStage::backwardWeight(Microbatch m) {
  const Clock::time_point begin = Clock::now();
  Flight& flight = at(m);
  if (!std::exchange(flight.deferred, false)) refuse("a W ran before its I, or twice", m);
  const auto beyond = hold(cost().weightPeak, 0, "the work of weight gradients");
  work(begin, scaled(cost().backwardWeight, m));
  flight.kept.reset();
}

std::vector<ParameterGroup> SyntheticStage::groups() {
  std::vector<ParameterGroup> groups;
  for (const Group& group : groups_)
    groups.push_back({group.shared, group.summed, DType::Float32, group.values.buffer, group.gradients.buffer});
  return groups;
}

void SyntheticStage::optimizerStep(std::size_t group, std::int64_t first, std::int64_t last, double gradientScale) {
  const Clock::time_point begin = Clock::now();
  Group& updated = groups_.at(group);
  if (first >= last) return;
  Bytes all = cost().updatedBytes;
  for (const Group& g : groups_) all += cost().updatedBytes > 0 ? 0 : static_cast<Bytes>(g.values.buffer.bytes);
  const double share = std::min(1.0, static_cast<double>(last - first) * sizeof(float) / static_cast<double>(all));
  if (!updated.state)
    updated.state = hold(Bytes(std::llround(share * static_cast<double>(cost().optimizerBytes))), 0, "the optimizer's state");
  if (isHost()) {
    auto* values = reinterpret_cast<float*>(updated.values.buffer.data);
    const auto* gradients = reinterpret_cast<const float*>(updated.gradients.buffer.data);
    const auto stride = static_cast<std::int64_t>(std::max<std::size_t>(1, updated.values.buffer.bytes / sizeof(float) / kGradientsSet));
    for (std::int64_t i = (first + stride - 1) / stride * stride; i < last; i += stride)
      values[i] -= static_cast<float>(gradientScale) * gradients[i];
  }
  work(begin, Ns(std::llround(share * static_cast<double>(cost().optimizer))));
}

}  // namespace

SyntheticDevice syntheticHost() {
  const auto spin = [](Ns duration) {
    const Clock::time_point end = Clock::now() + std::chrono::nanoseconds(duration.value);
    while (Clock::now() < end) {}
  };
  return {&hostDevice(), spin, std::make_shared<SyntheticMemory>()};
}

std::unique_ptr<StageModule> makeSyntheticStage(const Plan& plan, Stage stage, const SyntheticDevice& device,
                                                std::function<void()> betweenOperators) {
  const std::size_t stages = plan.partition.stages.size(), costs = plan.costs.stages.size(), scales = plan.costs.microbatchScale.size();
  if (costs != stages) {
    throw UsageError(
        fmt::format("The plan has costs of {} stages and a partition of {}, so it cannot be rehearsed; make it anew.", costs, stages));
  }
  if (scales != 0 && scales != static_cast<std::size_t>(plan.schedule.microbatches)) {
    throw UsageError(fmt::format("The plan has the sizes of {} microbatches and a schedule of {}, so it cannot be rehearsed; make it anew.",
                                 scales, plan.schedule.microbatches));
  }
  return std::make_unique<SyntheticStage>(plan, stage, device, std::move(betweenOperators));
}

}  // namespace pw
