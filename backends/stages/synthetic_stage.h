#pragma once

#include <functional>
#include <memory>

#include "backends/messages/device.h"
#include "backends/stages/stage_module.h"
#include "simulator/plan/plan.h"

namespace pw {

/// Bytes that the stages of one rank hold together: now, and the most since the last query.
struct SyntheticMemory {
  Bytes alive = 0;
  Bytes peak = 0;
};

/// The device that a synthetic stage runs on. For the host: `syntheticHost()`; for a GPU: its device and spin kernel. One for all stages of
/// a rank.
struct SyntheticDevice {
  const Device* device = nullptr;
  std::function<void(Ns)> spin;  ///< keeps the device's compute busy for that time
  std::shared_ptr<SyntheticMemory>
      memory;  ///< for devices that do not count memory (`Device::bytesAlive`); null: the stage counts by itself
};
/// A busy loop on the steady clock, and a new memory counter.
[[nodiscard]] SyntheticDevice syntheticHost();

/// A stage that computes nothing, for as long as the plan says: F, B, I and W of `plan.costs` (times the microbatch's scale), values and
/// gradients of the sizes of the plan's transfers (times the scale as well). This allows any plan to be run on real processes, links and
/// GPUs without its model. A slot's forward and backward run one after the other. The plan must outlive the stage. Its loss is 0, and a
/// checkpoint of it is empty.
///
/// Messages: their first, middle and last 64 bytes identify them (backends/messages/synthetic_message.h: transfer, microbatch, value or
/// gradient, step, length), and a receiver compares them, where the device is the host: throws Error naming transfer and microbatch if a
/// message was misrouted. A check costs the same for all sizes, well under a microsecond; the bytes between are arbitrary. Messages of two
/// replicas are identical.
///
/// Parameters: float32, of `StageCost::gradientBytes` (what is trained): a group for each shared parameter of the stage, and one of its own
/// for the rest. On the host about 64 gradients of a group are 1 at the start of a step and the rest 0, and the update subtracts them, so
/// that copies stay equal and a copy that missed an update differs; on a GPU all stay 0. The optimizer's time, and its state from the
/// first update on, are those of `StageCost` for everything that it updates, in proportion for a range (so sharding must not be in the
/// costs).
///
/// Memory is as in the plan: parameters, buffers, data, activations and the peaks of actions. The host only counts it, except for messages
/// and groups; a GPU allocates it, and an Error says what did not fit.
///
/// On the host `betweenOperators` (may be empty) is called every 50 µs, on a GPU after each action. Throws UsageError when the plan's costs
/// do not match its stages and microbatches.
[[nodiscard]] std::unique_ptr<StageModule> makeSyntheticStage(const Plan& plan, Stage stage, const SyntheticDevice& device,
                                                              std::function<void()> betweenOperators);

}  // namespace pw
