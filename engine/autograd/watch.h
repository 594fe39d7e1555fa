#pragma once

#include <functional>
#include <string>
#include <vector>

#include "backends/torch/autograd/functions.h"

namespace pw {

/// Who follows the passes of a worker, to record them or to say where their pieces run. Any member may be empty.
struct AutogradWatch {
  /// A message with tensors that need gradients goes out; on the thread that sends it.
  std::function<void(ContextId, AutogradMessageId, JobRank to)> sent;
  /// It is here; on the thread that delivers it, before anything else sees these tensors.
  std::function<void(ContextId, AutogradMessageId, JobRank from, const std::vector<TensorHandle>& tensors)> received;
  /// Runs a piece of a pass, on any thread, and returns when it is done; throws what it throws. The piece begins with the gradients of a
  /// message that this worker sent, or (no message) at the roots of the pass.
  std::function<void(ContextId, AutogradMessageId, const std::function<void()>& piece)> piece;
  /// Gradients of a message's tensors go back to where it came from; within a piece. Null: that tensor gets none.
  std::function<void(ContextId, AutogradMessageId, JobRank to, const std::vector<TensorHandle>& gradients)> gradient;
  /// A worker is gone.
  std::function<void(JobRank worker, const std::string& why)> lost;
};

}  // namespace pw
