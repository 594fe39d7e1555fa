#include "backends/torch/stage/recorder.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <exception>

namespace pw {
namespace {

/// Shape, order of dimensions in memory, and type of a tensor, without memory.
at::Tensor likeOf(const at::Tensor& tensor) { return at::empty_like(tensor, tensor.options().device(at::kMeta)); }

template <class Key>
std::map<Key, at::Tensor> likeOf(const std::map<Key, at::Tensor>& tensors) {
  std::map<Key, at::Tensor> like;
  for (const auto& [key, tensor] : tensors) like.emplace(key, likeOf(tensor));
  return like;
}

at::Tensor zeros(const at::Tensor& like, at::Device device) { return at::zeros_like(like, like.options().device(device)); }

template <class Key>
std::map<Key, at::Tensor> zeros(const std::map<Key, at::Tensor>& like, at::Device device) {
  std::map<Key, at::Tensor> tensors;
  for (const auto& [key, one] : like) tensors.emplace(key, zeros(one, device));
  return tensors;
}

template <class Key>
void copyInto(std::map<Key, at::Tensor>& into, const std::map<Key, at::Tensor>& from) {
  for (auto& [key, tensor] : into) tensor.variable_data().copy_(from.at(key));
}

template <class Key>
std::map<Key, at::Tensor> copyOf(const std::map<Key, at::Tensor>& tensors) {
  std::map<Key, at::Tensor> copies;
  for (const auto& [key, tensor] : tensors) copies.emplace(key, tensor.detach().clone());
  return copies;
}

}  // namespace

/// The recording of one microbatch in flight: its inputs and outputs at fixed addresses, and the actions between.
struct Recorder::Recording {
  std::int64_t samples = 0;
  bool splits = false, busy = false;
  std::map<ValueId, at::Tensor> inputs;
  std::map<std::size_t, at::Tensor> received, outputGradients, toSend, inputGradients;
  at::Tensor lossOutput, lossGradient;
  InFlight inFlight;  // between the actions
  std::shared_ptr<void> pool, forward, backward, weights;
};

Recorder::Recorder(StageProgram& program, StageParameters& parameters, const Device& device, const StageOptions& options,
                   std::size_t microbatches)
    : program_(program),
      parameters_(parameters),
      device_(device),
      tell_(options.tell),
      observed_(static_cast<bool>(options.observe) || !options.watched.empty()),
      phase_(options.graphs && device.record != nullptr ? Phase::Learns : Phase::Off),
      splits_(microbatches),
      of_(microbatches) {}

Recorder::~Recorder() = default;

void Recorder::beginStep() {
  inFlight_ = {};
  for (const auto& recording : recordings_) recording->busy = false;
  std::ranges::fill(of_, nullptr);
  if (phase_ == Phase::Off || phase_ == Phase::Launches || !form_) return;  // the first step has yet to come
  if (phase_ == Phase::Learns) {
    phase_ = Phase::Counts;
    return;
  }
  record();
}

void Recorder::record() {
  std::string reason;
  if (program_.isRandom()) reason = "it draws random numbers (dropout)";
  if (program_.dependsOnData()) reason = "it reads sizes or numbers from its data";
  if (observed_) reason = "its values are compared (--verify)";
  if (reason.empty()) {
    parameters_.addFromZero();
    try {
      // In addition to the recordings a step needs copies of inputs and outputs, and the loss: without room for them, nothing can be
      // recorded.
      const at::Tensor reserve = at::empty({bytesOutside()}, at::TensorOptions().dtype(at::kByte).device(parameters_.device()));
      for (const bool splits : {false, true}) {
        for (std::size_t i = 0; i < most_[splits ? 1 : 0]; ++i) recordings_.push_back(recorded(splits));
      }
      phase_ = Phase::Launches;
      return;
    } catch (const std::exception& problem) {
      recordings_.clear();
      reason = problem.what();
    }
  }
  phase_ = Phase::Off;
  form_.reset();
  if (tell_) tell_("runs operator by operator, without CUDA graphs, because " + reason);
}

/// Approximate memory that a step allocates while it launches recordings.
std::int64_t Recorder::bytesOutside() const {
  std::int64_t bytes = 0;
  for (const auto& [value, tensor] : form_->inputs) bytes += static_cast<std::int64_t>(tensor.nbytes());
  for (const auto* tensors : {&form_->received, &form_->outputGradients}) {
    for (const auto& [transfer, tensor] : *tensors)
      bytes += 2 * static_cast<std::int64_t>(tensor.nbytes());  // and the gradients in the other direction
  }
  bytes *= static_cast<std::int64_t>(most_[0] + most_[1]) + 1;
  const at::Tensor output = program_.lossOutputForm(form_->samples);
  return output.defined() ? bytes + 4 * static_cast<std::int64_t>(output.nbytes())
                          : bytes;  // its logarithms, their gradient, and both again in float32
}

std::unique_ptr<Recorder::Recording> Recorder::recorded(bool splits) {
  auto made = std::make_unique<Recording>();
  Recording& r = *made;
  const at::Device device = parameters_.device();
  r.samples = form_->samples;
  r.splits = splits;
  r.inputs = zeros(form_->inputs, device);
  r.received = zeros(form_->received, device);
  r.outputGradients = zeros(form_->outputGradients, device);
  if (const at::Tensor output = program_.lossOutputForm(r.samples); output.defined()) r.lossGradient = zeros(output, device);
  StageProgram& program = program_;
  r.forward = device_.record(
      [&r, &program] {
        r.inFlight = {};
        r.inFlight.samples = r.samples;
        r.inFlight.inputs = r.inputs;
        for (auto& [transfer, tensor] : r.received) tensor.mutable_grad().reset();
        r.inFlight.received = r.received;
        program.forward(r.inFlight, StepMode::Train);
        r.toSend = std::move(r.inFlight.toSend);
        r.lossOutput = r.inFlight.lossOutput.defined() ? r.inFlight.lossOutput.detach() : at::Tensor();
      },
      r.pool);
  r.backward = device_.record(
      [&r, &program] {
        r.inFlight.outputGradients = r.outputGradients;
        r.inFlight.lossGradient = r.lossGradient;
        program.backward(r.inFlight, r.splits);
        r.inputGradients = std::move(r.inFlight.inputGradients);
      },
      r.pool);
  if (splits) r.weights = device_.record([&r, &program] { program.addWeightGradients(r.inFlight); }, r.pool);
  return made;
}

/// What enters a microbatch of the first size, and its kind.
void Recorder::learn(const InFlight& inFlight, bool splits) {
  splits_[inFlight.microbatch.index()] = splits;
  if (form_->samples == inFlight.samples) form_->outputGradients = likeOf(inFlight.outputGradients);
}

bool Recorder::forward(InFlight& inFlight) {
  if (phase_ == Phase::Off) return false;
  const bool splits = splits_[inFlight.microbatch.index()];
  if (phase_ == Phase::Learns) {
    if (form_) return false;
    form_ = std::make_unique<Recording>();
    form_->samples = inFlight.samples;
    form_->inputs = likeOf(inFlight.inputs);
    form_->received = likeOf(inFlight.received);
    return false;
  }
  if (phase_ == Phase::Counts) {
    std::size_t& now = inFlight_[splits ? 1 : 0];
    most_[splits ? 1 : 0] = std::max(most_[splits ? 1 : 0], ++now);
    return false;
  }
  if (inFlight.samples != form_->samples || inFlight.weighsNothing) return false;
  const auto free = std::ranges::find_if(recordings_, [&](const auto& r) { return !r->busy && r->splits == splits; });
  if (free == recordings_.end()) return false;
  Recording& r = **free;
  r.busy = true;
  of_[inFlight.microbatch.index()] = &r;
  const c10::AutoGradMode off(false);
  copyInto(r.inputs, inFlight.inputs);
  copyInto(r.received, inFlight.received);
  inFlight.inputs.clear();
  inFlight.received.clear();
  device_.launch(r.forward);
  inFlight.toSend = copyOf(r.toSend);
  if (r.lossOutput.defined()) inFlight.lossOutput = r.lossOutput.detach().set_requires_grad(r.lossGradient.defined());
  return true;
}

bool Recorder::backward(InFlight& inFlight, bool splits) {
  if (phase_ == Phase::Learns) learn(inFlight, splits);
  Recording* const r = of_[inFlight.microbatch.index()];
  if (r == nullptr) {
    if (!splits) end(inFlight.microbatch);
    return false;
  }
  const c10::AutoGradMode off(false);
  copyInto(r->outputGradients, inFlight.outputGradients);
  if (r->lossGradient.defined()) r->lossGradient.copy_(inFlight.lossGradient);
  inFlight.outputGradients.clear();
  inFlight.lossOutput.reset();
  inFlight.lossGradient.reset();
  device_.launch(r->backward);
  inFlight.inputGradients = copyOf(r->inputGradients);
  if (!splits) end(inFlight.microbatch);
  return true;
}

bool Recorder::addWeightGradients(InFlight& inFlight) {
  Recording* const r = of_[inFlight.microbatch.index()];
  if (r != nullptr) device_.launch(r->weights);
  end(inFlight.microbatch);
  return r != nullptr;
}

/// The microbatch is no longer in flight.
void Recorder::end(Microbatch microbatch) {
  if (phase_ == Phase::Counts) --inFlight_[splits_[microbatch.index()] ? 1 : 0];
  if (Recording* const r = std::exchange(of_[microbatch.index()], nullptr)) r->busy = false;
}

}  // namespace pw
