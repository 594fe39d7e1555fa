#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "backends/messages/communicator.h"

namespace pw {

/// What a rank is about to compute a step with.
struct StepInput {
  std::optional<std::uint64_t> batch;  ///< digest of the batch; nothing on ranks that need none
  std::uint64_t optimizer = 0;         ///< digest of the learning rate and its like
};

/// Compares on all ranks what they are about to do: which `call` they make (`step 3`, at most 31 characters), and of a step its input.
/// `look`, if any, throws UsageError where this rank's batch is not usable. Returns on all ranks or throws the same on all: Error naming
/// two ranks that make different calls; UsageError with the first rank's sentence, or naming two ranks whose inputs differ. Costs a message
/// from and to each rank; a barrier must follow.
void agreeOnCall(const std::string& call, const std::function<StepInput()>& look, Communicator& communicator);

}  // namespace pw
