#pragma once

#include <QTreeWidget>

#include "simulator/plan/memory.h"

namespace pw::gui {

/// What each rank holds at its peak, by kind, stage and module, and what would free some of it.
class MemoryView : public QTreeWidget {
  Q_OBJECT
 public:
  explicit MemoryView(QWidget* parent = nullptr);
  void show(const PlanMemory& memory);
  /// Opens a rank and scrolls to it.
  void showRank(Rank rank);
};

}  // namespace pw::gui
