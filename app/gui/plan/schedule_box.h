#pragma once

#include <QComboBox>
#include <functional>
#include <string>

#include "simulator/plan/planner.h"

namespace pw {
struct Schedule;
}

namespace pw::gui {

class Document;

/// One edit of what a plan's stages depend on: with other ranks or chunks the splits are balanced again, and rows from a file are dropped.
void changeShape(Document& document, const QString& what, const std::function<void(PlanRequest&)>& change);
/// That edit for a family or a schedule that is made for costs: it keeps the chunks that it takes (`chunksWith`).
void chooseSchedule(Document& document, std::string_view name);

/// The choice of the document's schedule: the families, what is made for costs, the project's own, and that of a file. A family that takes
/// neither the document's chunks nor its own default, with the document's ranks and microbatches, is grey, with the reason in its tip.
class ScheduleBox : public QComboBox {
  Q_OBJECT
 public:
  explicit ScheduleBox(Document& document, QWidget* parent = nullptr);
  /// Shows the document's design.
  void showDesign();
  /// Shows, after `showDesign`, the schedule that a trace executed; null: it does not show a whole step.
  void showExecuted(const Schedule* executed);

 private:
  void choose(int index);
  void chooseDrawn(const std::string& name);
  void refuse();
  void add(const QString& name, const QString& tip);
  Document& document_;
};

}  // namespace pw::gui
