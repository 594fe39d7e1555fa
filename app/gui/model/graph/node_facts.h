#pragma once

#include <QString>
#include <vector>

#include "app/gui/model/graph/flow.h"
#include "app/gui/model/parts/call_tree.h"
#include "simulator/report/split_report.h"

namespace pw::gui {

/// A tensor as a selected node shows it.
struct TensorFact {
  QString name, shape, type;
  Bytes bytes = 0;  ///< one microbatch; 0 where the size depends on data

  bool operator==(const TensorFact&) const = default;
};

/// The tensors of a range of nodes: what it reads from outside, what others read from it, and its parameters, tied ones once.
struct NodeFacts {
  std::vector<TensorFact> inputs, outputs, parameters, buffers;
};
[[nodiscard]] NodeFacts factsOf(const ModelGraph& graph, const ModelFlow& flow, const Bindings& bindings, NodeId begin, NodeId end);

/// The tensors that cross between two places of the graph: of an edge.
[[nodiscard]] std::vector<TensorFact> tensorsOf(const ModelGraph& graph, const ModelFlow& flow, const Bindings& bindings,
                                                const std::vector<ValueId>& values);

/// What a box of the graph says below its name: `F 16.9 µs · B 33.8 µs · 12.3 k parameters · keeps 1.00 MiB`, what there is of it.
[[nodiscard]] QString boxText(const CallRow& row);
/// All of a row as rich text: class, times and bytes, the tensors, and the findings there. At most `most` tensors of each kind.
[[nodiscard]] QString nodeText(const CallRow& row, const NodeFacts& facts, const std::vector<const Finding*>& findings,
                               std::size_t most = 12);
/// The same of the model's inputs (or outputs).
[[nodiscard]] QString tensorsText(const QString& title, const std::vector<TensorFact>& tensors, std::size_t most = 12);

}  // namespace pw::gui
