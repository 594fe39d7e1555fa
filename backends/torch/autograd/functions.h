#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "backends/messages/communicator.h"
#include "backends/messages/global_id.h"
#include "backends/stages/batch_feed.h"
#include "simulator/model/tensor_meta.h"
#include "simulator/plan/optimizer.h"

namespace pw {

/// A send or receive function: points to a `torch::autograd::Node`.
using NodeHandle = std::shared_ptr<void>;
/// One worker's part of a backward pass. Used by one thread at a time.
using LocalPassHandle = std::shared_ptr<void>;
/// An optimizer and its state. Used by one thread at a time.
using OptimizerHandle = std::shared_ptr<void>;

/// A tensor as a message.
struct TensorImage {
  DType dtype = DType::Unknown;
  std::vector<std::int64_t> shape;
  bool onGpu = false;  ///< where it was; the memory here is the host's
  HeldBuffer memory;   ///< the elements, row by row
};

/// What one worker's part of a pass gives out, while it runs.
struct GradientSink {
  /// The gradients of a message's tensors, to be sent where its send function is. Null: that tensor gets none.
  std::function<void(AutogradMessageId, std::vector<TensorHandle>)> received;
  /// The whole gradient of a tensor that the user made: called once for each in a pass.
  std::function<void(const TensorHandle& variable, const TensorHandle& gradient)> leaf;
};

/// What remote calls and distributed autograd need of LibTorch: all else is theirs. A table, so that they do not link LibTorch.
///
/// A pass on one worker: nodes that can be reached from its roots and from the send functions that will get gradients wait for as many
/// gradients as edges lead to them from these, then run. So a node runs once, and whatever order gradients arrive in gives the same sums.
struct AutogradFunctions {
  /// Whether gradients flow to it: it requires a gradient, and recording is on in this thread.
  bool (*needsGradient)(const TensorHandle& tensor);
  /// Shares the tensor's memory where it is contiguous and on the host. Throws UsageError for sparse and quantized tensors.
  TensorImage (*imageOf)(const TensorHandle& tensor);
  /// The tensor takes over the memory. Throws Error where size and shape do not agree.
  TensorHandle (*tensorOf)(const TensorImage& image);
  /// Which tensor this is: equal for two handles of the same.
  const void* (*identityOf)(const TensorHandle& tensor);
  TensorHandle (*sumOf)(const TensorHandle& one, const TensorHandle& other);
  /// Of all its elements [bytes], without a look at them; none of a null handle.
  Bytes (*bytesOf)(const TensorHandle& tensor);

  /// A send function that passes its gradients on to the functions of the tensors, which all need a gradient.
  NodeHandle (*attachSend)(const std::vector<TensorHandle>& tensors);
  /// Makes the tensors outputs of a receive function. `origin` is named when somebody runs a local backward through it.
  NodeHandle (*attachReceive)(const std::vector<TensorHandle>& tensors, AutogradMessageId message, const std::string& origin);

  /// A pass from these roots, which may be none. Throws UsageError for a root that is not one number, or needs no gradient.
  LocalPassHandle (*makePass)(const std::vector<TensorHandle>& roots, bool keepGraph);
  /// The messages whose receive functions can be reached from these send functions (or from the roots), each the first time only. Cost of
  /// all calls of a pass together: the edges that can be reached.
  std::vector<AutogradMessageId> (*reach)(const LocalPassHandle& pass, const std::vector<NodeHandle>& sends, bool fromRoots);
  /// Says which send functions will get gradients: counts what each node waits for. The first call puts the roots' own gradients in; a
  /// later one, with fewer, lets nodes run that only waited for the others.
  void (*expect)(const LocalPassHandle& pass, const std::vector<NodeHandle>& sends);
  /// Puts gradients into a send function (null: none, only continues) and runs whatever is ready. Throws what a node throws.
  void (*run)(const LocalPassHandle& pass, const NodeHandle& send, const std::vector<TensorHandle>& gradients, const GradientSink& sink);
  /// Whether a node has some of its gradients and waits for the rest.
  bool (*waits)(const LocalPassHandle& pass);
  /// Whether such a node can be reached from this send function.
  bool (*waitsFor)(const LocalPassHandle& pass, const NodeHandle& send);

  OptimizerHandle (*makeOptimizer)(const OptimizerSpec& spec);
  /// Updates a parameter in place; `key` is the parameter's own in this optimizer. The gradient stays as it is.
  void (*stepOptimizer)(const OptimizerHandle& optimizer, std::size_t key, const TensorHandle& parameter, const TensorHandle& gradient);
};

}  // namespace pw
