#include "backends/torch/profiler.h"

#include <ATen/ATen.h>
#include <ATen/SequenceNumber.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <array>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <utility>

#include "backends/host/process_memory.h"
#include "backends/messages/head_start.h"
#include "backends/messages/link_times.h"
#include "backends/torch/backward_clock.h"
#include "backends/torch/model_samples.h"
#include "backends/torch/operator_loads.h"
#include "backends/torch/program/program.h"
#include "backends/torch/program/types.h"
#include "backends/torch/stage/data.h"
#include "backends/torch/stage/memory.h"
#include "backends/torch/stage/state.h"
#include "schedules/error.h"
#include "simulator/costs/expected_sizes.h"
#include "simulator/costs/operator_flops.h"
#include "simulator/model/graph_facts.h"
#include "simulator/partition/partition.h"

namespace pw {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::chrono::minutes kProfileDeadline{2};

/// The whole model as one program; slot n (one past the nodes) stands for the loss.
class ModelRunner {
 public:
  /// What a forward leaves for its backward.
  struct Tape {
    at::Tensor loss;
    FunctionNumbers made;
    Timestamp start, ready;  // of the full-model run, and when its values were in place
    std::vector<Sample> samples;
  };

  ModelRunner(const ModelGraph& graph, const ProfileOptions& options)
      : graph_(graph),
        meter_{options.stage.device != nullptr ? *options.stage.device : hostDevice()},
        where_(deviceOf(meter_.device.index)),
        lossSpec_(lossSpec(graph, options.loss)),
        data_(graph, lossSpec_, {options.microbatch}, options.stage.seed, options.stage.data),
        symbolic_(symbolicValues(graph, bindBatch(graph, options.microbatch))),
        samples_(graph.nodes.size() + 1),
        graphs_(options.stage.graphs),
        tell_(options.stage.tell) {
    const StateReader reader(graph, options.stage.initRandom, options.stage.seed);
    ProgramOptions& program = programOptions_;
    program.gradients.resize(graph.values.size());
    std::map<std::string, std::size_t> byStorage;
    for (const StateTensor& state : graph.parameters) {
      const auto [found, isNew] = byStorage.emplace(storageOf(state), parameters_.size());
      if (isNew) addParameter(state, reader);
      const Parameter& parameter = *parameters_[found->second];
      fixed_.emplace_back(state.value, parameter.tensor);
      if (parameter.sum) program.gradients[state.value.index()] = {parameter.sum, &parameters_[found->second]->fresh};
    }
    for (const auto* group : {&graph.buffers, &graph.constants}) {
      for (const StateTensor& state : *group) fixed_.emplace_back(state.value, reader.read(state).to(where_));
    }
    program.keep = {lossSpec_.output};
    queue_.lower = &lowerWeights_;
    program.weights = &queue_;
    program.device = run_.device = meter_.device.index;
    run_.autocast = options.stage.precision;
    program.differentiable = needsGradient(graph);
    std::vector<NodeId> nodes;
    for (std::size_t n = 0; n < graph.nodes.size(); ++n) nodes.emplace_back(n);
    program_.emplace(graph, nodes, program);
    run_.symbolic = &symbolic_;
    data_.beginStep(0);
  }

  /// A first sample, and what the process loads for the model's operators. Its front runs by itself in growing parts before: so it is known
  /// what its backward does without, although a backward begins at the end.
  OperatorLoads sampleLoads() {
    constexpr std::size_t kParts = 4;
    const std::size_t nodes = graph_.nodes.size();
    OperatorLoads loads(graph_);
    loads_ = &loads;
    for (std::size_t part = 0; part + 1 < kParts; ++part) {
      loads.begin(part * nodes / kParts);
      sampleFront((part + 1) * nodes / kParts);
    }
    loads.begin((kParts - 1) * nodes / kParts);
    sample(false);
    loads_ = nullptr;
    return loads;
  }

  void sample(bool record) {
    sample(record, [this] { return forward(); });
  }

  /// One forward and backward, with the weight gradients computed separately.
  void sample(bool record, const std::function<Tape()>& runForward) {
    headStart_.begin(record);
    const Tape tape = runForward();
    std::vector<WeightGradient> deferred;
    const Timestamp start = meter_.timestamp();
    const BackwardClock clock = [&] {
      const Deferring deferring(queue_, &deferred);
      return backward(tape);
    }();
    std::vector<Sample> weights;
    std::vector<Bytes> held(graph_.nodes.size() + 1, 0);
    const c10::AutoGradMode off(false);
    for (WeightGradient& gradient : deferred) {
      const Bytes alive = meter_.alive();
      static_cast<void>(meter_.peak());
      const std::size_t node = gradient.node.index();
      const Timestamp begin = meter_.timestamp();
      gradient.compute();
      weights.push_back({node, begin, meter_.timestamp()});
      if (loads_ != nullptr) loads_->ranBackward(node);
      headStart_.step();
      samples_.weightPeak[node] = std::max(samples_.weightPeak[node], meter_.peak() - alive);
      gradient.compute = nullptr;
      held[node] += alive - meter_.alive();
    }
    samples_.held = held;
    samples_.inputPeak = clock.peak;
    samples_.inputChange = clock.change;
    const Timestamp end = meter_.timestamp();
    headStart_.end();
    meter_.finish();
    if (record) take(tape, clock, weights, start, end);
    meter_.device.forgetTimestamps();
    if (record && measuresFullModelApart()) sampleFullModel();
  }

  /// A forward and a backward as in a run: recorded, if a run would record them. Done twice, and the second is timed: in a run, too, the
  /// host enqueues one while another is being computed, which leaves the caches in the same state.
  void sampleFullModel() {
    if (!recording_) recording_ = recorded();
    const c10::AutoGradMode gradients(true);
    std::array<Timestamp, 3> moments{};
    for (int i = 0; i < 2; ++i) moments = runFullModel();
    meter_.finish();
    samples_.forwardTotals.push_back(meter_.between(moments[0], moments[1]));
    samples_.backwardTotals.push_back(meter_.between(moments[1], moments[2]));
    meter_.device.forgetTimestamps();
  }

  /// Timestamps before, between and after forward and backward.
  std::array<Timestamp, 3> runFullModel() {
    const Timestamp start = meter_.timestamp();
    at::Tensor output;
    if (recording_->forward) {
      meter_.device.launch(recording_->forward);
      output = recording_->output;
    } else {
      Frame frame = filled();
      program_->run(frame, run_);
      output = lossOutput(frame);
    }
    at::Tensor leaf = output.detach();
    leaf.set_requires_grad(output.requires_grad() || recording_->lossGradient.defined());
    const at::Tensor loss = data_.loss(leaf, 0);
    const Timestamp middle = meter_.timestamp();
    if (loss.requires_grad()) torch::autograd::backward({loss}, {});
    if (recording_->backward) {
      const c10::AutoGradMode off(false);
      recording_->lossGradient.copy_(leaf.grad());
      meter_.device.launch(recording_->backward);
    } else if (output.requires_grad()) {
      fullModelBackward(output, leaf.grad());
    }
    return {start, middle, meter_.timestamp()};
  }

  /// Measures the memory of the full backward once, as it does not vary. Call after the samples.
  void sampleMemory() {
    const BackwardClock clock = backward(forward());
    samples_.setFullBackward(clock.peak, clock.change);
  }

  [[nodiscard]] Ns optimizerTime() {
    std::vector<Ns> times;
    const c10::AutoGradMode off(false);
    for (int i = 0; i < 5; ++i) {
      const Timestamp start = meter_.timestamp();
      for (const auto& parameter : parameters_) {
        if (parameter->sum) parameter->tensor.add_(*parameter->sum, -1e-9);
      }
      const Timestamp end = meter_.timestamp();
      meter_.finish();
      times.push_back(meter_.between(start, end));
    }
    meter_.device.forgetTimestamps();
    return median(times);
  }

  [[nodiscard]] const ModelSamples& samples() const { return samples_; }
  [[nodiscard]] const Device& device() const { return meter_.device; }

  /// Of the trained ones.
  [[nodiscard]] Bytes parameterBytes() const {
    Bytes bytes = 0;
    for (const auto& parameter : parameters_) bytes += parameter->sum ? static_cast<Bytes>(parameter->tensor.nbytes()) : 0;
    return bytes;
  }

 private:
  struct Parameter {
    at::Tensor tensor;
    std::shared_ptr<at::Tensor> sum;  // null where it is not trained
    bool fresh = false;               // gradients are added, as those of all microbatches but the first
  };
  /// The model's forward and backward, recorded as a stage's are; empty where they are done operator by operator.
  struct Recording {
    std::vector<std::pair<ValueId, at::Tensor>> inputs;
    at::Tensor output, lossGradient;
    at::Tensor history;  // the output's, between the two
    std::shared_ptr<void> pool, forward, backward;
  };

  void addParameter(const StateTensor& state, const StateReader& reader) {
    auto parameter = std::make_unique<Parameter>();
    const TensorMeta& meta = *graph_.value(state.value).tensor;
    parameter->tensor = reader.read(state).to(where_);
    if (isTrained(meta)) {
      parameter->sum = std::make_shared<at::Tensor>(at::zeros_like(parameter->tensor));
      parameter->tensor.set_requires_grad(true);
      parameter->tensor.mutable_grad() = *parameter->sum;
    }
    parameters_.push_back(std::move(parameter));
  }

  [[nodiscard]] bool isOnGpu() const { return meter_.device.index >= 0; }
  /// Whether full-model runs are measured separately, without timestamps inside; on a host these cost almost nothing.
  [[nodiscard]] bool measuresFullModelApart() const { return isOnGpu() || meter_.device.record != nullptr; }

  [[nodiscard]] Frame filled() const {
    Frame frame(graph_.values.size());
    for (const auto& [value, tensor] : fixed_) frame[value.index()] = tensor;
    for (const ValueId input : graph_.inputs) frame[input.index()] = onDevice(data_.input(input, 0), where_);
    return frame;
  }

  /// As a stage passes it to the loss: in the type it was traced with, even if autocast made another.
  [[nodiscard]] at::Tensor lossOutput(const Frame& frame) const {
    return frame[lossSpec_.output.index()].to(scalarType(graph_.value(lossSpec_.output).tensor->dtype));
  }

  Tape forward() {
    return forward(*program_, [this](const Frame& frame) {
      const at::Tensor output = lossOutput(frame);
      if (!outputForm_.defined())
        outputForm_ = at::empty(output.sizes(), output.options().device(at::kMeta)).set_requires_grad(output.requires_grad());
      return data_.loss(output, 0);
    });
  }

  /// Forward and backward of the nodes before `end`.
  void sampleFront(std::size_t end) {
    std::vector<NodeId> nodes;
    std::vector<bool> isMade(graph_.values.size(), false);
    for (std::size_t n = 0; n < end; ++n) {
      nodes.emplace_back(n);
      for (const ValueId value : graph_.nodes[n].outputs) isMade[value.index()] = true;
    }
    ProgramOptions options = programOptions_;
    options.keep.clear();
    for (std::size_t n = end; n < graph_.nodes.size(); ++n) {
      for (const ValueId value : readsOf(graph_.nodes[n])) {
        if (!isMade[value.index()] || !graph_.value(value).tensor) continue;
        isMade[value.index()] = false;
        options.keep.push_back(value);
      }
    }
    const NodeProgram front(graph_, nodes, options);
    sample(false, [&] {
      return forward(front, [&](const Frame& frame) {
        at::Tensor sum = at::zeros({}, at::TensorOptions(where_));
        for (const ValueId value : options.keep) {
          const at::Tensor& tensor = frame[value.index()];
          if (tensor.requires_grad()) sum = sum + (tensor.is_complex() ? at::view_as_real(tensor.resolve_conj()) : tensor).sum();
        }
        return sum;
      });
    });
  }

  Tape forward(const NodeProgram& program, const std::function<at::Tensor(const Frame&)>& lossOf) {
    Tape tape;
    tape.start = meter_.timestamp();
    Frame frame = filled();
    tape.made.sequence.push_back(at::sequence_number::peek());
    Bytes alive = meter_.alive();
    static_cast<void>(meter_.peak());
    Timestamp last = tape.ready = meter_.timestamp();
    const auto note = [&](std::size_t node) {
      const Timestamp now = meter_.timestamp();
      tape.samples.push_back({node, last, now});
      const Bytes bytes = meter_.alive();
      samples_.forwardPeak[node] = meter_.peak() - alive;
      samples_.saved[node] = bytes - std::exchange(alive, bytes);
      tape.made.sequence.push_back(at::sequence_number::peek());
      tape.made.nodeOfRange.push_back(node);
      headStart_.step();
      if (loads_ != nullptr) loads_->ranForward(node);
      last = isOnGpu() ? meter_.timestamp() : now;  // on the host the time in between is part of a run, too
    };
    run_.observer = [&](NodeId id) { note(id.index()); };
    program.run(frame, run_);
    run_.observer = nullptr;
    tape.loss = lossOf(frame);
    frame.clear();
    note(graph_.nodes.size());
    return tape;
  }

  /// Reads the times of a sample, once the device has finished.
  void take(const Tape& tape, const BackwardClock& clock, const std::vector<Sample>& weights, Timestamp start, Timestamp end) {
    for (const Sample& sample : tape.samples) samples_.forward[sample.node].push_back(meter_.between(sample.begin, sample.end));
    samples_.overhead.push_back(meter_.between(tape.start, tape.ready));
    if (!measuresFullModelApart()) {
      samples_.forwardTotals.push_back(meter_.between(tape.start, tape.samples.back().end));
      samples_.backwardTotals.push_back(meter_.between(start, end));
    }
    std::vector<Ns> spent(graph_.nodes.size() + 1, 0), weight(graph_.nodes.size() + 1, 0);
    for (const Sample& sample : clock.samples) spent[sample.node] += meter_.between(sample.begin, sample.end);
    for (const Sample& sample : weights) weight[sample.node] += meter_.between(sample.begin, sample.end);
    samples_.addBackward(spent, weight);
  }

  void fullModelBackward(const at::Tensor& output, const at::Tensor& gradient) {
    std::vector<WeightGradient> deferred;
    {
      const Deferring deferring(queue_, &deferred);
      torch::autograd::backward({output}, {gradient});
    }
    const c10::AutoGradMode off(false);
    for (WeightGradient& one : deferred) std::exchange(one.compute, nullptr)();
  }

  /// As Recorder does it for a stage.
  std::unique_ptr<Recording> recorded() {
    auto made = std::make_unique<Recording>();
    Recording& r = *made;
    if (!graphs_ || meter_.device.record == nullptr) return made;
    if (program_->isRandom()) return withoutGraphs("it draws random numbers (dropout)");
    if (program_->dependsOnData()) return withoutGraphs("it reads sizes or numbers from its data");
    for (const ValueId input : graph_.inputs) r.inputs.emplace_back(input, data_.input(input, 0).to(where_));
    if (outputForm_.requires_grad()) r.lossGradient = at::zeros(outputForm_.sizes(), outputForm_.options().device(where_));
    try {
      r.forward = meter_.device.record(
          [&] {
            const c10::AutoGradMode gradients(true);
            Frame frame(graph_.values.size());
            for (const auto* values : {&fixed_, &r.inputs}) {
              for (const auto& [value, tensor] : *values) frame[value.index()] = tensor;
            }
            program_->run(frame, run_);
            r.history = lossOutput(frame);
            r.output = r.history.detach();
          },
          r.pool);
      if (r.lossGradient.defined())
        r.backward = meter_.device.record([&] { fullModelBackward(std::exchange(r.history, {}), r.lossGradient); }, r.pool);
      return made;
    } catch (const std::exception& problem) {
      return withoutGraphs(problem.what());
    }
  }

  /// A run then also continues operator by operator.
  [[nodiscard]] std::unique_ptr<Recording> withoutGraphs(const std::string& reason) const {
    if (tell_) tell_("is measured operator by operator, without CUDA graphs, because " + reason);
    return std::make_unique<Recording>();
  }

  BackwardClock backward(const Tape& tape) {
    BackwardClock clock(graph_.nodes.size() + 1, graph_.nodes.size(), meter_, headStart_);
    if (!tape.loss.requires_grad()) return clock;
    if (loads_ != nullptr) clock.ended = [this](std::size_t node) { loads_->ranBackward(node); };
    enterNodes(clock, tape.loss, tape.made);
    clock.start();
    torch::autograd::backward({tape.loss}, {});
    clock.enter(graph_.nodes.size());
    return clock;
  }

  const ModelGraph& graph_;
  Meter meter_;
  HeadStart headStart_{meter_.device};
  at::Device where_;
  LossSpec lossSpec_;
  BatchSource data_;
  std::vector<std::int64_t> symbolic_;
  ModelSamples samples_;
  LowerWeights lowerWeights_;
  WeightQueue queue_;
  std::vector<std::unique_ptr<Parameter>> parameters_;
  std::optional<NodeProgram> program_;
  RunOptions run_;
  ProgramOptions programOptions_;
  std::vector<std::pair<ValueId, at::Tensor>> fixed_;
  bool graphs_;
  std::function<void(const std::string&)> tell_;
  OperatorLoads* loads_ = nullptr;        // while they are watched
  at::Tensor outputForm_;                 // shape and type of what the loss is computed from, without memory
  std::unique_ptr<Recording> recording_;  // from the first full-model run on
};

}  // namespace

Profile measureProfile(const ModelGraph& graph, const ProfileOptions& options, Communicator* group,
                       const std::function<void(int, int)>& progress) {
  installCountingAllocator();
  ModelRunner runner(graph, options);
  const auto start = Clock::now();
  const auto meet = [&] {
    if (group != nullptr) group->barrier();
  };
  const bool isOnHost = runner.device().index < 0;
  meet();
  const std::optional<OperatorLoads> loads = isOnHost ? std::optional(runner.sampleLoads()) : std::nullopt;
  for (int i = isOnHost ? 1 : 0; i < options.warmup; ++i) {
    meet();
    runner.sample(false);
  }
  // What measuring itself needs comes later.
  const Bytes processBytes = isOnHost ? std::max<Bytes>(0, residentPeak() - mostTensorBytes()) : 0;
  // The number of samples must be the same on all ranks: it follows from rank 0's budget, told by a message.
  for (int i = 0; i < options.samples; ++i) {
    std::byte more{1};
    if (i >= 3 && Clock::now() - start > options.budget) more = std::byte{0};
    if (group != nullptr && group->rank().value == 0) {
      for (int r = 1; r < group->size(); ++r) group->wait(group->send(JobRank(r), 0, {&more, 1}));
    } else if (group != nullptr) {
      group->wait(group->receive(JobRank(0), 0, {&more, 1}));
    }
    if (more == std::byte{0}) break;
    meet();
    runner.sample(true);
    if (progress) progress(i + 1, options.samples);
  }
  Profile profile;
  profile.model = graph.name;
  profile.microbatch = options.microbatch;
  profile.ranksAtOnce = group == nullptr ? 1 : group->size();
  profile.computing.precision = options.stage.precision;
  profile.processBytes = processBytes;
  if (loads) profile.loads = loads->loads(processBytes);
  runner.sampleMemory();
  runner.samples().fill(profile);
  meet();
  profile.optimizerNsPerByte =
      static_cast<double>(runner.optimizerTime()) / static_cast<double>(std::max<Bytes>(1, runner.parameterBytes()));
  const Bindings bindings = bindExpected(graph, options.microbatch);
  std::vector<double> flops;
  for (std::size_t n = 0; n < graph.nodes.size(); ++n) {
    flops.push_back(forwardFlops(graph, graph.nodes[n], bindings).value_or(0));  // a size may depend on data: only the time is known
    profile.nodes[n].flops = flops.back();
  }
  profile.backwardFlops = backwardFlops(graph, needsGradient(graph), flops);
  meet();
  if (group != nullptr && group->size() > 1) {
    const auto times = linkTimes(*group, runner.device(), kProfileDeadline);
    if (group->rank().value == 0) profile.topology.sameNode = fitLink(times);
  }
  return profile;
}

}  // namespace pw
