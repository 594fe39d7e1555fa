#pragma once

#include <span>
#include <vector>

#include "simulator/model/model_graph.h"
#include "simulator/partition/partition.h"

namespace pw {

/// Computed memory: what a node makes, and nodes up to another read.
struct Life {
  ValueId value{-1};
  NodeId from{-1}, to{-1};  ///< `to`: the number of nodes where the loss reads it
  Bytes bytes = 0;
};

/// How long computed memory is needed when nothing is kept for a backward. A view belongs to the value it shows.
class Lifetimes {
 public:
  /// `reads`: by node; `bases`: by value, the one in whose memory it is; `bytes`: by value, −1 where the size depends on data, of which
  /// nothing is known. Of the model's outputs only what the default loss is made of is needed to the end: costs do not know of another
  /// loss that a plan may name.
  Lifetimes(const ModelGraph& graph, const std::vector<std::vector<ValueId>>& reads, const std::vector<ValueId>& bases,
            const std::vector<Bytes>& bytes);

  [[nodiscard]] std::span<const Life> madeBy(std::size_t node) const { return made_[node]; }
  /// Of a value that is no view; of inputs, parameters and what is not known one without nodes and bytes.
  [[nodiscard]] const Life& of(ValueId base) const { return ofValue_[base.index()]; }
  /// The values of a range whose last use is this node.
  [[nodiscard]] Bytes endingAt(std::size_t node, NodeId rangeBegin) const;
  /// The values of a range that later nodes use.
  [[nodiscard]] Bytes leaving(const NodeRange& range) const;

 private:
  std::vector<std::vector<Life>> made_, ending_;  ///< by node
  std::vector<Life> ofValue_;
};

}  // namespace pw
