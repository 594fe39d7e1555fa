#pragma once

#include <QWidget>
#include <vector>

#include "schedules/ids.h"
#include "simulator/layout/blocks.h"

class QLineEdit;
class QToolButton;

namespace pw::gui {

/// The splits as Megatron-LM's layout string, to be read and copied. Hidden for a model without numbered layers.
class LayoutLine : public QWidget {
  Q_OBJECT
 public:
  explicit LayoutLine(QWidget* parent = nullptr);

  /// Of the model whose splits follow; null: none.
  void setModel(const ModelGraph* graph);
  /// Shows the string, or, where a stage begins inside a layer, which one, or that replicas have splits of their own, which Megatron cannot
  /// have. Cost: linear in layers.
  void setBegins(const std::vector<NodeId>& begins, bool replicasDiffer);

 private:
  std::vector<LayoutBlock> blocks_;
  QLineEdit* text_;
  QToolButton* copy_;
};

}  // namespace pw::gui
