#include "backends/torch/stage/parameters.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <map>
#include <utility>

#include "backends/torch/program/types.h"
#include "backends/torch/stage/checkpoint.h"
#include "backends/torch/stage/optimizer.h"
#include "backends/torch/stage/state.h"
#include "schedules/error.h"
#include "simulator/partition/parameter_order.h"

namespace pw {
namespace {

/// Bytes that a parameter's place in its group is a multiple of: matrix products on GPUs are slower for matrices that are not aligned.
constexpr std::int64_t kAlignment = 64;

/// What the optimizers update: of complex numbers the real and imaginary parts, one after the other, as torch.optim does it by
/// view_as_real.
DType realOf(DType dtype) { return dtype == DType::ComplexFloat ? DType::Float32 : dtype == DType::ComplexDouble ? DType::Float64 : dtype; }
bool isPair(DType dtype) { return realOf(dtype) != dtype; }

/// Takes a tensor of a checkpoint, whose type and shape must be those of the model's.
void copyFrom(const CheckpointFile& file, const std::string& name, at::Tensor& into) {
  const at::Tensor found = file.read(name);
  if (!found.defined()) throw UsageError("The checkpoint lacks " + name + "; it is of another model, or was truncated.");
  if (found.sizes() != into.sizes() || found.scalar_type() != into.scalar_type()) {
    throw UsageError("In the checkpoint " + name + " has another shape or type than in the model; it is of another model.");
  }
  into.copy_(found);
}

/// The elements of a flat tensor from `first` on in this shape, whose last dimension is a complex number's two parts where it is one.
at::Tensor partOf(const at::Tensor& flat, std::int64_t first, const std::vector<std::int64_t>& shape, bool isComplex) {
  const at::Tensor part = flat.narrow(0, first, c10::multiply_integers(shape)).view(shape);
  return (isComplex ? at::view_as_complex(part) : part).detach();
}

}  // namespace

struct StageParameters::Parameter {
  std::string name;
  std::string identity;
  at::Tensor tensor;                     // the leaf that the graph reads
  std::shared_ptr<at::Tensor> gradient;  // null where it is not trained
  std::vector<ValueId> values;           // all names it is read under
  std::int64_t first = 0;                // in its group, elements: of a complex parameter real numbers, two to an element
  bool isComplex = false;

  [[nodiscard]] std::int64_t count() const { return tensor.numel() * (isComplex ? 2 : 1); }
  std::size_t group = 0;
  std::size_t optimizerGroup = 0;
  bool fresh = true;
  bool zeroFirst = false;
};

struct StageParameters::Group {
  std::optional<std::size_t> shared, summed;
  at::Tensor values, gradients;      // flat
  std::int64_t first = 0, last = 0;  // elements this rank updates; known from the first step on
};

struct StageParameters::Fixed {
  const StateTensor* state = nullptr;
  at::Tensor tensor;
  bool isBuffer = false;
};

StageParameters::StageParameters(const ModelGraph& graph, const Plan& plan, Stage stage, const StageOptions& options)
    : graph_(graph),
      random_(options.initRandom),
      seed_(options.seed),
      resetsOptimizer_(options.resetOptimizer),
      values_(graph.values.size()),
      device_(options.device != nullptr ? options.device->index : -1),
      keepsBuffers_(options.keepBuffers) {
  const c10::AutoGradMode off(false);
  arrange(graph, plan, stage);
  if (stage == Stage(0)) unread_ = unreadState(graph, plan.partition);
  if (!options.resume.empty()) resume_ = std::make_unique<CheckpointFile>(options.resume);
  read(graph, plan.partition.stages.at(stage.index()), options);
  optimizer_ = std::make_unique<Optimizer>(options.optimizer, options.updates);
  takeGroups(options.optimizer);
}

StageParameters::~StageParameters() = default;

void StageParameters::arrange(const ModelGraph& graph, const Plan& plan, Stage stage) {
  const std::vector<Place> places = addParameters(graph, plan, stage);
  for (auto begin = places.begin(); begin != places.end();) {
    const auto end = std::find_if(begin, places.end(), [&](const Place& p) {
      return p.shared != begin->shared || p.summed != begin->summed || p.dtype != begin->dtype;
    });
    addGroup(graph, {begin, end});
    begin = end;
  }
}

/// Adds the stage's parameters, without values, and returns the places of those that are trained.
std::vector<StageParameters::Place> StageParameters::addParameters(const ModelGraph& graph, const Plan& plan, Stage stage) {
  const auto& sharedOnes = plan.partition.shared;
  std::vector<Place> places;
  for (const std::size_t index : plan.partition.stages.at(stage.index()).parameters) {
    const StateTensor& state = graph.parameters[index];
    const TensorMeta& meta = *graph.value(state.value).tensor;
    Parameter parameter;
    parameter.name = state.name;
    parameter.identity = storageOf(state);
    for (const StateTensor& other : graph.parameters) {
      if (storageOf(other) == parameter.identity) parameter.values.push_back(other.value);
    }
    parameter.isComplex = isPair(meta.dtype);
    if (isTrained(meta)) {
      const auto shared =
          std::find_if(sharedOnes.begin(), sharedOnes.end(), [&](const SharedParameter& s) { return s.storage == parameter.identity; });
      const bool isOwn = shared == sharedOnes.end();
      places.push_back({isOwn ? 0 : static_cast<std::size_t>(shared - sharedOnes.begin()) + 1,
                        isOwn && plan.cuts ? std::optional(summedWith(*plan.cuts, index)) : std::nullopt, meta.dtype, parameters_.size()});
    }
    parameter.tensor = at::empty({0}, at::TensorOptions().dtype(scalarType(meta.dtype)));
    parameters_.push_back(std::move(parameter));
  }
  std::sort(places.begin(), places.end());
  return places;
}

/// Gives these parameters, of one group, their places in its two tensors. What lies between two is zero in both, and stays so.
void StageParameters::addGroup(const ModelGraph& graph, std::span<const Place> places) {
  const DType dtype = places.front().dtype, real = realOf(dtype);
  const auto step = static_cast<std::int64_t>(kAlignment) / widthOf(real);
  const auto flatShape = [&](const Parameter& parameter) {
    auto shape = shapeOf(*graph.value(parameter.values.front()).tensor, {});
    if (real != dtype) shape.push_back(2);
    return shape;
  };
  std::int64_t elements = 0;
  std::vector<std::pair<std::int64_t, std::int64_t>> gaps;  // where they begin, and how long they are
  for (const Place& place : places) {
    Parameter& parameter = parameters_[place.parameter];
    parameter.group = groups_.size();
    parameter.first = (elements + step - 1) / step * step;
    if (parameter.first > elements) gaps.emplace_back(elements, parameter.first - elements);
    elements = parameter.first + c10::multiply_integers(flatShape(parameter));
  }
  Group group;
  if (places.front().shared > 0) group.shared = places.front().shared - 1;
  group.summed = places.front().summed;
  group.values = at::empty({elements}, at::TensorOptions().dtype(scalarType(real)).device(deviceOf(device_)));
  group.gradients = at::empty_like(group.values);
  group.last = elements;
  for (const auto& [first, count] : gaps) {
    for (const at::Tensor& flat : {group.values, group.gradients}) flat.narrow(0, first, count).zero_();
  }
  for (const Place& place : places) {
    Parameter& parameter = parameters_[place.parameter];
    const auto shape = flatShape(parameter);
    // With a version of its own: where a model changes one parameter in place, what autograd saved of the others is as it was.
    parameter.tensor = partOf(group.values, parameter.first, shape, real != dtype).variable_data();
    parameter.gradient = std::make_shared<at::Tensor>(partOf(group.gradients, parameter.first, shape, real != dtype));
  }
  groups_.push_back(std::move(group));
}

void StageParameters::read(const ModelGraph& graph, const StageSpec& spec, const StageOptions& options) {
  const StateReader reader(graph, options.initRandom, options.seed);
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    Parameter& parameter = parameters_[i];
    const StateTensor& state = graph.parameters[spec.parameters[i]];
    const TensorMeta& meta = *graph.value(state.value).tensor;
    if (!parameter.gradient)
      parameter.tensor = at::empty(shapeOf(meta, {}), at::TensorOptions().dtype(scalarType(meta.dtype)).device(deviceOf(device_)));
    if (resume_) {
      copyFrom(*resume_, parameter.name, parameter.tensor);
    } else if (device_ < 0) {
      reader.readInto(state, parameter.tensor);
    } else {
      parameter.tensor.copy_(reader.read(state));
    }
    if (!parameter.gradient) continue;
    parameter.tensor.set_requires_grad(true);
    parameter.tensor.mutable_grad() = *parameter.gradient;
  }
  const auto readFixed = [&](const StateTensor& state, bool isBuffer) {
    const TensorMeta& meta = *graph.value(state.value).tensor;
    at::Tensor tensor = at::empty(shapeOf(meta, {}), at::TensorOptions().dtype(scalarType(meta.dtype)));
    resume_&& isBuffer&& state.persistent ? copyFrom(*resume_, state.name, tensor) : reader.readInto(state, tensor);
    fixed_.push_back({&state, tensor.to(deviceOf(device_)), isBuffer});
  };
  for (const std::size_t index : spec.buffers) readFixed(graph.buffers[index], true);
  for (const std::size_t index : spec.constants) readFixed(graph.constants[index], false);
}

void StageParameters::beginStep(int step) {
  step_ = step;
  kept_.clear();
  if (keepsBuffers_) {
    const c10::AutoGradMode off(false);
    for (const Fixed& fixed : fixed_) kept_.push_back(fixed.isBuffer ? fixed.tensor.clone() : at::Tensor());
  }
  for (Parameter& parameter : parameters_) {
    if (!parameter.gradient) continue;
    parameter.fresh = !parameter.zeroFirst && !fromZero_;
    if (parameter.zeroFirst && !fromZero_) parameter.gradient->zero_();
  }
  if (!fromZero_) return;
  for (const Group& group : groups_) {
    at::Tensor gradients = group.gradients;
    gradients.zero_();
  }
}

void StageParameters::undoBuffers() {
  const c10::AutoGradMode off(false);
  for (std::size_t i = 0; i < kept_.size(); ++i) {
    if (kept_[i].defined()) fixed_[i].tensor.copy_(kept_[i]);
  }
}

at::Device StageParameters::device() const { return deviceOf(device_); }

void StageParameters::fill(Frame& frame) const {
  for (const Parameter& parameter : parameters_) {
    for (const ValueId value : parameter.values) frame[value.index()] = parameter.tensor;
  }
  for (const Fixed& fixed : fixed_) frame[fixed.state->value.index()] = fixed.tensor;
}

std::vector<ParameterGradient> StageParameters::gradients() {
  std::vector<ParameterGradient> byValue(values_);
  for (Parameter& parameter : parameters_) {
    if (!parameter.gradient) continue;
    for (const ValueId value : parameter.values) byValue[value.index()] = {parameter.gradient, &parameter.fresh};
  }
  return byValue;
}

void StageParameters::addedByAutograd(const std::vector<ValueId>& parameters) {
  for (Parameter& parameter : parameters_) {
    for (const ValueId value : parameter.values) {
      if (std::find(parameters.begin(), parameters.end(), value) != parameters.end()) parameter.zeroFirst = true;
    }
  }
}

void StageParameters::add(const std::function<at::Tensor(const at::Tensor& parameter)>& gradientOf) {
  const c10::AutoGradMode off(false);
  for (Parameter& parameter : parameters_) {
    if (!parameter.gradient) continue;
    const at::Tensor gradient = gradientOf(parameter.tensor);
    if (!gradient.defined()) continue;
    const bool isFirst = std::exchange(parameter.fresh, false);
    if (isFirst && gradient.layout() == at::kStrided) {
      parameter.gradient->copy_(gradient);
      continue;
    }
    if (isFirst) parameter.gradient->zero_();  // a sparse one can only be added to a dense one
    parameter.gradient->add_(gradient);
  }
}

/// Gradients that nothing reached are zeros.
void StageParameters::settle() {
  for (Parameter& parameter : parameters_) {
    if (parameter.gradient && std::exchange(parameter.fresh, false)) parameter.gradient->zero_();
  }
}

std::vector<ParameterGroup> StageParameters::groups() {
  settle();
  std::vector<ParameterGroup> groups;
  for (const Group& group : groups_) {
    groups.push_back({group.shared, group.summed, dtypeOf(group.values.scalar_type()), bufferOf(group.values), bufferOf(group.gradients)});
  }
  return groups;
}

void StageParameters::optimizerStep(std::size_t index, std::int64_t first, std::int64_t last, double gradientScale) {
  const c10::AutoGradMode off(false);
  settle();
  Group& group = groups_.at(index);
  // A checkpoint may have been written before the first update said what this rank updates.
  if (group.first != first || group.last != last) {
    optimizer_->forget(index);
    resumed_.erase(index);
  }
  group.first = first;
  group.last = last;
  if (first == last) return;
  if (resume_) resumeOptimizer(index);
  at::Tensor values = group.values.narrow(0, first, last - first), gradients = group.gradients.narrow(0, first, last - first);
  optimizer_->step(index, values, gradients, step_, gradientScale, piecesOf(index, first, last));
}

void StageParameters::setOptimizer(const OptimizerSpec& optimizer) {
  optimizer_->change(optimizer);
  takeGroups(optimizer);
}

void StageParameters::takeGroups(const OptimizerSpec& optimizer) {
  if (optimizer.groups.empty()) return;
  std::map<std::string, std::size_t> byStorage;
  for (const StateTensor& state : graph_.parameters) byStorage.emplace(storageOf(state), groupOf(optimizer, state.name));
  for (Parameter& parameter : parameters_) parameter.optimizerGroup = byStorage.at(parameter.identity);
}

/// What lies between two parameters goes with the first.
std::vector<OptimizerPiece> StageParameters::piecesOf(std::size_t group, std::int64_t first, std::int64_t last) const {
  std::vector<OptimizerPiece> pieces;
  for (const Parameter& parameter : parameters_) {  // those of a group in the order of their places
    if (!parameter.gradient || parameter.group != group || parameter.first >= last) continue;
    if (parameter.first <= first) {
      pieces.clear();
    } else {
      pieces.back().last = parameter.first - first;
    }
    if (pieces.empty() || pieces.back().group != parameter.optimizerGroup) pieces.push_back({0, parameter.optimizerGroup});
    pieces.back().last = last - first;
  }
  return pieces;
}

/// Takes the optimizer state of what this rank updates from the checkpoint, once.
void StageParameters::resumeOptimizer(std::size_t index) {
  const Group& group = groups_[index];
  if (resetsOptimizer_ || group.values.numel() == 0) return;
  const at::Tensor values = group.values.narrow(0, group.first, group.last - group.first);
  if (!resumed_.insert(index).second) return;
  for (auto& [name, tensor] : optimizer_->state(index, values)) {
    for (const Parameter& parameter : parameters_) {
      if (!parameter.gradient || parameter.group != index) continue;
      const at::Tensor saved = resume_->read(name + "/" + parameter.name);
      if (!saved.defined()) continue;  // a checkpoint of weights alone: the optimizer begins anew
      const std::int64_t begin = std::max(parameter.first, group.first), end = std::min(parameter.first + parameter.count(), group.last);
      if (begin >= end) continue;
      if (saved.numel() != parameter.tensor.numel() || saved.is_complex() != parameter.isComplex) {
        throw UsageError("In the checkpoint " + name + "/" + parameter.name +
                         " has another size or type than the parameter; it is damaged.");
      }
      const at::Tensor flat = (parameter.isComplex ? at::view_as_real(saved.resolve_conj()) : saved).reshape({-1});
      tensor.narrow(0, begin - group.first, end - begin).copy_(flat.narrow(0, begin - parameter.first, end - begin));
    }
  }
}

/// The tensor's memory, or of a GPU's a copy.
Buffer StageParameters::onHost(const at::Tensor& tensor) {
  if (tensor.device().is_cpu()) return bufferOf(tensor);
  copies_.push_back(tensor.detach().cpu());
  return bufferOf(copies_.back());
}

std::vector<ParameterView> StageParameters::parameters() {
  settle();
  copies_.clear();
  std::vector<ParameterView> views;
  for (const Parameter& parameter : parameters_) {
    if (!parameter.gradient) continue;
    views.push_back({parameter.name, dtypeOf(parameter.tensor.scalar_type()), onHost(parameter.tensor), onHost(*parameter.gradient)});
  }
  return views;
}

/// As the checkpoint that was resumed has it, which may be of other values than the archive; one that lacks it was written before it was
/// kept.
at::Tensor StageParameters::unread(const StateTensor& state) const {
  at::Tensor saved;
  if (resume_) saved = resume_->read(state.name);
  if (saved.defined()) return saved.contiguous();
  return StateReader(graph_, random_, seed_).read(state);
}

std::vector<StatePiece> StageParameters::state() {
  copies_.clear();
  std::vector<StatePiece> pieces;
  const auto whole = [&](const std::string& name, const at::Tensor& tensor) {
    pieces.push_back({name, dtypeOf(tensor.scalar_type()), tensor.sizes().vec(), 0, onHost(tensor)});
  };
  for (const Parameter& parameter : parameters_) whole(parameter.name, parameter.tensor);
  for (const Fixed& fixed : fixed_) {
    if (fixed.isBuffer && fixed.state->persistent) whole(fixed.state->name, fixed.tensor);
  }
  for (const StateTensor* state : unread_) {
    if (graph_.value(state->value).tensor->dtype == DType::Unknown) continue;  // that no file of tensors can hold
    copies_.push_back(unread(*state));
    whole(state->name, copies_.back());
  }
  for (std::size_t index = 0; index < groups_.size(); ++index) {
    const Group& group = groups_[index];
    if (group.first == group.last) continue;
    if (resume_) resumeOptimizer(index);
    for (const auto& [name, tensor] : optimizer_->state(index, group.values.narrow(0, group.first, group.last - group.first))) {
      for (const Parameter& parameter : parameters_) {
        if (!parameter.gradient || parameter.group != index) continue;
        const std::int64_t begin = std::max(parameter.first, group.first), end = std::min(parameter.first + parameter.count(), group.last);
        if (begin >= end) continue;
        const at::Tensor part = tensor.narrow(0, begin - group.first, end - begin);
        const std::int64_t numbers = parameter.isComplex ? 2 : 1;  // to an element
        if ((begin - parameter.first) % numbers != 0 || (end - begin) % numbers != 0) {
          throw Error("A rank's share of the optimizer's state ends within a complex number of " + parameter.name +
                      "; omit --zero1, or plan with --share replicate.");
        }
        pieces.push_back({name + "/" + parameter.name, dtypeOf(parameter.tensor.scalar_type()), parameter.tensor.sizes().vec(),
                          (begin - parameter.first) / numbers, onHost(part)});
      }
    }
  }
  return pieces;
}

}  // namespace pw
