#include "backends/torch/backward_clock.h"

#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/function_hook.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <limits>
#include <memory>
#include <unordered_set>
#include <utility>

#include "backends/torch/stage/memory.h"

namespace pw {
namespace {

constexpr std::chrono::minutes kDeadline{2};

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

}  // namespace

void Meter::finish() const { device.finish(kDeadline, {}); }
Bytes Meter::alive() const { return device.bytesAlive != nullptr ? device.bytesAlive() : tensorBytesAlive(); }
Bytes Meter::peak() const { return device.takePeakBytes != nullptr ? device.takePeakBytes() : takePeakBytes(); }

BackwardClock::BackwardClock(std::size_t slots, std::size_t first, const Meter& meter, HeadStart& headStart)
    : change(slots, 0), peak(slots, 0), meter_(meter), headStart_(headStart), current_(first) {}

void BackwardClock::start() {
  alive_ = begin_ = meter_.alive();
  static_cast<void>(meter_.peak());
  last_ = meter_.timestamp();
}

void BackwardClock::enter(std::size_t node) {
  samples.push_back({current_, last_, meter_.timestamp()});
  const Bytes alive = meter_.alive();
  change[current_] += alive - alive_;
  peak[current_] = std::max(peak[current_], meter_.peak() - begin_);
  alive_ = alive;
  if (ended) ended(current_);
  if (node != current_) begin_ = alive;
  current_ = node;
  headStart_.step();
  last_ = meter_.timestamp();
}

void enterNodes(BackwardClock& clock, const at::Tensor& loss, const FunctionNumbers& made) {
  std::unordered_set<torch::autograd::Node*> seen;
  std::vector<torch::autograd::Node*> open{loss.grad_fn().get()};
  while (!open.empty()) {
    torch::autograd::Node* function = open.back();
    open.pop_back();
    if (function == nullptr || !seen.insert(function).second) continue;
    for (const auto& edge : function->next_edges()) open.push_back(edge.function.get());
    const std::uint64_t number = function->sequence_nr();
    if (number == std::numeric_limits<std::uint64_t>::max()) continue;
    const auto after = std::upper_bound(made.sequence.begin(), made.sequence.end(), number);
    const auto range = static_cast<std::size_t>(std::max<std::ptrdiff_t>(1, after - made.sequence.begin())) - 1;
    const std::size_t node = made.nodeOfRange[std::min(range, made.nodeOfRange.size() - 1)];
    function->add_pre_hook(std::make_unique<BeforeFunction>([&clock, node] { clock.enter(node); }));
  }
}

}  // namespace pw
