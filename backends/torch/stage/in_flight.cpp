#include "backends/torch/stage/in_flight.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>

#include <utility>

#include "backends/torch/program/types.h"
#include "simulator/model/batch.h"
#include "simulator/model/graph_facts.h"

namespace pw {
namespace {

/// How a received value that the stage changes in place enters it: a tensor that is neither leaf nor view.
struct Enter : torch::autograd::Function<Enter> {
  static at::Tensor forward(torch::autograd::AutogradContext* /*context*/, const at::Tensor& received) { return received.clone(); }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* /*context*/, torch::autograd::variable_list gradients) {
    return gradients;
  }
};

/// In order, and without conjugations and signs that are yet to be applied.
at::Tensor plain(const at::Tensor& tensor) { return tensor.resolve_conj().resolve_neg().contiguous(); }

std::vector<NodeId> nodesOf(const StageSpec& spec) {
  std::vector<NodeId> nodes = spec.recomputed;
  for (std::int32_t i = spec.begin.value; i < spec.end.value; ++i) nodes.emplace_back(i);
  return nodes;
}

/// The values that a recomputed range both computes and uses. Autograd adds up their gradients within the recompute, so the tensor that
/// leaves the stage sees a part of the sum only.
std::set<ValueId> summedInRecompute(const ModelGraph& graph, const std::vector<NodeRange>& ranges) {
  std::set<ValueId> values;
  for (const NodeRange& range : ranges) {
    for (NodeId id = range.begin; id < range.end; ++id.value) {
      for (const ValueId read : readsOf(graph.node(id))) {
        const Value& value = graph.value(read);
        if (value.origin == ValueOrigin::Node && value.producer >= range.begin && value.producer < range.end) values.insert(read);
      }
    }
  }
  return values;
}

}  // namespace

at::Tensor asSent(const at::Tensor& tensor, const TensorMeta& meta) {
  if (meta.memoryOrder.empty()) return plain(tensor);
  std::vector<std::int64_t> back(meta.memoryOrder.size());
  for (std::size_t i = 0; i < back.size(); ++i) back[static_cast<std::size_t>(meta.memoryOrder[i])] = static_cast<std::int64_t>(i);
  return plain(tensor.permute(meta.memoryOrder)).permute(back);
}

StageProgram::StageProgram(const ModelGraph& graph, const Plan& plan, Stage stage, const StageOptions& options, StageParameters& parameters,
                           ValueId lossOutput)
    : graph_(graph),
      partition_(plan.partition),
      spec_(plan.partition.stages[stage.index()]),
      options_(options),
      parameters_(parameters),
      isLast_(stage.index() + 1 == plan.partition.stages.size()),
      lossOutput_(lossOutput),
      changedInPlace_(changedInPlace(graph, spec_.begin, spec_.end)),
      summedInRecompute_(summedInRecompute(graph, spec_.checkpoints)) {
  for (std::size_t t = 0; t < partition_.transfers.size(); ++t) {
    if (partition_.transfers[t].to == stage) incoming_.push_back(t);
    if (partition_.transfers[t].from == stage) outgoing_.push_back(t);
  }
  run_.key.seed = options.seed;
  run_.device = options.device != nullptr ? options.device->index : -1;
  run_.autocast = options.precision;
  if (options.betweenOperators) run_.observer = [between = options.betweenOperators](NodeId) { between(); };
  queue_.betweenOperators = options.betweenOperators;
  queue_.lower = &lowerWeights_;
  ProgramOptions program;
  for (const std::size_t t : outgoing_) program.keep.push_back(partition_.transfers[t].value);
  program.keep.insert(program.keep.end(), options.watched.begin(), options.watched.end());
  if (isLast_) program.keep.push_back(lossOutput_);
  program.checkpoints = spec_.checkpoints;
  program.weights = options.distributed ? nullptr : &queue_;  // whose gradients would bypass the pass
  program.device = run_.device;
  program.gradients = parameters_.gradients();
  program.differentiable = needsGradient(graph_);
  program_.emplace(graph_, nodesOf(spec_), program);
  parameters_.addedByAutograd(program_->addedByAutograd());
}

void StageProgram::prepareEvaluation() {
  ProgramOptions program;
  for (const std::size_t t : outgoing_) program.keep.push_back(partition_.transfers[t].value);
  if (isLast_) {
    if (options_.keepOutputs) program.keep.insert(program.keep.end(), graph_.outputs.begin(), graph_.outputs.end());
    program.keep.push_back(lossOutput_);
  }
  program.evaluate = true;
  program.device = run_.device;
  evaluation_.emplace(graph_, nodesOf(spec_), program);
}

const std::vector<std::int64_t>& StageProgram::symbolicFor(std::int64_t samples) {
  const auto [found, isNew] = symbolic_.try_emplace(samples);
  if (isNew) found->second = symbolicValues(graph_, bindBatch(graph_, samples));
  return found->second;
}

at::Tensor StageProgram::lossOutputForm(std::int64_t samples) const {
  if (!isLast_ || !needsGradient(graph_)[lossOutput_.index()]) return {};
  const TensorMeta& meta = *graph_.value(lossOutput_).tensor;
  return at::empty(shapeOf(meta, bindBatch(graph_, samples)), at::TensorOptions().dtype(scalarType(meta.dtype)).device(at::kMeta));
}

void StageProgram::observe(ValueId value, Microbatch microbatch, const at::Tensor& tensor, bool gradient) const {
  if (!options_.observe || !tensor.defined()) return;
  const at::Tensor whole = onHost(plain(tensor.detach()));
  options_.observe((gradient ? "gradient of " : "") + graph_.value(value).name, microbatch, dtypeOf(whole.scalar_type()), bufferOf(whole));
}

Frame StageProgram::frameFor(InFlight& inFlight, bool trains) const {
  Frame frame(graph_.values.size());
  parameters_.fill(frame);
  for (const auto& [value, tensor] : inFlight.inputs) frame[value.index()] = tensor;
  for (const std::size_t t : incoming_) {
    const Transfer& transfer = partition_.transfers[t];
    at::Tensor& received = inFlight.received.at(t);
    const bool leaf = transfer.gradient && trains;
    if (leaf && !options_.distributed) received.set_requires_grad(true);
    const bool changes = changedInPlace_[transfer.value.index()];  // here, while the sender or another stage may look at the same memory
    frame[transfer.value.index()] = !changes ? received : leaf ? Enter::apply(received) : received.clone();
  }
  return frame;
}

void StageProgram::forward(InFlight& inFlight, StepMode mode) {
  const bool trains = mode == StepMode::Train;
  if (!trains && !evaluation_) prepareEvaluation();
  const c10::AutoGradMode gradients(trains);
  Frame frame = frameFor(inFlight, trains);
  inFlight.inputs.clear();
  run_.key.step = inFlight.step;
  run_.key.microbatch = static_cast<int>(inFlight.global);
  run_.symbolic = &symbolicFor(inFlight.samples);
  (trains ? program_ : evaluation_)->run(frame, run_);
  keepOutputs(inFlight, frame, mode);
  watch(inFlight, frame);
  if (!trains) inFlight.received.clear();  // no backward comes to need it
}

void StageProgram::keepOutputs(InFlight& inFlight, Frame& frame, StepMode mode) const {
  for (const std::size_t t : outgoing_) {
    const Transfer& transfer = partition_.transfers[t];
    at::Tensor& value = frame[transfer.value.index()];
    value = value.to(scalarType(graph_.value(transfer.value).tensor->dtype));  // as its receiver has it, where autocast made another type
    if (transfer.gradient && mode == StepMode::Train) inFlight.outputs[t] = value;
    inFlight.toSend[t] = asSent(value.detach(), *graph_.value(transfer.value).tensor);
    observe(transfer.value, inFlight.microbatch, value, false);
    if (!options_.observe || !transfer.gradient || !value.requires_grad() || summedInRecompute_.contains(transfer.value)) continue;
    value.retain_grad();  // its gradient is observed when all its uses have given their part
    inFlight.watched[transfer.value] = value;
  }
  if (!isLast_) return;
  inFlight.lossOutput = frame[lossOutput_.index()].to(scalarType(graph_.value(lossOutput_).tensor->dtype));
  if (mode == StepMode::Train || !options_.keepOutputs) return;
  for (const ValueId output : graph_.outputs) {
    at::Tensor value = frame[output.index()];
    if (value.defined()) value = plain(value.to(scalarType(graph_.value(output).tensor->dtype)));  // as above
    inFlight.modelOutputs.push_back(value);
  }
}

void StageProgram::watch(InFlight& inFlight, const Frame& frame) const {
  for (const ValueId value : options_.watched) {
    const at::Tensor& tensor = frame[value.index()];
    observe(value, inFlight.microbatch, tensor, false);
    if (!tensor.defined() || !tensor.requires_grad()) continue;
    tensor.retain_grad();
    inFlight.watched[value] = tensor;
  }
}

void StageProgram::backward(InFlight& inFlight, bool splits) {
  std::map<ValueId, std::size_t> rootOf;
  torch::autograd::variable_list roots, gradients;
  for (auto& [t, output] : inFlight.outputs) {
    if (!output.requires_grad()) continue;
    const at::Tensor& gradient = inFlight.outputGradients.at(t);
    const auto [found, isNew] = rootOf.emplace(partition_.transfers[t].value, roots.size());
    if (isNew) {
      roots.push_back(output);
      gradients.push_back(gradient);
    } else {
      gradients[found->second] = gradients[found->second] + gradient;
    }
  }
  if (inFlight.lossGradient.defined()) {
    roots.push_back(inFlight.lossOutput);
    gradients.push_back(inFlight.lossGradient);
  }
  inFlight.outputs.clear();
  inFlight.outputGradients.clear();
  inFlight.lossOutput.reset();
  inFlight.lossGradient.reset();
  {
    const Deferring deferring(queue_, splits ? &inFlight.weights : nullptr);
    if (!roots.empty()) torch::autograd::backward(roots, gradients);
  }
  for (const std::size_t t : incoming_) {
    const Transfer& transfer = partition_.transfers[t];
    if (!transfer.gradient) continue;
    at::Tensor& received = inFlight.received.at(t);
    const at::Tensor gradient = std::exchange(received.mutable_grad(), {});  // W may keep what was received, but not its gradient
    inFlight.inputGradients[t] = gradient.defined() ? asSent(gradient, *graph_.value(transfer.value).tensor) : at::zeros_like(received);
  }
  observeGradients(inFlight);
  inFlight.received.clear();
}

void StageProgram::observeGradients(InFlight& inFlight) const {
  for (const auto& [value, tensor] : inFlight.watched) observe(value, inFlight.microbatch, tensor.grad(), true);
  inFlight.watched.clear();
}

void StageProgram::addWeightGradients(InFlight& inFlight) {
  const c10::AutoGradMode off(false);
  for (WeightGradient& weight : inFlight.weights) {
    weight.compute();
    weight.compute = nullptr;  // its tensors go
    if (queue_.betweenOperators) queue_.betweenOperators();
  }
  inFlight.weights.clear();
}

}  // namespace pw
