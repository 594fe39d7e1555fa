#pragma once

#include <QTreeWidget>
#include <optional>
#include <vector>

#include "simulator/job/explain_tables.h"

namespace pw::gui {

/// Tables of an explanation below one another, each row a link: a click or Enter goes to its place. The last column has a bar for each row,
/// its size beside the largest of its table.
class RowTree : public QTreeWidget {
  Q_OBJECT
 public:
  RowTree(const QString& name, QWidget* parent = nullptr);
  /// One table: its header above its rows. Several: a heading for each, with its rows below it.
  void show(const std::vector<const ExplainedTable*>& tables);

 signals:
  void chosen(const pw::StepPlace& place);

 private:
  void addRows(const ExplainedTable& table, QTreeWidgetItem* parent, int bar, double most);
  void choose(const QTreeWidgetItem* item);

  std::vector<StepPlace> places_;
};

}  // namespace pw::gui
