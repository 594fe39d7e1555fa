#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "backends/torch/autograd/functions.h"
#include "engine/remote/shares.h"

namespace pw {

/// What a message of distributed autograd says.
enum class PassStep : std::uint8_t {
  Joined,    ///< the sender has this context now
  Release,   ///< the context ends
  Start,     ///< run from the roots (to the own worker only)
  Reach,     ///< these send functions are used; find out what they reach (without any: what the roots reach)
  Gradient,  ///< the gradients of a message's tensors
  Resume,    ///< send functions that are not known as used get no gradient
  Idle,      ///< the sender has nothing left to do: its shares of the pass come back
  Explain,   ///< say which message you wait for
  Failed,    ///< the pass cannot end well
  End,       ///< the pass is over
  Ask,       ///< what did you send and receive?
  Answer,
};

/// A message of a pass, or of a context; members that a step does not need are empty.
struct PassMessage {
  PassStep step{};
  ContextId context;
  PassId pass;
  bool keepGraph = false;
  bool all = false;                              ///< every send function is taken to be used
  bool waits = false;                            ///< Idle: functions here wait for gradients; Answer: something is running
  std::vector<Share> shares = {};                ///< of the pass, for its end
  std::vector<AutogradMessageId> messages = {};  ///< Reach: all; Gradient: the one
  std::vector<TensorHandle> gradients = {};
  std::string type = {}, text = {}, worker = {};        ///< Failed
  std::vector<std::uint64_t> sent = {}, received = {};  ///< Answer: messages of the pass, by worker
};

[[nodiscard]] std::string writeMessage(const PassMessage& message, const AutogradFunctions& functions, std::vector<HeldBuffer>& parts);
/// Throws Error for damaged bytes.
[[nodiscard]] PassMessage readMessage(std::string_view body, std::vector<HeldBuffer> parts, const AutogradFunctions& functions);

}  // namespace pw
