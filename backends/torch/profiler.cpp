#include "backends/torch/profiler.h"

#include <ATen/ATen.h>
#include <ATen/SequenceNumber.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/function_hook.h>

#include <algorithm>
#include <array>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <unordered_set>
#include <utility>

#include "backends/messages/head_start.h"
#include "backends/messages/link_times.h"
#include "backends/torch/program/program.h"
#include "backends/torch/program/types.h"
#include "backends/torch/stage/data.h"
#include "backends/torch/stage/memory.h"
#include "backends/torch/stage/state.h"
#include "schedules/error.h"
#include "simulator/costs/expected_sizes.h"
#include "simulator/costs/operator_costs.h"
#include "simulator/costs/operator_flops.h"
#include "simulator/model/graph_facts.h"
#include "simulator/plan/partition.h"

namespace pw {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::chrono::minutes kDeadline{2};

Ns median(std::vector<Ns> values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

Ns halfQuartileRange(std::vector<Ns> values) {
  if (values.size() < 4) return 0;
  std::sort(values.begin(), values.end());
  return (values[values.size() * 3 / 4] - values[values.size() / 4]) / 2;
}

/// Called right before a function of autograd runs: what the one before it did, and what it left for others to add up, is over by then.
class BeforeFunction final : public torch::autograd::FunctionPreHook {
 public:
  explicit BeforeFunction(std::function<void()> call) : call_(std::move(call)) {}
  torch::autograd::variable_list operator()(const torch::autograd::variable_list& gradients) override {
    call_();
    return gradients;
  }

 private:
  std::function<void()> call_;
};

/// What is measured of each node, and of the loss in the last place.
struct Samples {
  explicit Samples(std::size_t slots)
      : forward(slots),
        backward(slots),
        weight(slots),
        saved(slots),
        forwardPeak(slots),
        backwardPeak(slots),
        change(slots),
        held(slots),
        weightPeak(slots) {}

  std::vector<std::vector<Ns>> forward, backward, weight;  // of each node
  std::vector<Bytes> saved, forwardPeak, backwardPeak, change, held, weightPeak;
};

/// Measures time and memory where the model runs. Times are device timestamps, which a GPU reaches later and which can be read once the
/// device has finished: so nothing waits within a sample, and an operator's time is what the device takes for it.
struct Meter {
  const Device& device;

  [[nodiscard]] Timestamp timestamp() const { return device.timestamp(); }
  void finish() const { device.finish(kDeadline, {}); }
  [[nodiscard]] Ns between(Timestamp begin, Timestamp end) const { return device.timeOf(end) - device.timeOf(begin); }
  [[nodiscard]] Bytes alive() const { return device.bytesAlive != nullptr ? device.bytesAlive() : tensorBytesAlive(); }
  [[nodiscard]] Bytes peak() const { return device.takePeakBytes != nullptr ? device.takePeakBytes() : takePeakBytes(); }
};

/// The time of a node, readable once the device has finished.
struct Sample {
  std::size_t node = 0;
  Timestamp begin, end;
};

/// Attributes the time and memory of one backward to the nodes whose functions run.
class BackwardClock {
 public:
  BackwardClock(std::size_t slots, std::size_t first, const Meter& meter, HeadStart& headStart)
      : change(slots, 0), peak(slots, 0), meter_(meter), headStart_(headStart), current_(first) {}

  void start() {
    alive_ = begin_ = meter_.alive();
    static_cast<void>(meter_.peak());
    last_ = meter_.timestamp();
  }
  /// Attributes what ran since the last call to the current node; `node` runs next.
  void enter(std::size_t node) {
    samples.push_back({current_, last_, meter_.timestamp()});
    const Bytes alive = meter_.alive();
    change[current_] += alive - alive_;
    peak[current_] = std::max(peak[current_], meter_.peak() - begin_);
    alive_ = alive;
    if (node != current_) begin_ = alive;
    current_ = node;
    headStart_.step();
    last_ = meter_.timestamp();
  }

  std::vector<Sample> samples;
  std::vector<Bytes> change, peak;

 private:
  Meter meter_;
  HeadStart& headStart_;
  std::size_t current_;
  Timestamp last_;
  Bytes alive_ = 0, begin_ = 0;
};

/// The whole model as one program; slot n (one past the nodes) stands for the loss.
class ModelRunner {
 public:
  ModelRunner(const ModelGraph& graph, const ProfileOptions& options)
      : graph_(graph),
        meter_{options.stage.device != nullptr ? *options.stage.device : hostDevice()},
        where_(deviceOf(meter_.device.index)),
        lossSpec_(parseLoss(graph, options.loss)),
        data_(graph, lossSpec_, {options.microbatch}, options.stage.seed, options.stage.data),
        symbolic_(symbolicValues(graph, bindBatch(graph, options.microbatch))),
        samples_(graph.nodes.size() + 1),
        graphs_(options.stage.graphs),
        tell_(options.stage.tell) {
    const StateReader reader(graph, options.stage.initRandom, options.stage.seed);
    ProgramOptions program;
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
    program_.emplace(graph, allNodes(graph), program);
    run_.symbolic = &symbolic_;
    data_.beginStep(0);
  }

  /// One forward and backward, with the weight gradients computed separately.
  void sample(bool record) {
    headStart_.begin(record);
    const Tape tape = forward();
    std::vector<WeightGradient> deferred;
    const Timestamp start = meter_.timestamp();
    const BackwardClock clock = [&] {
      const Deferring deferring(queue_, &deferred);
      return backward(tape);
    }();
    std::vector<Sample> weights;
    const c10::AutoGradMode off(false);
    for (WeightGradient& gradient : deferred) {
      const Bytes alive = meter_.alive();
      static_cast<void>(meter_.peak());
      const std::size_t node = gradient.node.index();
      const Timestamp begin = meter_.timestamp();
      gradient.compute();
      weights.push_back({node, begin, meter_.timestamp()});
      headStart_.step();
      samples_.weightPeak[node] = std::max(samples_.weightPeak[node], meter_.peak() - alive);
      gradient.compute = nullptr;
    }
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
    forwardTotals_.push_back(meter_.between(moments[0], moments[1]));
    backwardTotals_.push_back(meter_.between(moments[1], moments[2]));
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
    samples_.backwardPeak = clock.peak;
    samples_.change = clock.change;
    for (std::size_t n = 0; n < samples_.held.size(); ++n) samples_.held[n] = std::max<Bytes>(0, samples_.held[n] - clock.change[n]);
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

  [[nodiscard]] const Device& device() const { return meter_.device; }

  /// Of the trained ones.
  [[nodiscard]] Bytes parameterBytes() const {
    Bytes bytes = 0;
    for (const auto& parameter : parameters_) bytes += parameter->sum ? static_cast<Bytes>(parameter->tensor.nbytes()) : 0;
    return bytes;
  }

  void fill(Profile& profile) const {
    const auto total = [](const std::vector<std::vector<Ns>>& samples) {
      Ns sum = 0;
      for (const auto& values : samples) sum += median(values);
      return std::max<Ns>(sum, 1);
    };
    profile.actionOverhead = median(overhead_);
    const double forwardScale =
        static_cast<double>(median(forwardTotals_) - profile.actionOverhead) / static_cast<double>(total(samples_.forward));
    const double backwardScale = static_cast<double>(median(backwardTotals_)) / static_cast<double>(total(samples_.backward));
    const auto scaled = [](const std::vector<Ns>& values, double scale) {
      return static_cast<Ns>(static_cast<double>(median(values)) * scale);
    };
    for (std::size_t n = 0; n <= graph_.nodes.size(); ++n) {
      NodeCost cost;
      cost.forward = scaled(samples_.forward[n], forwardScale);
      cost.backward = scaled(samples_.backward[n], backwardScale);
      cost.weight = std::min(cost.backward, scaled(samples_.weight[n], backwardScale));
      cost.forwardSpread = halfQuartileRange(samples_.forward[n]);
      cost.backwardSpread = halfQuartileRange(samples_.backward[n]);
      cost.saved = samples_.saved[n];
      cost.heldForWeight = samples_.held[n];
      cost.forwardPeak = std::max<Bytes>(0, samples_.forwardPeak[n]);
      cost.backwardPeak = std::max<Bytes>(0, samples_.backwardPeak[n]);
      cost.backwardChange = samples_.change[n];
      cost.weightPeak = std::max<Bytes>(0, samples_.weightPeak[n]);
      profile.nodes.push_back(cost);
    }
    profile.loss = profile.nodes.back();
    profile.nodes.pop_back();
  }

 private:
  struct Parameter {
    at::Tensor tensor;
    std::shared_ptr<at::Tensor> sum;  // null where it is not trained
    bool fresh = false;               // gradients are added, as those of all microbatches but the first
  };
  /// What a forward leaves for its backward: the loss, and which node ran when autograd functions were numbered.
  struct Tape {
    at::Tensor loss;
    std::vector<std::uint64_t> sequence;
    std::vector<std::size_t> nodeOfRange;
    Timestamp start, ready;  // of the full-model run, and when its values were in place
    std::vector<Sample> samples;
  };
  /// The model's forward and backward, recorded as a stage's are; empty where they are done operator by operator.
  struct Recording {
    std::vector<std::pair<ValueId, at::Tensor>> inputs;
    at::Tensor output, lossGradient;
    at::Tensor history;  // the output's, between the two
    std::shared_ptr<void> pool, forward, backward;
  };

  static std::vector<NodeId> allNodes(const ModelGraph& graph) {
    std::vector<NodeId> nodes;
    for (std::size_t n = 0; n < graph.nodes.size(); ++n) nodes.emplace_back(n);
    return nodes;
  }

  void addParameter(const StateTensor& state, const StateReader& reader) {
    auto parameter = std::make_unique<Parameter>();
    const TensorMeta& meta = *graph_.value(state.value).tensor;
    parameter->tensor = reader.read(state).to(where_);
    if (meta.requiresGrad && isDifferentiable(meta.dtype)) {
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
    Tape tape;
    tape.start = meter_.timestamp();
    Frame frame = filled();
    tape.sequence.push_back(at::sequence_number::peek());
    Bytes alive = meter_.alive();
    static_cast<void>(meter_.peak());
    Timestamp last = tape.ready = meter_.timestamp();
    const auto note = [&](std::size_t node) {
      const Timestamp now = meter_.timestamp();
      tape.samples.push_back({node, last, now});
      const Bytes bytes = meter_.alive();
      samples_.forwardPeak[node] = meter_.peak() - alive;
      samples_.saved[node] = bytes - std::exchange(alive, bytes);
      tape.sequence.push_back(at::sequence_number::peek());
      tape.nodeOfRange.push_back(node);
      headStart_.step();
      last = isOnGpu() ? meter_.timestamp() : now;  // on the host the time in between is part of a run, too
    };
    run_.observer = [&](NodeId id) { note(id.index()); };
    program_->run(frame, run_);
    run_.observer = nullptr;
    at::Tensor output = lossOutput(frame);
    if (!outputForm_.defined())
      outputForm_ = at::empty(output.sizes(), output.options().device(at::kMeta)).set_requires_grad(output.requires_grad());
    tape.loss = data_.loss(output, 0);
    frame.clear();
    output.reset();
    note(graph_.nodes.size());
    return tape;
  }

  /// Reads the times of a sample, once the device has finished.
  void take(const Tape& tape, const BackwardClock& clock, const std::vector<Sample>& weights, Timestamp start, Timestamp end) {
    for (const Sample& sample : tape.samples) samples_.forward[sample.node].push_back(meter_.between(sample.begin, sample.end));
    overhead_.push_back(meter_.between(tape.start, tape.ready));
    if (!measuresFullModelApart()) {
      forwardTotals_.push_back(meter_.between(tape.start, tape.samples.back().end));
      backwardTotals_.push_back(meter_.between(start, end));
    }
    std::vector<Ns> spent(graph_.nodes.size() + 1, 0), weight(graph_.nodes.size() + 1, 0);
    for (const Sample& sample : clock.samples) spent[sample.node] += meter_.between(sample.begin, sample.end);
    for (const Sample& sample : weights) weight[sample.node] += meter_.between(sample.begin, sample.end);
    for (std::size_t n = 0; n < weight.size(); ++n) {
      samples_.backward[n].push_back(spent[n] + weight[n]);
      samples_.weight[n].push_back(weight[n]);
      samples_.held[n] = clock.change[n];  // less what the whole backward leaves, once that is known
    }
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

  /// Autograd functions carry the sequence number they were made under: so each belongs to the node that ran then. Gradient accumulation
  /// belongs to the function that ran before it.
  BackwardClock backward(Tape tape) {
    BackwardClock clock(graph_.nodes.size() + 1, graph_.nodes.size(), meter_, headStart_);
    if (!tape.loss.requires_grad()) return clock;
    std::unordered_set<torch::autograd::Node*> seen;
    std::vector<torch::autograd::Node*> open{tape.loss.grad_fn().get()};
    while (!open.empty()) {
      torch::autograd::Node* function = open.back();
      open.pop_back();
      if (function == nullptr || !seen.insert(function).second) continue;
      for (const auto& edge : function->next_edges()) open.push_back(edge.function.get());
      const std::uint64_t number = function->sequence_nr();
      if (number == std::numeric_limits<std::uint64_t>::max()) continue;
      const auto after = std::upper_bound(tape.sequence.begin(), tape.sequence.end(), number);
      const auto range = static_cast<std::size_t>(std::max<std::ptrdiff_t>(1, after - tape.sequence.begin())) - 1;
      const std::size_t node = tape.nodeOfRange[std::min(range, tape.nodeOfRange.size() - 1)];
      function->add_pre_hook(std::make_unique<BeforeFunction>([&clock, node] { clock.enter(node); }));
    }
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
  Samples samples_;
  LowerWeights lowerWeights_;
  WeightQueue queue_;
  std::vector<std::unique_ptr<Parameter>> parameters_;
  std::optional<NodeProgram> program_;
  RunOptions run_;
  std::vector<std::pair<ValueId, at::Tensor>> fixed_;
  bool graphs_;
  std::function<void(const std::string&)> tell_;
  at::Tensor outputForm_;                 // shape and type of what the loss is computed from, without memory
  std::unique_ptr<Recording> recording_;  // from the first full-model run on
  std::vector<Ns> overhead_, forwardTotals_, backwardTotals_;
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
  for (int i = 0; i < options.warmup; ++i) {
    meet();
    runner.sample(false);
  }
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
  runner.sampleMemory();
  runner.fill(profile);
  meet();
  profile.optimizerNsPerByte =
      static_cast<double>(runner.optimizerTime()) / static_cast<double>(std::max<Bytes>(1, runner.parameterBytes()));
  const Bindings bindings = bindExpected(graph, options.microbatch);
  for (std::size_t n = 0; n < graph.nodes.size(); ++n) {
    try {
      profile.nodes[n].flops = forwardFlops(graph, graph.nodes[n], bindings);
    } catch (const Error&) {
      // a size that depends on data and cannot be expected: the time alone is known
    }
  }
  meet();
  if (group != nullptr && group->size() > 1) {
    const auto times = linkTimes(*group, runner.device(), kDeadline);
    if (group->rank().value == 0) profile.link = fitLink(times);
  }
  return profile;
}

}  // namespace pw
