#pragma once

#include <QWidget>
#include <memory>

#include "simulator/partition/split.h"

namespace pw::gui {

class Document;

/// The model as a tree with costs, the stages at its margin, and handles between rows where it is split.
class ModelPanel : public QWidget {
  Q_OBJECT
 public:
  explicit ModelPanel(Document& document, QWidget* parent = nullptr);
  ~ModelPanel() override;

  /// Puts the cursor into the field that finds modules.
  void find();
  /// Puts the splits where stages are alike in this, in the background.
  void balanceSplits(Balance by);
  /// Ends balancing or fitting splits, which then stay as they are.
  void cancel();
  [[nodiscard]] QAction* graphAction();  ///< checked: the graph stands in place of the tree
  [[nodiscard]] bool isIdle() const;     ///< what was found in the model is shown
  [[nodiscard]] QSize sizeHint() const override { return {640, 700}; }

 private:
  struct Private;
  std::unique_ptr<Private> d;
};

}  // namespace pw::gui
