#pragma once

#include <QTreeWidget>
#include <vector>

#include "simulator/report/bubble_causes.h"

namespace pw::gui {

/// The bubble by cause in figures: a row for each rank and one for all of them. Choosing a figure goes to the longest such wait.
class BubbleTable : public QTreeWidget {
  Q_OBJECT
 public:
  explicit BubbleTable(QWidget* parent = nullptr);
  void show(const std::vector<CausedIdle>& ranks, Ns makespan);

 signals:
  void chosen(Rank rank, Ns from);

 private:
  void choose(QTreeWidgetItem& item, int column);
  std::vector<CausedIdle> ranks_;
};

}  // namespace pw::gui
