#pragma once

#include <QTreeWidget>
#include <vector>

#include "app/gui/model/parts/stage_totals.h"

namespace pw::gui {

/// The stages as a plain list, for schedules without a model.
class StageList : public QTreeWidget {
  Q_OBJECT
 public:
  explicit StageList(QWidget* parent = nullptr);
  void setStages(const std::vector<StageTotals>& stages);

 private:
  std::vector<StageTotals> stages_;
};

}  // namespace pw::gui
