#pragma once

#include <functional>
#include <memory>

#include "backends/messages/device.h"
#include "backends/stages/stage_module.h"
#include "simulator/plan/plan.h"

namespace pw {

/// What the stages of one rank hold together, in bytes: now, and the most since it was last asked for.
struct SyntheticMemory {
  Bytes alive = 0;
  Bytes peak = 0;
};

/// What a synthetic stage runs on. The host: `syntheticHost()`; a GPU: its device and spin kernel. One for all stages of a rank.
struct SyntheticDevice {
  const Device* device = nullptr;
  std::function<void(Ns)> spin;             ///< busies the device's compute for that time
  std::shared_ptr<SyntheticMemory> memory;  ///< where the device does not count (`Device::bytesAlive`); null: the stage counts alone
};
/// A busy loop on the steady clock, and a new count of memory.
[[nodiscard]] SyntheticDevice syntheticHost();

/// A stage that computes nothing, for as long as the plan says: F, B, I and W of `plan.costs` (times the microbatch's scale), values and
/// gradients of the sizes of the plan's transfers (times the scale as well). So any plan can be run on real processes, links and GPUs
/// without its model. A slot's forward and backward run one after the other. The plan must outlive the stage. Its loss is 0, and a
/// checkpoint of it is empty.
///
/// Messages: their first, middle and last 64 bytes say what they are (backends/messages/synthetic_message.h: transfer, microbatch, value or
/// gradient, step, length), and a receiver compares them, where the device is the host: throws Error naming transfer and microbatch where a
/// message went astray. A check costs the same for all sizes, well under a microsecond; bytes between are what the memory held. Messages of
/// two replicas look alike.
///
/// Parameters: float32, of `StageCost::gradientBytes` (what is trained): a group for each shared parameter of the stage, and one of its own
/// for the rest. On the host 64 or so gradients of a group are 1 at the begin of a step and the rest 0, and the update subtracts them, so
/// that copies stay equal and differ from what an update was missing in; on a GPU all stay 0. The optimizer's time, and its state from the
/// first update on, are those of `StageCost` for all that it updates: of a range its share (so sharding must not be in the costs).
///
/// Memory is what the plan says: parameters, buffers, data, activations and what actions need beyond. The host only counts it, apart from
/// messages and groups; a GPU allocates it, and an Error says what did not fit.
///
/// On the host `betweenOperators` (may be empty) is called every 50 µs, on a GPU after each action. Throws UsageError when the plan's costs
/// are not of its stages and microbatches.
[[nodiscard]] std::unique_ptr<StageModule> makeSyntheticStage(const Plan& plan, Stage stage, const SyntheticDevice& device,
                                                              std::function<void()> betweenOperators);

}  // namespace pw
