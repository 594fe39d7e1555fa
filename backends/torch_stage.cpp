#include "backends/torch_stage.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>

#include <map>
#include <unordered_map>

#include "backends/torch_data.h"
#include "backends/torch_memory.h"
#include "backends/torch_program.h"
#include "backends/torch_state.h"
#include "backends/torch_types.h"
#include "schedules/error.h"

namespace pw {
namespace {

/// How a received value enters a stage: a new tensor over the same memory, neither leaf nor view, so that an operator in place
/// may be the stage's first.
struct Enter : torch::autograd::Function<Enter> {
  static at::Tensor forward(torch::autograd::AutogradContext* /*context*/, const at::Tensor& received) {
    return at::empty({0}, received.options()).set_(received.storage(), received.storage_offset(), received.sizes(), received.strides());
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* /*context*/, torch::autograd::variable_list gradients) {
    return gradients;
  }
};

Buffer bufferOf(const at::Tensor& tensor) {
  return {static_cast<std::byte*>(tensor.data_ptr()), static_cast<std::size_t>(tensor.nbytes())};
}

/// What a microbatch keeps between its forward and its backward, by transfer index where a value crosses.
struct InFlight {
  std::map<std::size_t, at::Tensor> received;        // inputs as they arrived; leaves where a gradient goes back
  std::map<std::size_t, at::Tensor> outputs;         // with autograd history
  std::map<std::size_t, at::Tensor> sent;            // contiguous, detached
  std::map<std::size_t, at::Tensor> outputGradients; // received
  std::map<std::size_t, at::Tensor> inputGradients;  // to be sent
  at::Tensor loss;
};

class TracedStage final : public StageModule {
 public:
  TracedStage(const ModelGraph& graph, const Plan& plan, Stage stage, const StageOptions& options);

  void beginStep(int step) override;
  Buffer inputBuffer(std::size_t transfer, Microbatch m) override {
    return bufferOf(at(m).received[transfer] = makeBuffer(transfer, m));
  }
  Buffer outputBuffer(std::size_t transfer, Microbatch m) override { return bufferOf(at(m).sent.at(transfer)); }
  Buffer outputGradientBuffer(std::size_t transfer, Microbatch m) override {
    return bufferOf(at(m).outputGradients[transfer] = makeBuffer(transfer, m));
  }
  Buffer inputGradientBuffer(std::size_t transfer, Microbatch m) override { return bufferOf(at(m).inputGradients.at(transfer)); }
  void forward(Microbatch microbatch) override;
  void backward(Microbatch microbatch) override;
  void releaseOutputs(Microbatch m) override { at(m).sent.clear(); }
  void releaseInputGradients(Microbatch m) override { at(m).inputGradients.clear(); }
  std::optional<double> stepLoss() const override { return isLast_ ? std::optional<double>(loss_) : std::nullopt; }
  Buffer replicatedGradient(std::size_t replicated) override { return bufferOf(gradientOf(replicatedParameter(replicated))); }
  void sumReplicatedGradient(std::size_t replicated, const std::vector<Buffer>& parts) override;
  void optimizerStep() override;
  std::vector<ParameterView> parameters() override;
  Bytes bytesAlive() const override { return tensorBytesAlive(); }

 private:
  struct Parameter {
    std::string name;
    std::string identity;
    at::Tensor tensor;
    std::vector<ValueId> values;  // all names it is read under
  };

  InFlight& at(Microbatch m) { return inFlight_[m.index()]; }
  [[nodiscard]] at::Tensor makeBuffer(std::size_t transfer, Microbatch m) const;
  void loadState(const StageOptions& options);
  [[nodiscard]] at::Tensor& replicatedParameter(std::size_t replicated);
  static at::Tensor gradientOf(at::Tensor& parameter);

  const ModelGraph& graph_;
  const Partition& partition_;
  Stage stage_;
  bool isLast_;
  std::vector<std::size_t> incoming_, outgoing_;  // transfer indices
  std::vector<ValueId> modelInputs_;
  std::vector<std::int64_t> sizes_;               // samples of each microbatch
  std::map<std::int64_t, Bindings> bindings_;     // by microbatch size
  std::map<std::int64_t, std::vector<std::int64_t>> symbolic_;
  LossSpec lossSpec_;
  BatchSource data_;
  std::unique_ptr<NodeProgram> program_;
  std::vector<Parameter> parameters_;
  std::vector<std::pair<ValueId, at::Tensor>> fixed_;  // buffers and constants
  std::vector<InFlight> inFlight_;
  RandomKey key_;
  double learningRate_;
  double loss_ = 0;
};

std::vector<NodeId> nodesOf(const StageSpec& spec) {
  std::vector<NodeId> nodes = spec.recomputed;
  for (std::int32_t i = spec.begin.value; i < spec.end.value; ++i) nodes.emplace_back(i);
  return nodes;
}

TracedStage::TracedStage(const ModelGraph& graph, const Plan& plan, Stage stage, const StageOptions& options)
    : graph_(graph), partition_(plan.partition), stage_(stage), isLast_(stage.index() + 1 == plan.partition.stages.size()),
      modelInputs_(plan.partition.stages.at(stage.index()).modelInputs), sizes_(microbatchSizes(plan.batch, plan.schedule.microbatches)),
      lossSpec_(parseLoss(graph, plan.loss)), data_(graph, lossSpec_, sizes_, options.seed, options.dataFile),
      learningRate_(options.learningRate) {
  std::vector<ValueId> keep;
  for (std::size_t t = 0; t < partition_.transfers.size(); ++t) {
    if (partition_.transfers[t].to == stage) incoming_.push_back(t);
    if (partition_.transfers[t].from != stage) continue;
    outgoing_.push_back(t);
    keep.push_back(partition_.transfers[t].value);
  }
  if (isLast_) keep.push_back(lossSpec_.output);
  program_ = std::make_unique<NodeProgram>(graph, nodesOf(partition_.stages.at(stage.index())), keep);
  for (const std::int64_t size : sizes_) {
    if (bindings_.contains(size)) continue;
    bindings_[size] = bindBatch(graph, size);
    symbolic_[size] = symbolicValues(graph, bindings_[size]);
  }
  inFlight_.resize(sizes_.size());
  key_.seed = options.seed;
  loadState(options);
}

void TracedStage::loadState(const StageOptions& options) {
  const StageSpec& spec = partition_.stages[stage_.index()];
  const StateReader reader(graph_, options.initRandom, options.seed);
  for (const std::size_t index : spec.parameters) {
    const StateTensor& state = graph_.parameters[index];
    Parameter parameter{state.name, storageOf(state), reader.read(state), {}};
    const DType dtype = graph_.value(state.value).tensor->dtype;
    parameter.tensor.set_requires_grad(isDifferentiable(dtype) && graph_.value(state.value).tensor->requiresGrad);
    for (const StateTensor& other : graph_.parameters) {
      if (storageOf(other) == parameter.identity) parameter.values.push_back(other.value);
    }
    parameters_.push_back(std::move(parameter));
  }
  for (const std::size_t index : spec.buffers) fixed_.emplace_back(graph_.buffers[index].value, reader.read(graph_.buffers[index]));
  for (const std::size_t index : spec.constants) fixed_.emplace_back(graph_.constants[index].value, reader.read(graph_.constants[index]));
}

at::Tensor TracedStage::makeBuffer(std::size_t transfer, Microbatch m) const {
  const TensorMeta& meta = *graph_.value(partition_.transfers.at(transfer).value).tensor;
  return at::empty(shapeOf(meta, bindings_.at(sizes_[m.index()])), at::TensorOptions().dtype(scalarType(meta.dtype)));
}

void TracedStage::beginStep(int step) {
  key_.step = step;
  loss_ = 0;
  data_.beginStep(step);
  for (Parameter& parameter : parameters_) parameter.tensor.mutable_grad().reset();
  for (InFlight& flight : inFlight_) flight = {};
}

void TracedStage::forward(Microbatch m) {
  InFlight& flight = at(m);
  Frame frame(graph_.values.size());
  for (const Parameter& parameter : parameters_) {
    for (const ValueId value : parameter.values) frame[value.index()] = parameter.tensor;
  }
  for (const auto& [value, tensor] : fixed_) frame[value.index()] = tensor;
  for (const ValueId value : modelInputs_) frame[value.index()] = data_.input(value, m.index());
  for (const std::size_t t : incoming_) {
    const Transfer& transfer = partition_.transfers[t];
    at::Tensor& received = flight.received.at(t);
    if (transfer.gradient) received.set_requires_grad(true);
    frame[transfer.value.index()] = transfer.gradient ? Enter::apply(received) : received;
  }
  key_.microbatch = m.value;
  program_->run(frame, symbolic_.at(sizes_[m.index()]), key_, {});
  for (const std::size_t t : outgoing_) {
    const at::Tensor& value = frame[partition_.transfers[t].value.index()];
    if (partition_.transfers[t].gradient) flight.outputs[t] = value;
    flight.sent[t] = value.detach().contiguous();
  }
  if (!isLast_) return;
  flight.loss = data_.loss(frame[lossSpec_.output.index()], m.index());
  loss_ += flight.loss.item<double>();
}

void TracedStage::backward(Microbatch m) {
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
  if (flight.loss.defined() && flight.loss.requires_grad()) {
    roots.push_back(flight.loss);
    gradients.push_back(at::ones_like(flight.loss));
  }
  if (!roots.empty()) torch::autograd::backward(roots, gradients);
  for (const std::size_t t : incoming_) {
    if (!partition_.transfers[t].gradient) continue;
    const at::Tensor& received = flight.received.at(t);
    const at::Tensor& gradient = received.grad();
    flight.inputGradients[t] = gradient.defined() ? gradient.contiguous() : at::zeros_like(received);
  }
  flight.received.clear();
  flight.outputs.clear();
  flight.outputGradients.clear();
  flight.loss.reset();
}

at::Tensor& TracedStage::replicatedParameter(std::size_t replicated) {
  const std::string& storage = partition_.replicated.at(replicated).storage;
  for (Parameter& parameter : parameters_) {
    if (parameter.identity == storage) return parameter.tensor;
  }
  throw Error("Stage " + std::to_string(stage_.value) + " does not hold the shared parameter " + partition_.replicated[replicated].name + "; plan the model again.");
}

at::Tensor TracedStage::gradientOf(at::Tensor& parameter) {
  at::Tensor& gradient = parameter.mutable_grad();
  if (!gradient.defined()) gradient = at::zeros_like(parameter);
  if (!gradient.is_contiguous()) gradient = gradient.contiguous();
  return gradient;
}

void TracedStage::sumReplicatedGradient(std::size_t replicated, const std::vector<Buffer>& parts) {
  at::Tensor& parameter = replicatedParameter(replicated);
  at::Tensor sum = at::zeros_like(parameter, at::MemoryFormat::Contiguous);
  for (const Buffer& part : parts) sum.add_(at::from_blob(part.data, parameter.sizes(), parameter.options().requires_grad(false)));
  parameter.mutable_grad() = sum;
}

void TracedStage::optimizerStep() {
  const c10::AutoGradMode off(false);
  for (Parameter& parameter : parameters_) {
    const at::Tensor& gradient = parameter.tensor.grad();
    if (gradient.defined()) parameter.tensor.add_(gradient, -learningRate_);
  }
}

std::vector<ParameterView> TracedStage::parameters() {
  std::vector<ParameterView> views;
  for (Parameter& parameter : parameters_) {
    if (!parameter.tensor.requires_grad()) continue;
    views.push_back({parameter.name, dtypeOf(parameter.tensor.scalar_type()), bufferOf(parameter.tensor),
                     bufferOf(gradientOf(parameter.tensor))});
  }
  return views;
}

}  // namespace

std::unique_ptr<StageModule> makeTracedStage(const ModelGraph& graph, const Plan& plan, Stage stage, const StageOptions& options) {
  return std::make_unique<TracedStage>(graph, plan, stage, options);
}

}  // namespace pw
