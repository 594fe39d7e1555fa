#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "simulator/model/model_graph.h"

namespace at {
class Tensor;
}
namespace c10 {
class OperatorHandle;
enum class ScalarType : std::int8_t;
struct IValue;
}  // namespace c10

namespace pw {

/// A weight gradient that an operator's backward left for later.
struct WeightGradient {
  NodeId node;
  Bytes held = 0;  ///< of the tensors it keeps: the gradient of its output and, unless one just before keeps it too, the operator's input
  const void* input = nullptr;    ///< which input it keeps
  std::function<void()> compute;  ///< adds into the parameter's gradient
};

/// Weights in the type that autocast computes products in: one copy of each for all microbatches, where autocast of its own would make one
/// for every microbatch in flight.
class LowerWeights {
 public:
  LowerWeights();
  ~LowerWeights();
  LowerWeights(const LowerWeights&) = delete;
  LowerWeights& operator=(const LowerWeights&) = delete;

  /// The copy, made when first asked for; it stays at its place. `weight`: detached, of memory that stays.
  [[nodiscard]] const at::Tensor& of(const at::Tensor& weight, c10::ScalarType type);
  /// The optimizer has changed the weights: copies them again.
  void refresh();

 private:
  struct Copy;
  std::unordered_multimap<const void*, std::unique_ptr<Copy>> copies_;  // by memory
};

/// Where operators with weights leave their weight gradients (zero bubble's W; Qi et al., ICLR 2024). A stage sets `deferred` for I and
/// clears it for B. One per stage; not thread safe. Must outlive the backward.
class WeightQueue {
 public:
  /// While set, weight gradients are kept here; else they are computed at once.
  std::vector<WeightGradient>* deferred = nullptr;
  /// Called after each of these operators' backward, so that messages move on meanwhile; may be empty.
  std::function<void()> betweenOperators;
  LowerWeights* lower = nullptr;  ///< must be set where autocast is on
};

/// Has weight gradients left in a list while it lives, or computed at once where that is null.
class Deferring {
 public:
  Deferring(WeightQueue& queue, std::vector<WeightGradient>* into) : queue_(queue) { queue_.deferred = into; }
  ~Deferring() { queue_.deferred = nullptr; }
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

/// An operator whose weight gradient is apart from its input gradient.
struct WeightRule {
  using Stack = std::vector<c10::IValue>;
  NodeId node;
  const WeightQueue* queue = nullptr;
  std::vector<ParameterGradient> gradients;  ///< by argument of the operator
  /// Replaces the operator's inputs on the stack by its result. Returns false, the stack untouched, when these inputs need the plain
  /// operator.
  bool (*apply)(const WeightRule& rule, Stack& stack) = nullptr;
};

/// The rule for an operator given which of its arguments have a gradient of their own (`gradients`, by argument) and which others need one
/// (`differentiable`, by argument); `apply` is null where none fits: then autograd computes both gradients together, which is always right.
/// Knows linear, addmm, mm, bmm, matmul, conv1d–3d and convolution, embedding, layer_norm, rms_norm, group_norm, batch_norm, and
/// additions of, and multiplications by, a parameter. Under autocast products compute in its type, from LowerWeights, and their weight
/// gradients are rounded to it once before they are added to the sum; norms compute in their weights' type.
[[nodiscard]] WeightRule weightRule(const std::string& operatorName, NodeId node, const WeightQueue* queue,
                                    std::vector<ParameterGradient> gradients, const std::vector<bool>& differentiable);

}  // namespace pw
