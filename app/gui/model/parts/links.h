#pragma once

#include <QString>
#include <optional>
#include <vector>

#include "app/gui/document/document.h"

namespace pw::gui {

/// `2 × 128 × 64`, `scalar`, or that it depends on data.
[[nodiscard]] QString shapeText(const TensorMeta& meta, const Bindings& bindings);

/// A value that crosses one split.
struct Crossing {
  ValueId value;
  Stage from, to;         ///< `to` is after the next stage: sent there directly, bypassing it
  bool gradient = false;  ///< a gradient of the same size comes back
  Bytes bytes = 0;
  Ns time = 0;  ///< latency and transfer; 0 between stages of one rank

  bool operator==(const Crossing&) const = default;
};

/// The meaning of an arc next to the brackets.
enum class ArcKind : std::uint8_t {
  Sent,        ///< a value bypasses a stage: from the stage that makes it directly to one that uses it
  Recomputed,  ///< a stage recomputes values of an earlier one
  Shared,      ///< a parameter two stages read
};
struct Arc {
  ArcKind kind = ArcKind::Sent;
  NodeId from, to;  ///< makes and first uses it; of a parameter its first readers in both stages
  Stage fromStage, toStage;
  std::vector<ValueId> values;  ///< of a parameter none
  QString text;                 ///< how the plan handles it, one sentence

  bool operator==(const Arc&) const = default;
};

/// Which nodes read each value.
class Readers {
 public:
  Readers() = default;
  explicit Readers(const ModelGraph& graph);
  /// The first reader in [begin, end); of an output of the model also its last node. Nothing where none reads it.
  [[nodiscard]] std::optional<NodeId> first(ValueId value, NodeId begin, NodeId end) const;

 private:
  std::vector<std::vector<NodeId>> nodes_;  // by value, ascending
  std::vector<bool> isOutput_;
};

/// The ranks of stages, and the cost of messages between them.
struct Wiring {
  std::vector<Rank> rankOfStage;
  Topology topology;  ///< of the costs in use

  [[nodiscard]] Rank rank(Stage stage) const { return stage.index() < rankOfStage.size() ? rankOfStage[stage.index()] : Rank(stage.value); }
  /// Time of one message in one direction; 0 on the same rank.
  [[nodiscard]] Ns time(Stage from, Stage to, Bytes bytes) const;
};
[[nodiscard]] Wiring wiringOf(const Document& document);

/// The partition at the design's splits: that of the prediction if it matches, otherwise a new cut; nothing if it cannot be cut. Cost:
/// linear then.
[[nodiscard]] std::optional<Partition> partitionOf(const Document& document);
/// Whether a prediction is of these splits.
[[nodiscard]] bool isOf(const Partition& partition, const std::vector<NodeId>& begins);

/// The values that cross the split before stage `split` + 1, largest first.
[[nodiscard]] std::vector<Crossing> crossing(const Partition& partition, std::size_t split, const Wiring& wiring);
/// The same as rich text: a table of name, shape, type, size and time with at most `most` rows, and what is recomputed.
[[nodiscard]] QString crossingText(const Document& document, std::size_t split, const QString& name, std::size_t most = 12);

/// Skip connections (transfers that bypass a stage), recomputed values and shared parameters, in the order of the partition.
[[nodiscard]] std::vector<Arc> arcsOf(const ModelGraph& graph, const Readers& readers, const Partition& partition,
                                      const std::vector<SharingChoice>& sharing, const Wiring& wiring);

}  // namespace pw::gui
