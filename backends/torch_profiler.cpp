#include "backends/torch_profiler.h"

#include <ATen/ATen.h>
#include <ATen/SequenceNumber.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/utils/lambda_post_hook.h>

#include <algorithm>
#include <limits>
#include <map>
#include <unordered_set>

#include "backends/torch_data.h"
#include "backends/torch_memory.h"
#include "backends/torch_program.h"
#include "backends/torch_state.h"
#include "schedules/error.h"
#include "simulator/graph_facts.h"

namespace pw {
namespace {

using Clock = std::chrono::steady_clock;

Ns since(Clock::time_point start) { return std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now() - start).count(); }

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

/// The whole model as one program; slot n (one past the nodes) stands for the loss.
class ModelRunner {
 public:
  ModelRunner(const ModelGraph& graph, const ProfileOptions& options)
      : graph_(graph), lossSpec_(parseLoss(graph, options.loss)), data_(graph, lossSpec_, {options.microbatch}, options.stage.seed, options.stage.dataFile),
        program_(graph, allNodes(graph), {lossSpec_.output}), symbolic_(symbolicValues(graph, bindBatch(graph, options.microbatch))),
        forward_(graph.nodes.size() + 1), backward_(graph.nodes.size() + 1), saved_(graph.nodes.size() + 1) {
    const StateReader reader(graph, options.stage.initRandom, options.stage.seed);
    std::map<std::string, at::Tensor> byStorage;
    for (const StateTensor& state : graph.parameters) {
      at::Tensor& tensor = byStorage[storageOf(state)];
      if (!tensor.defined()) {
        const TensorMeta& meta = *graph.value(state.value).tensor;
        tensor = reader.read(state).set_requires_grad(meta.requiresGrad && isDifferentiable(meta.dtype));
        parameters_.push_back(tensor);
      }
      fixed_.emplace_back(state.value, tensor);
    }
    for (const auto* group : {&graph.buffers, &graph.constants}) {
      for (const StateTensor& state : *group) fixed_.emplace_back(state.value, reader.read(state));
    }
    data_.beginStep(0);
  }

  /// One forward and backward; returns the time spent outside of nodes.
  void sample(bool record) {
    const auto start = Clock::now();
    last_ = start;
    Frame frame(graph_.values.size());
    for (const auto& [value, tensor] : fixed_) frame[value.index()] = tensor;
    for (const ValueId input : graph_.inputs) frame[input.index()] = data_.input(input, 0);
    const Ns setUp = lap();
    std::vector<std::uint64_t> sequence{at::sequence_number::peek()};
    std::vector<std::size_t> nodeOfRange;
    Bytes alive = tensorBytesAlive();
    const auto note = [&](std::size_t node) {
      const Ns time = lap();
      if (record) forward_[node].push_back(time);
      const Bytes now = tensorBytesAlive();
      if (record) saved_[node] = now - alive;
      alive = now;
      sequence.push_back(at::sequence_number::peek());
      nodeOfRange.push_back(node);
    };
    program_.run(frame, symbolic_, {}, [&](NodeId id) { note(id.index()); });
    at::Tensor loss = data_.loss(frame[lossSpec_.output.index()], 0);
    frame.clear();
    note(graph_.nodes.size());
    const Ns forwardTotal = since(start);
    backwardSample(loss, sequence, nodeOfRange, record);
    if (!record) return;
    overhead_.push_back(setUp);
    forwardTotals_.push_back(forwardTotal);
  }

  [[nodiscard]] Ns optimizerTime() {
    std::vector<Ns> times;
    const c10::AutoGradMode off(false);
    for (int i = 0; i < 5; ++i) {
      const auto start = Clock::now();
      for (at::Tensor& parameter : parameters_) {
        if (parameter.grad().defined()) parameter.add_(parameter.grad(), -1e-9);
      }
      times.push_back(since(start));
    }
    return median(times);
  }

  [[nodiscard]] Bytes parameterBytes() const {
    Bytes bytes = 0;
    for (const at::Tensor& parameter : parameters_) bytes += static_cast<Bytes>(parameter.nbytes());
    return bytes;
  }

  void fill(Profile& profile) const {
    const auto total = [](const std::vector<std::vector<Ns>>& samples) {
      Ns sum = 0;
      for (const auto& values : samples) sum += median(values);
      return std::max<Ns>(sum, 1);
    };
    profile.actionOverhead = median(overhead_);
    const double forwardScale = static_cast<double>(median(forwardTotals_) - profile.actionOverhead) / static_cast<double>(total(forward_));
    const double backwardScale = static_cast<double>(median(backwardTotals_)) / static_cast<double>(total(backward_));
    for (std::size_t n = 0; n <= graph_.nodes.size(); ++n) {
      NodeCost cost;
      cost.forward = static_cast<Ns>(static_cast<double>(median(forward_[n])) * forwardScale);
      cost.backward = static_cast<Ns>(static_cast<double>(median(backward_[n])) * backwardScale);
      cost.forwardSpread = halfQuartileRange(forward_[n]);
      cost.backwardSpread = halfQuartileRange(backward_[n]);
      cost.saved = saved_[n];
      profile.nodes.push_back(cost);
    }
    profile.loss = profile.nodes.back();
    profile.nodes.pop_back();
  }

 private:
  static std::vector<NodeId> allNodes(const ModelGraph& graph) {
    std::vector<NodeId> nodes;
    for (std::size_t n = 0; n < graph.nodes.size(); ++n) nodes.emplace_back(n);
    return nodes;
  }

  Ns lap() {
    const auto now = Clock::now();
    const Ns time = std::chrono::duration_cast<std::chrono::nanoseconds>(now - last_).count();
    last_ = now;
    return time;
  }

  /// Autograd functions carry the sequence number they were made under: so each belongs to the node that ran then. Gradient accumulation
  /// belongs to the function that ran before it.
  void backwardSample(at::Tensor& loss, const std::vector<std::uint64_t>& sequence, const std::vector<std::size_t>& nodeOfRange, bool record) {
    if (!loss.requires_grad()) return;
    std::vector<Ns> spent(graph_.nodes.size() + 1, 0);
    std::size_t current = graph_.nodes.size();
    std::unordered_set<torch::autograd::Node*> seen;
    std::vector<torch::autograd::Node*> open{loss.grad_fn().get()};
    while (!open.empty()) {
      torch::autograd::Node* function = open.back();
      open.pop_back();
      if (function == nullptr || !seen.insert(function).second) continue;
      for (const auto& edge : function->next_edges()) open.push_back(edge.function.get());
      const std::uint64_t number = function->sequence_nr();
      if (number == std::numeric_limits<std::uint64_t>::max()) continue;
      const auto after = std::upper_bound(sequence.begin(), sequence.end(), number);
      const auto range = static_cast<std::size_t>(std::max<std::ptrdiff_t>(1, after - sequence.begin())) - 1;
      const std::size_t node = nodeOfRange[std::min(range, nodeOfRange.size() - 1)];
      function->add_post_hook(std::make_unique<torch::autograd::utils::LambdaPostHook>(
          [this, node, &spent, &current](const torch::autograd::variable_list& outputs, const torch::autograd::variable_list& /*inputs*/) {
            spent[current] += lap();
            current = node;
            return outputs;
          }));
    }
    const auto start = Clock::now();
    last_ = start;
    torch::autograd::backward({loss}, {});
    spent[current] += lap();
    if (!record) return;
    backwardTotals_.push_back(since(start));
    for (std::size_t n = 0; n < spent.size(); ++n) backward_[n].push_back(spent[n]);
  }

  const ModelGraph& graph_;
  LossSpec lossSpec_;
  BatchSource data_;
  NodeProgram program_;
  std::vector<std::int64_t> symbolic_;
  std::vector<at::Tensor> parameters_;
  std::vector<std::pair<ValueId, at::Tensor>> fixed_;
  Clock::time_point last_;
  std::vector<Ns> overhead_, forwardTotals_, backwardTotals_;
  std::vector<std::vector<Ns>> forward_, backward_;  // samples of each node
  std::vector<Bytes> saved_;
};

/// One-way times between ranks 0 and 1 by round trips of growing messages; empty on other ranks.
std::vector<std::pair<Bytes, Ns>> measureLink(Communicator& group) {
  std::vector<std::pair<Bytes, Ns>> times;
  std::uint32_t tag = 1;
  for (const Bytes size : {Bytes{1} << 10, Bytes{1} << 14, Bytes{1} << 17, Bytes{1} << 20, Bytes{1} << 22}) {
    std::vector<std::byte> out(static_cast<std::size_t>(size)), in(static_cast<std::size_t>(size));
    std::vector<Ns> trips;
    for (int i = 0; i < 20 && group.rank().value < 2; ++i) {
      const Rank peer(1 - group.rank().value);
      const auto start = Clock::now();
      const auto receive = group.receive(peer, tag, {in.data(), in.size()});
      if (group.rank().value == 1) group.wait(receive);
      group.wait(group.send(peer, tag, {out.data(), out.size()}));
      if (group.rank().value == 0) group.wait(receive);
      trips.push_back(since(start));
      ++tag;
    }
    if (!trips.empty()) times.emplace_back(size, median(trips) / 2);
    group.barrier();
  }
  return times;
}

}  // namespace

Profile measureProfile(const ModelGraph& graph, const ProfileOptions& options, Communicator* group, const std::function<void(int, int)>& progress) {
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
      for (int r = 1; r < group->size(); ++r) group->wait(group->send(Rank(r), 0, {&more, 1}));
    } else if (group != nullptr) {
      group->wait(group->receive(Rank(0), 0, {&more, 1}));
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
  runner.fill(profile);
  meet();
  profile.optimizerNsPerByte = static_cast<double>(runner.optimizerTime()) / static_cast<double>(std::max<Bytes>(1, runner.parameterBytes()));
  const Bindings bindings = bindBatch(graph, options.microbatch);
  for (std::size_t n = 0; n < graph.nodes.size(); ++n) profile.nodes[n].flops = forwardFlops(graph, graph.nodes[n], bindings);
  meet();
  if (group != nullptr && group->size() > 1) {
    const auto times = measureLink(*group);
    if (group->rank().value == 0) profile.link = fitLink(times);
  }
  return profile;
}

}  // namespace pw
