#pragma once

#include <QWidget>

#include "app/gui/model/parts/row_findings.h"

class QLabel;
class QTreeWidget;
class QTreeWidgetItem;

namespace pw::gui {

/// A report's findings as a list by kind, below the verdict that they lead to, with what the current one means and what to do about it.
class FindingsView : public QWidget {
  Q_OBJECT
 public:
  explicit FindingsView(QWidget* parent = nullptr);

  /// `model`: its name, for findings of no module.
  void setFindings(const std::vector<Finding>& findings, const QString& model);

 signals:
  void chosen(int finding);  ///< index into the findings

 private:
  void explain(const QTreeWidgetItem* item);

  QLabel* verdict_;
  QTreeWidget* list_;
  QLabel* explanation_;
};

}  // namespace pw::gui
