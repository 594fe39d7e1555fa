#pragma once

#include <chrono>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "engine/autograd/pass_root.h"
#include "engine/autograd/watch.h"
#include "engine/remote/current_context.h"
#include "engine/remote/remote.h"

namespace pw {

struct BackwardSettings {
  BackwardMode mode = BackwardMode::Auto;
  bool keepGraph = false;                                  ///< for another pass through the same functions
  std::optional<std::chrono::milliseconds> deadline = {};  ///< of the pass; else that of calls
};

/// What is left on a worker; all are 0 when no context is open.
struct AutogradCounts {
  std::size_t contexts = 0, sends = 0, receives = 0, gradients = 0, parts = 0, passes = 0;
  bool operator==(const AutogradCounts&) const = default;
};

/// Autograd over all workers of a job (torch.distributed.autograd): where a call of an open context carries tensors that need gradients, it
/// leaves a send function on one side and a receive function on the other, which a backward pass follows from worker to worker. Made once
/// for a Remote, before its first message, and destroyed after its `close`, before it itself. Any thread.
class DistributedAutograd {
 public:
  explicit DistributedAutograd(Remote& remote);  ///< the Remote's settings have the table of functions
  ~DistributedAutograd();
  DistributedAutograd(const DistributedAutograd&) = delete;
  DistributedAutograd& operator=(const DistributedAutograd&) = delete;

  /// Once, before the first message.
  void watch(AutogradWatch watch);

  /// Makes a context; `WithContext` opens it in a thread, `OpenContext` does both.
  [[nodiscard]] ContextId open();
  /// Ends a context that was made here, on all workers: its functions and gradients go.
  void release(ContextId context);

  /// Runs a backward pass from roots on this worker, each of one number, and blocks until all workers are done. Gradients are added to the
  /// context's, not to `.grad`. Throws UsageError for roots that cannot be used, RemoteError for what a function threw anywhere, and Error
  /// naming the worker that is lost or did not answer by the deadline, or in FAST mode the message that the loss does not use. Also ends
  /// with Error when the Remote is closed.
  void backward(ContextId context, const std::vector<TensorHandle>& roots, const BackwardSettings& settings = {});

  /// The gradients on this worker: tensor and gradient, in no particular order. Throws UsageError where the context is not open.
  [[nodiscard]] std::vector<std::pair<TensorHandle, TensorHandle>> gradients(ContextId context) const;
  /// That of one tensor; null: none.
  [[nodiscard]] TensorHandle gradient(ContextId context, const TensorHandle& tensor) const;

  /// Held by who updates parameters of this worker: steps of all optimizers take turns.
  [[nodiscard]] std::mutex& optimizerTurns();

  [[nodiscard]] AutogradCounts counts() const;
  [[nodiscard]] Remote& remote();

 private:
  struct Impl;
  std::shared_ptr<Impl> impl_;
};

/// A context that is open in this thread while this lives, and is released on all workers afterwards.
class OpenContext {
 public:
  explicit OpenContext(DistributedAutograd& autograd) : autograd_(autograd), id_(autograd.open()), within_(id_) {}
  ~OpenContext();  ///< does nothing where it was released before
  OpenContext(const OpenContext&) = delete;
  OpenContext& operator=(const OpenContext&) = delete;
  [[nodiscard]] ContextId id() const { return id_; }

 private:
  DistributedAutograd& autograd_;
  ContextId id_;
  WithContext within_;
};

}  // namespace pw
