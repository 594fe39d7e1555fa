#include "backends/torch/stage/stage.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "backends/torch/program/loss_count.h"
#include "backends/torch/program/number_watch.h"
#include "backends/torch/program/types.h"
#include "backends/torch/stage/data.h"
#include "backends/torch/stage/history.h"
#include "backends/torch/stage/in_flight.h"
#include "backends/torch/stage/memory.h"
#include "backends/torch/stage/parameters.h"
#include "backends/torch/stage/recorder.h"
#include "schedules/error.h"
#include "simulator/model/batch.h"

namespace pw {
namespace {

HeldBuffer held(const at::Tensor& tensor) { return {bufferOf(tensor), std::make_shared<at::Tensor>(tensor)}; }

/// Strides of a tensor without gaps; an empty order is that of its dimensions.
std::vector<std::int64_t> stridesOf(const std::vector<std::int64_t>& sizes, const std::vector<std::int64_t>& memoryOrder) {
  std::vector<std::int64_t> strides(sizes.size());
  std::int64_t inner = 1;
  for (std::size_t i = sizes.size(); i-- > 0;) {
    const std::size_t d = memoryOrder.empty() ? i : static_cast<std::size_t>(memoryOrder[i]);
    strides[d] = inner;
    inner *= std::max<std::int64_t>(sizes[d], 1);
  }
  return strides;
}

/// LibTorch runs GPU backwards on a separate thread: cuBLAS allocates that thread's workspace now, rather than later after a message that
/// is waited for.
void warmBackward(at::Device device) {
  const at::Tensor small = at::ones({16, 16}, at::TensorOptions().device(device)).set_requires_grad(true);
  const c10::AutoGradMode gradients(true);
  torch::autograd::backward({small.mm(small).sum()}, {});
}

class TracedStage final : public StageModule {
 public:
  TracedStage(const ModelGraph& graph, const Plan& plan, Stage stage, const StageOptions& options);

  const Device& device() const override { return device_; }
  void beginStep(int step, StepMode mode) override;
  HeldBuffer allocate(std::size_t transfer, Microbatch m) override;
  void setInput(std::size_t transfer, Microbatch m, HeldBuffer value) override {
    at(m).received[transfer] = tensorOf(transfer, m, std::move(value));
  }
  HeldBuffer takeOutput(std::size_t transfer, Microbatch m) override { return held(at(m).toSend.extract(transfer).mapped()); }
  void setOutputGradient(std::size_t transfer, Microbatch m, HeldBuffer gradient) override {
    at(m).outputGradients[transfer] = tensorOf(transfer, m, std::move(gradient));
  }
  HeldBuffer takeInputGradient(std::size_t transfer, Microbatch m) override {
    return held(at(m).inputGradients.extract(transfer).mapped());
  }
  void forward(Microbatch microbatch) override;
  void backward(Microbatch m) override { backward(m, false); }
  void backwardInput(Microbatch m) override { backward(m, true); }
  void backwardWeight(Microbatch m) override {
    watch_.begin(ActionKind::BackwardWeight, m);
    if (!recorder_.addWeightGradients(at(m))) program_.addWeightGradients(at(m));
    if (watch_.everyOperator()) watch_.see(parameters_.parameters());
  }
  void setLossScale(double scale) override { lossScale_ = scale; }
  void setOptimizer(const OptimizerSpec& optimizer) override { parameters_.setOptimizer(optimizer); }
  std::optional<double> stepLoss() const override {
    return isLast_ ? std::optional<double>(loss_.defined() ? loss_.item<double>() : 0) : std::nullopt;
  }
  std::optional<NonFiniteValue> firstNonFinite() override;
  void undoBuffers() override { parameters_.undoBuffers(); }
  HeldBuffer takeModelOutput(std::size_t output, Microbatch m) override {
    return held(onHost(std::exchange(at(m).modelOutputs.at(output), {})));
  }
  std::vector<ParameterGroup> groups() override { return parameters_.groups(); }
  void optimizerStep(std::size_t group, std::int64_t first, std::int64_t last, double gradientScale) override {
    parameters_.optimizerStep(group, first, last, gradientScale);
  }
  std::vector<ParameterView> parameters() override { return parameters_.parameters(); }
  std::vector<StatePiece> state() override { return parameters_.state(); }
  HistoryForward forwardWithHistory(Microbatch m, std::map<std::size_t, at::Tensor> received);
  void addGradients(Microbatch m, const std::function<at::Tensor(const at::Tensor& parameter)>& gradientOf) {
    parameters_.add(gradientOf);
    program_.observeGradients(at(m));
  }
  Bytes bytesAlive() const override { return device_.bytesAlive != nullptr ? device_.bytesAlive() : tensorBytesAlive(); }
  Bytes peakBytes() override { return device_.takePeakBytes != nullptr ? device_.takePeakBytes() : takePeakBytes(); }

 private:
  InFlight& at(Microbatch m) { return inFlight_[m.index()]; }
  [[nodiscard]] const TensorMeta& meta(std::size_t transfer) const { return *graph_.value(partition_.transfers[transfer].value).tensor; }
  [[nodiscard]] std::vector<std::int64_t> shape(std::size_t transfer, Microbatch m) const {
    return shapeOf(meta(transfer), bindings_.at(sizes_[m.index()]));
  }
  [[nodiscard]] at::TensorOptions typeOf(std::size_t transfer) const {
    return at::TensorOptions().dtype(scalarType(meta(transfer).dtype)).device(deviceOf(device_.index));
  }
  [[nodiscard]] at::Tensor tensorOf(std::size_t transfer, Microbatch m, HeldBuffer value) const;
  void backward(Microbatch m, bool splits);
  void addLoss(const at::Tensor& loss, Microbatch m);
  void takeLoss(Microbatch m, bool isRecorded);
  void lossOverBatch(Microbatch m);
  void weighMicrobatches();
  [[nodiscard]] at::Tensor lossGradient(const at::Tensor& loss) const { return at::full_like(loss, lossScale_); }

  const ModelGraph& graph_;
  const Partition& partition_;
  Stage stage_;
  bool isLast_;
  bool needsBatch_;
  StageOptions options_;
  const Device& device_;
  std::size_t firstMicrobatch_ = 0;            // in the whole batch, over all replicas
  std::vector<std::int64_t> sizes_;            // samples that each microbatch of this replica computes
  std::map<std::int64_t, Bindings> bindings_;  // by microbatch size
  LossSpec lossSpec_;
  BatchSource data_;
  std::optional<LossCounter> counter_;  // of --loss-count, on the last stage
  std::vector<std::int64_t> allSizes_;  // samples of each microbatch of the whole batch
  StageParameters parameters_;
  NumberWatch watch_;
  StageProgram program_;
  Recorder recorder_;
  std::vector<InFlight> inFlight_;               // by microbatch
  std::vector<at::Tensor> lossLeaves_, losses_;  // by microbatch: what its loss is computed from, and the loss; see takeLoss
  StepMode mode_ = StepMode::Train;
  double lossScale_ = 1;
  std::vector<at::Tensor> lossParts_;  // of each microbatch, on the device
  at::Tensor loss_;                    // of the step, in double precision, on the device: reading it waits
};

TracedStage::TracedStage(const ModelGraph& graph, const Plan& plan, Stage stage, const StageOptions& options)
    : graph_(graph),
      partition_(plan.partition),
      stage_(stage),
      isLast_(stage.index() + 1 == plan.partition.stages.size()),
      needsBatch_(needsBatch(plan, stage)),
      options_(options),
      device_(options.device != nullptr ? *options.device : hostDevice()),
      firstMicrobatch_(static_cast<std::size_t>(options.replica) * static_cast<std::size_t>(plan.schedule.microbatches)),
      lossSpec_(lossSpec(graph, plan.loss)),
      data_(graph, lossSpec_, microbatchSizes(plan.batch, plan.replicas * plan.schedule.microbatches), options.seed, options.data),
      parameters_(graph, plan, stage, options),
      watch_(graph, options.findNan),
      program_(graph, plan, stage, options_, parameters_, lossSpec_.output),
      recorder_(program_, parameters_, device_, options, static_cast<std::size_t>(plan.schedule.microbatches)) {
  const auto all = microbatchSizes(plan.batch, plan.replicas * plan.schedule.microbatches);
  allSizes_ = all;
  if (isLast_ && !options.data.lossCount.empty()) counter_.emplace(graph, parseLossCount(graph, plan.loss, options.data.lossCount));
  std::vector<ValueId> inputs = partition_.stages[stage.index()].modelInputs;
  if (counter_) inputs.insert(inputs.end(), counter_->inputs().begin(), counter_->inputs().end());
  data_.keepOnly(inputs, isLast_);
  for (std::size_t m = 0; m < static_cast<std::size_t>(plan.schedule.microbatches); ++m) {
    sizes_.push_back(options.data.masked ? plan.batch : all[firstMicrobatch_ + m]);
    if (!bindings_.contains(sizes_.back())) bindings_[sizes_.back()] = bindBatch(graph, sizes_.back());
  }
  if (device_.index >= 0) warmBackward(deviceOf(device_.index));
  inFlight_.resize(sizes_.size());
  lossLeaves_.resize(sizes_.size());
  lossParts_.resize(sizes_.size());
  if (options.findNan) program_.inspect([this](const Node& node, const Frame& frame) { watch_.see(node, frame); });
  losses_.resize(sizes_.size());
}

HeldBuffer TracedStage::allocate(std::size_t transfer, Microbatch m) {
  if (device_.index < 0) return held(at::empty(shape(transfer, m), typeOf(transfer)));
  return device_.allocate(static_cast<std::size_t>(c10::multiply_integers(shape(transfer, m)) * widthOf(meta(transfer).dtype)));
}

at::Tensor TracedStage::tensorOf(std::size_t transfer, Microbatch m, HeldBuffer value) const {
  const std::vector<std::int64_t> sizes = shape(transfer, m);
  return at::from_blob(
      value.buffer.data, sizes, stridesOf(sizes, meta(transfer).memoryOrder), [owner = std::move(value.owner)](void*) {}, typeOf(transfer));
}

void TracedStage::beginStep(int step, StepMode mode) {
  mode_ = mode;
  loss_.reset();
  watch_.beginStep();
  if (needsBatch_) data_.beginStep(step);
  if (counter_) weighMicrobatches();
  for (std::size_t m = 0; m < inFlight_.size(); ++m) {
    inFlight_[m] = {};
    inFlight_[m].microbatch = Microbatch(m);
    inFlight_[m].step = step;
    inFlight_[m].global = firstMicrobatch_ + m;
    inFlight_[m].samples = sizes_[m];
    inFlight_[m].weighsNothing = isLast_ && data_.weighsNothing(firstMicrobatch_ + m);
  }
  for (auto* tensors : {&lossLeaves_, &losses_, &lossParts_}) std::ranges::fill(*tensors, at::Tensor());
  program_.beginStep();
  if (mode == StepMode::Train) recorder_.beginStep();
  parameters_.beginStep(step);
}

/// Before the first backward, from the inputs of all microbatches.
void TracedStage::weighMicrobatches() {
  std::vector<double> counts;
  for (std::size_t m = 0; m < allSizes_.size(); ++m) {
    std::map<ValueId, at::Tensor> inputs;
    for (const ValueId input : counter_->inputs()) inputs[input] = data_.input(input, m);
    counts.push_back(counter_->count(inputs, allSizes_[m]));
  }
  data_.weigh(std::move(counts), counter_->countOfAll());
}

void TracedStage::forward(Microbatch m) {
  InFlight& inFlight = at(m);
  for (const ValueId value : partition_.stages[stage_.index()].modelInputs)
    inFlight.inputs[value] = onDevice(data_.input(value, inFlight.global), deviceOf(device_.index));
  watch_.begin(ActionKind::Forward, m);
  const bool isRecorded = mode_ == StepMode::Train && recorder_.forward(inFlight);
  if (!isRecorded) program_.forward(inFlight, mode_);
  for (const std::size_t t : program_.outgoing()) {
    const Transfer& transfer = partition_.transfers[t];
    if (mode_ == StepMode::Train) watch_.see(graph_.value(transfer.value).name, inFlight.toSend.at(t), transfer.gradient);
  }
  if (isLast_) takeLoss(m, isRecorded);
}

std::optional<NonFiniteValue> TracedStage::firstNonFinite() {
  if (const auto loss = stepLoss(); loss && !std::isfinite(*loss)) {
    for (std::size_t m = 0; m < lossParts_.size(); ++m) {
      if (!lossParts_[m].defined()) continue;
      const auto part = lossParts_[m].item<double>();
      if (!std::isfinite(part))
        watch_.note(ActionKind::Forward, Microbatch(m), std::isnan(part) ? "the loss is NaN" : "the loss is infinite");
    }
  }
  return watch_.first();
}

void TracedStage::addLoss(const at::Tensor& loss, Microbatch m) {
  const at::Tensor more = loss.detach().to(at::kDouble);
  loss_ = loss_.defined() ? loss_ + more : more;
  lossParts_[m.index()] = more;
}

/// The loss of a recorded stage, and a loss over the batch, is computed from a separate tensor whose gradient then enters the stage's
/// backward, because it depends on each step's data. Otherwise it extends the stage's autograd history, which need not keep its input.
void TracedStage::takeLoss(Microbatch m, bool isRecorded) {
  const c10::AutoGradMode gradients(mode_ == StepMode::Train);
  InFlight& inFlight = at(m);
  if (inFlight.weighsNothing) inFlight.lossOutput = at::zeros_like(inFlight.lossOutput.detach());
  if (!isRecorded && options_.data.lossOver == LossScope::PerMicrobatch) {
    inFlight.lossOutput = data_.loss(inFlight.lossOutput, inFlight.global);
    return addLoss(inFlight.lossOutput, m);
  }
  at::Tensor& leaf = lossLeaves_[m.index()];
  leaf = inFlight.lossOutput.detach();
  if (inFlight.lossOutput.requires_grad()) leaf.set_requires_grad(true);
  if (options_.data.lossOver == LossScope::WholeBatch) {
    if (std::ranges::all_of(lossLeaves_, [](const at::Tensor& one) { return one.defined(); })) lossOverBatch(m);
    return;
  }
  losses_[m.index()] = data_.loss(leaf, inFlight.global);
  addLoss(losses_[m.index()], m);
}

HistoryForward TracedStage::forwardWithHistory(Microbatch m, std::map<std::size_t, at::Tensor> received) {
  if (!options_.distributed) throw UsageError("A stage whose backward is distributed autograd's must be made for it.");
  InFlight& inFlight = at(m);
  for (auto& [transfer, value] : received) inFlight.received[transfer] = asSent(value, meta(transfer));  // calls carry elements in order
  forward(m);
  HistoryForward result;
  for (const std::size_t t : program_.outgoing())
    result.outputs.emplace_back(t, partition_.transfers[t].gradient ? inFlight.outputs.at(t) : inFlight.toSend.at(t));
  result.loss = std::exchange(inFlight.lossOutput, {});
  inFlight.received.clear();
  inFlight.outputs.clear();
  inFlight.toSend.clear();
  return result;
}

/// One loss of all outputs; each gets its gradient.
void TracedStage::lossOverBatch(Microbatch m) {
  const at::Tensor loss = data_.lossOver(lossLeaves_, firstMicrobatch_);
  addLoss(loss, m);
  if (loss.requires_grad()) torch::autograd::backward({loss}, {lossGradient(loss)});
}

void TracedStage::backward(Microbatch m, bool splits) {
  watch_.begin(splits ? ActionKind::BackwardInput : ActionKind::Backward, m);
  InFlight& inFlight = at(m);
  if (isLast_ && inFlight.lossOutput.requires_grad()) {
    const at::Tensor leaf = std::exchange(lossLeaves_[m.index()], {});
    const at::Tensor loss = std::exchange(losses_[m.index()], {});
    if (loss.defined() && loss.requires_grad()) torch::autograd::backward({loss}, {lossGradient(loss)});
    inFlight.lossGradient = leaf.defined() ? leaf.grad() : lossGradient(inFlight.lossOutput);
    if (!inFlight.lossGradient.defined()) {
      throw UsageError(
          "A loss over the whole batch needs all forwards before the first backward; use --schedule gpipe, or --loss-over microbatch.");
    }
  }
  if (!recorder_.backward(inFlight, splits)) program_.backward(inFlight, splits);
  for (const std::size_t t : program_.incoming()) {
    const Transfer& transfer = partition_.transfers[t];
    if (transfer.gradient) watch_.see("the gradient of " + graph_.value(transfer.value).name, inFlight.inputGradients.at(t), true);
  }
  if (watch_.everyOperator()) watch_.see(parameters_.parameters());
}

}  // namespace

namespace {

TracedStage& traced(StageModule& stage) {
  auto* found = dynamic_cast<TracedStage*>(&stage);
  if (found == nullptr) throw UsageError("Distributed autograd needs stages of a traced model, and this one computes nothing.");
  return *found;
}

}  // namespace

HistoryForward forwardWithHistory(StageModule& stage, Microbatch microbatch, std::map<std::size_t, at::Tensor> received) {
  return traced(stage).forwardWithHistory(microbatch, std::move(received));
}

void addGradients(StageModule& stage, Microbatch microbatch, const std::function<at::Tensor(const at::Tensor& parameter)>& gradientOf) {
  traced(stage).addGradients(microbatch, gradientOf);
}

std::unique_ptr<StageModule> makeTracedStage(const ModelGraph& graph, const Plan& plan, Stage stage, const StageOptions& options) {
  return std::make_unique<TracedStage>(graph, plan, stage, options);
}

}  // namespace pw
