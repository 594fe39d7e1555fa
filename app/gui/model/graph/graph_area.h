#pragma once

#include <QTextBrowser>
#include <QWidget>
#include <memory>
#include <vector>

#include "app/gui/document/document.h"
#include "app/gui/model/graph/graph_view.h"

class QMenu;

namespace pw::gui {

/// The graph, and below it what the chosen node is. Works only while it is shown.
class GraphArea : public QWidget {
  Q_OBJECT
 public:
  GraphArea(Document& document, const CallTree& tree, const RowFindings& findings, QWidget* parent = nullptr);

  [[nodiscard]] GraphView& view() { return *view_; }
  /// The tree is another: of another model, or with other cuts of the same.
  void treeChanged(bool sameModel);
  void setSplits(const std::vector<NodeId>& begins, const std::vector<QString>& names, const std::vector<SplitPoint>& points);
  void follow();                        ///< the prediction or a drag's splits: what crosses the cuts
  void fillMenu(QMenu& menu, int row);  ///< what can be done with a box, apart from splits
  void factsChanged();                  ///< costs or findings

 protected:
  void showEvent(QShowEvent* event) override;
  void hideEvent(QHideEvent* event) override;

 private:
  void refresh();
  void describe();

  Document& document_;
  const CallTree& tree_;
  const RowFindings& findings_;
  GraphView* view_;
  QTextBrowser* details_;
  std::shared_ptr<const ModelGraph> graph_;  // whose flow the view has
  std::int64_t microbatch_ = 0;              // and for which size
  Bindings bindings_;
  std::vector<NodeId> begins_;
  std::vector<QString> names_;
};

}  // namespace pw::gui
