#pragma once

#include <cstdint>
#include <functional>
#include <optional>

#include "backends/messages/communicator.h"

namespace pw {

/// What a rank is about to compute a step with.
struct StepInput {
  std::optional<std::uint64_t> batch;  ///< digest of the batch; nothing on ranks that need none
  std::uint64_t optimizer = 0;         ///< digest of the learning rate and its like
};

/// Compares on all ranks what they are about to do, before a step. `look` throws UsageError where this rank's batch is not usable. Returns
/// on all ranks or throws the same on all: UsageError with the first rank's sentence, or naming two ranks that differ. Costs a message from
/// and to each rank.
void agreeOnStep(int step, const std::function<StepInput()>& look, Communicator& communicator);

}  // namespace pw
