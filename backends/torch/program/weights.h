#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "schedules/ids.h"
#include "simulator/operators/operators.h"

namespace at {
class Tensor;
}
namespace c10 {
class OperatorHandle;
enum class ScalarType : std::int8_t;
struct IValue;
}  // namespace c10

namespace pw {

/// A deferred weight gradient of an operator's backward.
struct WeightGradient {
  NodeId node;
  std::function<void()> compute;     ///< adds into the parameter's gradient; keeps the gradient of the output and the operator's input
  std::function<void()> leaveGraph;  ///< for the end of the backward: else its node keeps all that it leads to, values received too
};

/// Weights in the type that autocast computes products in: one copy of each for all microbatches, whereas autocast itself would make one
/// for every microbatch in flight.
class LowerWeights {
 public:
  LowerWeights();
  ~LowerWeights();
  LowerWeights(const LowerWeights&) = delete;
  LowerWeights& operator=(const LowerWeights&) = delete;

  /// The copy, made on first use; its address does not change. `weight`: detached, of memory that stays.
  [[nodiscard]] const at::Tensor& of(const at::Tensor& weight, c10::ScalarType type);
  /// The optimizer has changed the weights: copies them again.
  void refresh();

 private:
  struct Copy;
  std::unordered_multimap<const void*, std::unique_ptr<Copy>> copies_;  // by memory
};

/// Collects the deferred weight gradients of operators with weights (zero bubble's W; Qi et al., ICLR 2024). A stage sets `deferred` for I
/// and clears it for B. One per stage; not thread safe. Must outlive the backward.
class WeightQueue {
 public:
  /// While set, weight gradients are deferred to this list; otherwise they are computed at once.
  std::vector<WeightGradient>* deferred = nullptr;
  /// Called after the backward of each of these operators, to progress messages; may be empty.
  std::function<void()> betweenOperators;
  LowerWeights* lower = nullptr;  ///< must be set where autocast is on
};

/// While it lives, weight gradients are deferred to a list, or computed at once if that is null.
class Deferring {
 public:
  Deferring(WeightQueue& queue, std::vector<WeightGradient>* into) : queue_(queue) { queue_.deferred = into; }
  ~Deferring() {
    if (auto* const deferred = std::exchange(queue_.deferred, nullptr)) {
      for (WeightGradient& gradient : *deferred) std::exchange(gradient.leaveGraph, nullptr)();
    }
  }
  Deferring(const Deferring&) = delete;
  Deferring& operator=(const Deferring&) = delete;

 private:
  WeightQueue& queue_;
};

/// The gradient of a parameter, or of a view of it, summed over microbatches.
struct ParameterGradient {
  std::shared_ptr<at::Tensor> sum;  ///< of the parameter's (or view's) shape; null where there is none
  bool* fresh = nullptr;            ///< set while nothing was added in this step: the first addition overwrites
};

/// An operator whose weight gradient is computed separately from its input gradient.
struct WeightRule {
  using Stack = std::vector<c10::IValue>;
  NodeId node;
  const WeightQueue* queue = nullptr;
  std::vector<ParameterGradient> gradients;  ///< by argument of the operator
  /// Replaces the operator's inputs on the stack by its result. Returns false, the stack untouched, when these inputs need the plain
  /// operator.
  bool (*apply)(const WeightRule& rule, Stack& stack) = nullptr;
};

/// The rule of a form in which weight gradients are computed apart (`weightPartOf`), for the gradients of an operator's parameters, by its
/// arguments; `apply` is null for `None`: then autograd computes both gradients together, which is always correct. Under autocast products
/// compute in its type, from LowerWeights, and their weight gradients are rounded to it once before they are added to the sum; norms
/// compute in their weights' type.
[[nodiscard]] WeightRule weightRule(WeightPart part, NodeId node, const WeightQueue* queue, std::vector<ParameterGradient> gradients);

}  // namespace pw
