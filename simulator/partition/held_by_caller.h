#pragma once

#include <vector>

#include "simulator/model/autocast.h"
#include "simulator/model/model_graph.h"
#include "simulator/partition/lifetimes.h"
#include "simulator/partition/partition.h"

namespace pw {

/// What a model's operators keep for their backwards.
struct Keepers {
  std::vector<std::vector<ValueId>> reads;  ///< by node: in whose memory what it reads is
  std::vector<NodeId> by;                   ///< by value, as `KeptValues::by`
  std::vector<bool> needsGradient;          ///< by value
};
/// `bases`: by value, the one in whose memory it is. Cost: linear.
[[nodiscard]] Keepers keepersOf(const ModelGraph& graph, const AutocastTypes& types, const std::vector<ValueId>& bases);

/// A profile is measured on the whole model, which frees a value when the last operator that needs it has run. A stage's caller holds what
/// the stage received and its outputs until its backward returns, and so does the caller of a checkpointed range. By node of the stage, the
/// bytes that the profile says are free after it, and are not:
struct HeldByCaller {
  std::vector<Bytes> afterForward;   ///< received values that nothing keeps
  std::vector<Bytes> afterBackward;  ///< received values and outputs that nothing keeps any longer
  std::vector<Bytes> gradients;      ///< of the outputs that the node makes, once given back; not in ranges, whose callers hold their own
};
/// Cost: linear in what the stage's nodes read and make.
[[nodiscard]] HeldByCaller heldByCaller(const ModelGraph& graph, const Lifetimes& lifetimes, const Keepers& keepers,
                                        const StageSpec& stage);

}  // namespace pw
