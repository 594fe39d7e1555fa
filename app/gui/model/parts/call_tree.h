#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "simulator/costs/profile.h"
#include "simulator/model/model_graph.h"

namespace pw::gui {

/// One row of the model's tree: a call of a module, or operators between such calls. Both are one range of nodes, and the children of a row
/// tile its range: sums add up, and every position between two rows is one position between two nodes.
struct CallRow {
  std::string path;       ///< of the module, or of the module that contains the operators. Empty for the root
  std::string label;      ///< the path from the row around it; for operators their names: `add · view`
  std::string className;  ///< empty for operators
  bool isModule = true;
  int call = 0;     ///< which call of this module it is, from 0
  int parent = -1;  ///< row; −1 for the root
  int place = 0;    ///< among the parent's children
  int depth = 0;
  int end = 0;  ///< the row after its last descendant
  NodeId firstNode, endNode;

  // One microbatch. A parameter counts in every row that reads it, once.
  Ns forward = 0, backward = 0;
  Bytes saved = 0;              ///< kept from the forward until the backward
  std::int64_t parameters = 0;  ///< elements
  Bytes parameterBytes = 0;
};

/// What identifies a row when the tree is built again with other cuts.
using RowKey = std::pair<std::string, int>;
[[nodiscard]] RowKey keyOf(const CallRow& row);

/// A model's calls in execution order, each before what is inside it: row 0 is the model.
struct CallTree {
  std::vector<CallRow> rows;
  std::vector<std::vector<int>> children;  ///< by row
  std::vector<int> rowOfNode;              ///< innermost row of each node

  [[nodiscard]] const CallRow& row(int index) const { return rows[static_cast<std::size_t>(index)]; }
  [[nodiscard]] int size() const { return static_cast<int>(rows.size()); }
};

/// The tree. Operators of a module that calls others are between these calls, one row per contiguous group; operators of other modules get
/// rows only if one of `cuts` (ascending) is inside the module. Every cut is then the beginning of a row. Adjacent calls of a module are
/// merged. Cost: linear in nodes times the depth of modules.
[[nodiscard]] CallTree callTree(const ModelGraph& graph, const std::vector<NodeId>& cuts);

/// Whether a row begins at each of the nodes; those after the model's end count as well.
[[nodiscard]] bool rowsBeginAt(const CallTree& tree, const std::vector<NodeId>& begins);

/// Sets times and kept bytes of all rows; null: 0.
void setCosts(CallTree& tree, const Profile* profile);

/// Whether each row is a layer: the outermost calls that call others and whose last name is a number (`blocks.3`); if there are none, whose
/// name ends in a digit (`encoder_layer_3`); otherwise numbered ones that call nothing (`net.3` of a plain sequence).
[[nodiscard]] std::vector<bool> layerRows(const CallTree& tree);

/// Initially expanded rows: those that contain layers; the model itself if there are none.
[[nodiscard]] std::vector<int> openAtFirst(const CallTree& tree);

/// The value of a full bar: the maximum over rows that do not contain layers, so that layers can be compared; rows that contain layers have
/// no bars.
struct BarScale {
  Ns time = 0;  ///< of forward and backward
  std::int64_t parameters = 0;
  Bytes saved = 0;
  std::vector<bool> isAround;  ///< by row: holds layers
};
[[nodiscard]] BarScale barScale(const CallTree& tree);

/// Rows whose label or class contains the text, or whose path does with a part of the label, without regard to case (ASCII); none for an
/// empty text.
[[nodiscard]] std::vector<int> findRows(const CallTree& tree, std::string_view text);

}  // namespace pw::gui
