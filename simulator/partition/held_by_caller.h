#pragma once

#include <map>
#include <vector>

#include "simulator/model/autocast.h"
#include "simulator/model/model_graph.h"
#include "simulator/partition/lifetimes.h"
#include "simulator/partition/partition.h"

namespace pw {

/// What a model's operators keep for their backwards.
struct Keepers {
  std::vector<std::vector<ValueId>> reads;   ///< by node: in whose memory what it reads is
  std::vector<NodeId> by;                    ///< by value, as `KeptValues::by`
  std::vector<bool> needsGradient;           ///< by value
  std::vector<std::vector<NodeId>> readers;  ///< by value: nodes that give it a gradient, in order
  std::vector<std::vector<NodeId>> holders;  ///< by value that is no view: nodes whose W needs it, in order; the first's W runs last
  std::vector<NodeId> heldGradient;  ///< by value: the last node whose W needs its gradient, as additions and views pass it on; −1: none
  std::map<ValueId, std::vector<ValueId>> versions;  ///< of a value that operators change in place: their results, in order
  std::vector<NodeId> usedGradient;                  ///< by value: the node after whose backward its gradient, so passed on, is freed
};
/// `bases`: by value, the one in whose memory it is; `splits`: by node, whether it has a W; `onCpu`: what is measured
/// there (`keptValues`). Cost: linear.
[[nodiscard]] Keepers keepersOf(const ModelGraph& graph, const AutocastTypes& types, const std::vector<ValueId>& bases,
                                const std::vector<bool>& splits, bool onCpu);

/// A profile is measured on the whole model, which frees a value when the last operator that needs it has run. A stage's caller holds what
/// the stage received and its outputs until its backward returns, and so does the caller of a checkpointed range. By node of the stage, the
/// bytes that the profile says are free after it, and are not:
struct HeldByCaller {
  std::vector<Bytes> afterForward;   ///< received values that nothing keeps
  std::vector<Bytes> afterBackward;  ///< received values, outputs and their gradients that nothing needs any longer; where a checkpointed
                                     ///< range begins, its backward is over, and what only its caller held is free
  std::vector<Bytes> afterInput;     ///< the same of I, without what it keeps for a W anyway
  Bytes forWeights = 0;              ///< of the whole stage: received values that its Ws hold, and in the profile an earlier stage's do
};
/// Cost: linear in what the stage's nodes read and make.
[[nodiscard]] HeldByCaller heldByCaller(const ModelGraph& graph, const Lifetimes& lifetimes, const Keepers& keepers,
                                        const StageSpec& stage);

}  // namespace pw
