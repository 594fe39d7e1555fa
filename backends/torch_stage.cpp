#include "backends/torch_stage.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <map>

#include "backends/torch_data.h"
#include "backends/torch_memory.h"
#include "backends/torch_parameters.h"
#include "backends/torch_program.h"
#include "backends/torch_types.h"
#include "schedules/error.h"
#include "simulator/graph_facts.h"

namespace pw {
namespace {

/// How a received value that the stage changes in place enters it: a tensor that is neither leaf nor view.
struct Enter : torch::autograd::Function<Enter> {
  static at::Tensor forward(torch::autograd::AutogradContext* /*context*/, const at::Tensor& received) { return received.clone(); }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* /*context*/, torch::autograd::variable_list gradients) {
    return gradients;
  }
};

Buffer bufferOf(const at::Tensor& tensor) {
  return {static_cast<std::byte*>(tensor.data_ptr()), static_cast<std::size_t>(tensor.nbytes())};
}

/// The same numbers on the host.
at::Tensor onHost(const at::Tensor& tensor) { return tensor.device().is_cpu() ? tensor : tensor.cpu(); }

HeldBuffer held(const at::Tensor& tensor) { return {bufferOf(tensor), std::make_shared<at::Tensor>(tensor)}; }

/// What a microbatch keeps between its forward and its backward, by transfer index where a value crosses.
struct InFlight {
  std::map<std::size_t, at::Tensor> received;         // leaves where a gradient goes back
  std::map<std::size_t, at::Tensor> outputs;          // with autograd history
  std::map<std::size_t, at::Tensor> toSend;           // contiguous, detached
  std::map<std::size_t, at::Tensor> outputGradients;  // received
  std::map<std::size_t, at::Tensor> inputGradients;   // to be sent
  std::map<ValueId, at::Tensor> watched;
  std::vector<at::Tensor> modelOutputs;               // of an evaluation
  std::vector<WeightGradient> weights;                // that W computes
  at::Tensor loss;
  at::Tensor lossOutput;                              // with one loss over the batch: the output, then its gradient
};

class TracedStage final : public StageModule {
 public:
  TracedStage(const ModelGraph& graph, const Plan& plan, Stage stage, const StageOptions& options);

  const Device& device() const override { return device_; }
  void beginStep(int step, StepMode mode) override;
  HeldBuffer allocate(std::size_t transfer, Microbatch m) override;
  void setInput(std::size_t transfer, Microbatch m, HeldBuffer value) override { at(m).received[transfer] = tensorOf(transfer, m, std::move(value)); }
  HeldBuffer takeOutput(std::size_t transfer, Microbatch m) override { return held(at(m).toSend.extract(transfer).mapped()); }
  void setOutputGradient(std::size_t transfer, Microbatch m, HeldBuffer gradient) override {
    at(m).outputGradients[transfer] = tensorOf(transfer, m, std::move(gradient));
  }
  HeldBuffer takeInputGradient(std::size_t transfer, Microbatch m) override { return held(at(m).inputGradients.extract(transfer).mapped()); }
  void forward(Microbatch microbatch) override;
  void backward(Microbatch m) override {
    queue_.deferred = nullptr;
    propagate(m);
  }
  void backwardInput(Microbatch m) override {
    queue_.deferred = &at(m).weights;
    propagate(m);
    queue_.deferred = nullptr;
  }
  void backwardWeight(Microbatch microbatch) override;
  std::optional<double> stepLoss() const override {
    return isLast_ ? std::optional<double>(loss_.defined() ? loss_.item<double>() : 0) : std::nullopt;
  }
  HeldBuffer takeModelOutput(std::size_t output, Microbatch m) override { return held(onHost(std::exchange(at(m).modelOutputs.at(output), {}))); }
  std::vector<ParameterGroup> groups() override { return parameters_.groups(); }
  void optimizerStep(std::size_t group, std::int64_t first, std::int64_t last, double gradientScale) override {
    parameters_.optimizerStep(group, first, last, gradientScale);
  }
  std::vector<ParameterView> parameters() override { return parameters_.parameters(); }
  std::vector<StatePiece> state() override { return parameters_.state(); }
  Bytes bytesAlive() const override { return device_.bytesAlive != nullptr ? device_.bytesAlive() : tensorBytesAlive(); }
  Bytes peakBytes() override { return device_.takePeakBytes != nullptr ? device_.takePeakBytes() : takePeakBytes(); }

 private:
  InFlight& at(Microbatch m) { return inFlight_[m.index()]; }
  /// In the whole batch, over all replicas.
  [[nodiscard]] std::size_t global(Microbatch m) const { return firstMicrobatch_ + m.index(); }
  [[nodiscard]] const TensorMeta& meta(std::size_t transfer) const { return *graph_.value(partition_.transfers[transfer].value).tensor; }
  [[nodiscard]] std::vector<std::int64_t> shape(std::size_t transfer, Microbatch m) const { return shapeOf(meta(transfer), bindings_.at(sizes_[m.index()])); }
  [[nodiscard]] at::TensorOptions typeOf(std::size_t transfer) const { return at::TensorOptions().dtype(scalarType(meta(transfer).dtype)).device(deviceOf(device_.index)); }
  [[nodiscard]] at::Tensor tensorOf(std::size_t transfer, Microbatch m, HeldBuffer value) const;
  void prepare(const StageOptions& options);
  [[nodiscard]] at::Tensor onDevice(const at::Tensor& tensor) const;
  [[nodiscard]] Frame frameFor(Microbatch m);
  void keepOutputs(Microbatch m, Frame& frame);
  void watch(Microbatch m, const Frame& frame);
  void propagate(Microbatch m);
  void lossOverBatch();
  void addLoss(const at::Tensor& loss);
  void observe(ValueId value, Microbatch m, const at::Tensor& tensor, bool gradient) const;

  const ModelGraph& graph_;
  const Partition& partition_;
  Stage stage_;
  bool isLast_;
  StageOptions options_;
  const Device& device_;
  std::vector<std::size_t> incoming_, outgoing_;  // transfer indices
  std::vector<bool> changedInPlace_;
  std::size_t firstMicrobatch_ = 0;
  std::vector<std::int64_t> sizes_;               // samples that each microbatch of this replica computes
  std::map<std::int64_t, Bindings> bindings_;     // by microbatch size
  std::map<std::int64_t, std::vector<std::int64_t>> symbolic_;
  LossSpec lossSpec_;
  BatchSource data_;
  StageParameters parameters_;
  WeightQueue queue_;
  std::optional<NodeProgram> program_, evaluation_;
  std::vector<InFlight> inFlight_;
  RunOptions run_;
  StepMode mode_ = StepMode::Train;
  at::Tensor loss_;                               // of the step, in double precision, on the device: reading it waits
};

std::vector<NodeId> nodesOf(const StageSpec& spec) {
  std::vector<NodeId> nodes = spec.recomputed;
  for (std::int32_t i = spec.begin.value; i < spec.end.value; ++i) nodes.emplace_back(i);
  return nodes;
}

TracedStage::TracedStage(const ModelGraph& graph, const Plan& plan, Stage stage, const StageOptions& options)
    : graph_(graph), partition_(plan.partition), stage_(stage), isLast_(stage.index() + 1 == plan.partition.stages.size()), options_(options),
      device_(options.device != nullptr ? *options.device : hostDevice()), changedInPlace_(changedInPlace(graph)), firstMicrobatch_(static_cast<std::size_t>(options.replica) * static_cast<std::size_t>(plan.schedule.microbatches)),
      lossSpec_(parseLoss(graph, plan.loss)),
      data_(graph, lossSpec_, microbatchSizes(plan.batch, plan.replicas * plan.schedule.microbatches), options.seed, options.data),
      parameters_(graph, plan, stage, options) {
  const auto all = microbatchSizes(plan.batch, plan.replicas * plan.schedule.microbatches);
  for (std::size_t m = 0; m < static_cast<std::size_t>(plan.schedule.microbatches); ++m) {
    sizes_.push_back(options.data.masked ? plan.batch : all[firstMicrobatch_ + m]);
    if (bindings_.contains(sizes_.back())) continue;
    bindings_[sizes_.back()] = bindBatch(graph, sizes_.back());
    symbolic_[sizes_.back()] = symbolicValues(graph, bindings_[sizes_.back()]);
  }
  for (std::size_t t = 0; t < partition_.transfers.size(); ++t) {
    if (partition_.transfers[t].to == stage) incoming_.push_back(t);
    if (partition_.transfers[t].from == stage) outgoing_.push_back(t);
  }
  inFlight_.resize(sizes_.size());
  run_.key.seed = options.seed;
  run_.device = device_.index;
  run_.autocast = options.precision;
  if (options.betweenOperators) run_.observer = [between = options.betweenOperators](NodeId) { between(); };
  queue_.betweenOperators = options.betweenOperators;
  prepare(options);
}

void TracedStage::prepare(const StageOptions& options) {
  const StageSpec& spec = partition_.stages[stage_.index()];
  ProgramOptions program;
  for (const std::size_t t : outgoing_) program.keep.push_back(partition_.transfers[t].value);
  program.keep.insert(program.keep.end(), options.watched.begin(), options.watched.end());
  if (isLast_) program.keep.push_back(lossSpec_.output);
  program.checkpoints = spec.checkpoints;
  if (options.precision == DType::Unknown) program.weights = &queue_;  // in two types an operator's gradients are autograd's matter
  program.device = device_.index;
  program.gradients = parameters_.gradients();
  program.differentiable = needsGradient(graph_);
  program_.emplace(graph_, nodesOf(spec), program);
  parameters_.addedByAutograd(program_->addedByAutograd());
}

HeldBuffer TracedStage::allocate(std::size_t transfer, Microbatch m) {
  if (device_.index < 0) return held(at::empty(shape(transfer, m), typeOf(transfer)));
  return device_.allocate(static_cast<std::size_t>(c10::multiply_integers(shape(transfer, m)) * bytesPerElement(meta(transfer).dtype)));
}

at::Tensor TracedStage::tensorOf(std::size_t transfer, Microbatch m, HeldBuffer value) const {
  return at::from_blob(value.buffer.data, shape(transfer, m), [owner = std::move(value.owner)](void*) {}, typeOf(transfer));
}

void TracedStage::beginStep(int step, StepMode mode) {
  mode_ = mode;
  run_.key.step = step;
  loss_.reset();
  data_.beginStep(step);
  parameters_.beginStep(step);
  for (InFlight& flight : inFlight_) flight = {};
  if (mode != StepMode::Evaluate || evaluation_) return;
  ProgramOptions program;
  for (const std::size_t t : outgoing_) program.keep.push_back(partition_.transfers[t].value);
  if (isLast_) {
    program.keep.insert(program.keep.end(), graph_.outputs.begin(), graph_.outputs.end());
    program.keep.push_back(lossSpec_.output);
  }
  program.evaluate = true;
  program.device = device_.index;
  evaluation_.emplace(graph_, nodesOf(partition_.stages[stage_.index()]), program);
}

void TracedStage::observe(ValueId value, Microbatch m, const at::Tensor& tensor, bool gradient) const {
  if (!options_.observe || !tensor.defined()) return;
  const at::Tensor whole = onHost(tensor.detach()).contiguous();
  options_.observe((gradient ? "gradient of " : "") + graph_.value(value).name, m, dtypeOf(whole.scalar_type()), bufferOf(whole));
}

/// A GPU takes it from pinned memory when it gets there, and this thread goes on.
at::Tensor TracedStage::onDevice(const at::Tensor& tensor) const {
  return device_.index < 0 ? tensor : tensor.pin_memory().to(deviceOf(device_.index), true);
}

Frame TracedStage::frameFor(Microbatch m) {
  Frame frame(graph_.values.size());
  parameters_.fill(frame);
  for (const ValueId value : partition_.stages[stage_.index()].modelInputs) frame[value.index()] = onDevice(data_.input(value, global(m)));
  for (const std::size_t t : incoming_) {
    const Transfer& transfer = partition_.transfers[t];
    at::Tensor& received = at(m).received.at(t);
    const bool trains = transfer.gradient && mode_ == StepMode::Train;
    if (trains) received.set_requires_grad(true);
    const bool changes = changedInPlace_[transfer.value.index()];  // the sender, or another stage, may look at the same memory
    frame[transfer.value.index()] = !changes ? received : trains ? Enter::apply(received) : received.clone();
  }
  return frame;
}

void TracedStage::forward(Microbatch m) {
  InFlight& flight = at(m);
  Frame frame = frameFor(m);
  run_.key.microbatch = static_cast<int>(global(m));
  run_.symbolic = &symbolic_.at(sizes_[m.index()]);
  const c10::AutoGradMode mode(mode_ == StepMode::Train);
  (mode_ == StepMode::Train ? program_ : evaluation_)->run(frame, run_);
  keepOutputs(m, frame);
  watch(m, frame);
  if (!isLast_) return;
  const at::Tensor output = frame[lossSpec_.output.index()].to(scalarType(graph_.value(lossSpec_.output).tensor->dtype));
  frame.clear();
  if (options_.data.lossOverBatch) {
    flight.lossOutput = output;
    const bool all = std::all_of(inFlight_.begin(), inFlight_.end(), [](const InFlight& f) { return f.lossOutput.defined(); });
    if (all) lossOverBatch();
    return;
  }
  flight.loss = data_.loss(output, global(m));
  addLoss(flight.loss);
}

void TracedStage::keepOutputs(Microbatch m, Frame& frame) {
  InFlight& flight = at(m);
  for (const std::size_t t : outgoing_) {
    const Transfer& transfer = partition_.transfers[t];
    at::Tensor& value = frame[transfer.value.index()];
    value = value.to(scalarType(meta(t).dtype));  // as its receiver has it, where autocast made another type
    if (transfer.gradient && mode_ == StepMode::Train) flight.outputs[t] = value;
    flight.toSend[t] = value.detach().contiguous();
    observe(transfer.value, m, value, false);
    if (!options_.observe || !transfer.gradient || !value.requires_grad()) continue;
    value.retain_grad();  // its gradient is observed when all its uses have given their part
    flight.watched[transfer.value] = value;
  }
  if (!isLast_ || mode_ == StepMode::Train) return;
  for (const ValueId output : graph_.outputs) flight.modelOutputs.push_back(frame[output.index()].defined() ? frame[output.index()].contiguous() : at::Tensor());
}

void TracedStage::watch(Microbatch m, const Frame& frame) {
  for (const ValueId value : options_.watched) {
    const at::Tensor& tensor = frame[value.index()];
    observe(value, m, tensor, false);
    if (!tensor.defined() || !tensor.requires_grad()) continue;
    tensor.retain_grad();
    at(m).watched[value] = tensor;
  }
}

void TracedStage::addLoss(const at::Tensor& loss) {
  const at::Tensor more = loss.detach().to(at::kDouble);
  loss_ = loss_.defined() ? loss_ + more : more;
}

/// One loss of all outputs; each gets its gradient.
void TracedStage::lossOverBatch() {
  std::vector<at::Tensor> leaves;
  for (InFlight& flight : inFlight_) leaves.push_back(flight.lossOutput.detach().set_requires_grad(mode_ == StepMode::Train));
  const at::Tensor loss = data_.lossOver(leaves, firstMicrobatch_);
  addLoss(loss);
  if (mode_ == StepMode::Train) torch::autograd::backward({loss}, {});
  for (std::size_t m = 0; m < leaves.size(); ++m) {
    inFlight_[m].loss = std::exchange(inFlight_[m].lossOutput, leaves[m].mutable_grad());
  }
}

void TracedStage::propagate(Microbatch m) {
  InFlight& flight = at(m);
  std::map<ValueId, std::size_t> rootOf;
  torch::autograd::variable_list roots, gradients;
  for (auto& [t, output] : flight.outputs) {
    if (!output.requires_grad()) continue;
    const at::Tensor& gradient = flight.outputGradients.at(t);
    const auto [found, isNew] = rootOf.emplace(partition_.transfers[t].value, roots.size());
    if (isNew) {
      roots.push_back(output);
      gradients.push_back(gradient);
    } else {
      gradients[found->second] = gradients[found->second] + gradient;
    }
  }
  if (isLast_ && options_.data.lossOverBatch && !flight.loss.defined()) {
    throw UsageError("A loss over the whole batch needs all forwards before the first backward; use --schedule gpipe, or --loss-over microbatch.");
  }
  if (flight.loss.defined() && flight.loss.requires_grad()) {
    roots.push_back(flight.loss);
    gradients.push_back(options_.data.lossOverBatch ? flight.lossOutput : at::ones_like(flight.loss));
  }
  flight.outputs.clear();
  flight.outputGradients.clear();
  flight.loss.reset();
  flight.lossOutput.reset();
  if (!roots.empty()) torch::autograd::backward(roots, gradients);
  for (const std::size_t t : incoming_) {
    const Transfer& transfer = partition_.transfers[t];
    if (!transfer.gradient) continue;
    const at::Tensor& received = flight.received.at(t);
    const at::Tensor& gradient = received.grad();
    flight.inputGradients[t] = gradient.defined() ? gradient.contiguous() : at::zeros_like(received);
  }
  for (const auto& [value, tensor] : flight.watched) observe(value, m, tensor.grad(), true);
  flight.watched.clear();
  flight.received.clear();
}

void TracedStage::backwardWeight(Microbatch m) {
  const c10::AutoGradMode off(false);
  for (WeightGradient& weight : at(m).weights) {
    weight.compute();
    weight.compute = nullptr;  // its tensors go
    if (queue_.betweenOperators) queue_.betweenOperators();
  }
  at(m).weights.clear();
}

}  // namespace

std::unique_ptr<StageModule> makeTracedStage(const ModelGraph& graph, const Plan& plan, Stage stage, const StageOptions& options) {
  return std::make_unique<TracedStage>(graph, plan, stage, options);
}

}  // namespace pw
