#pragma once

#include <QWidget>
#include <memory>

#include "app/gui/explain/explainable.h"

namespace pw::gui {

/// A place of an explained job, for the window to go to.
struct ExplainedPlace {
  ExplainedOf of = ExplainedOf::Plan;
  std::shared_ptr<const JobBasis> job;  ///< whose place it is; for a plan it has the one predicted step
  StepPlace place;
};

/// Where the step of what is open goes: the critical path, bubbles by phase and cause, stragglers by kind, stage, rank and worker, and the
/// worst steps. Every row leads to its place in the timeline. Computed in the background while it is visible.
class ExplainPanel : public QWidget {
  Q_OBJECT
 public:
  explicit ExplainPanel(Document& document, QWidget* parent = nullptr);
  ~ExplainPanel() override;
  [[nodiscard]] bool isIdle() const;      ///< what is shown is of the document, or it is hidden
  void setReplanAction(QAction* action);  ///< its button; hidden where that is disabled

 signals:
  void placeChosen(const pw::gui::ExplainedPlace& place);

 protected:
  void showEvent(QShowEvent* event) override;

 private:
  struct Private;
  std::unique_ptr<Private> d;
};

}  // namespace pw::gui
