#pragma once

#include "backends/messages/communicator.h"
#include "backends/messages/rendezvous.h"
#include "backends/stages/backward.h"
#include "engine/worker.h"
#include "simulator/plan/plan.h"

namespace pw {

struct RunSettings;

/// Throws UsageError for what cannot be run with `--backward dynamic`, if that is set.
void refuseWhatIsNotDynamic(const RunSettings& settings, const Plan& plan);

/// With `--backward dynamic` connects the ranks once more, for remote calls, and has the training use them. All ranks call it after they
/// have connected, while rank 0 still serves `store`; `communicator` then keeps what it made: peers that notice the end of this rank must
/// not report before it does. The plan must outlive it.
void connectCalls(const RunSettings& settings, const Plan& plan, const Rendezvous& rendezvous, const KeyValueStore& store,
                  const TorchBackend& torch, Communicator& communicator, TrainOptions& options);

}  // namespace pw
