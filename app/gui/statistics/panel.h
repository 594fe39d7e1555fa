#pragma once

#include <QWidget>
#include <memory>
#include <vector>

namespace pw::gui {

class Document;
class TimelineWidget;
struct Measured;

/// Statistics of what is selected in the timeline: of the blocks that touch a range, of those that are marked (chosen, found, the critical
/// path), else of the whole step. A table by kind and stage with how durations are distributed, and the blocks that took longest beside
/// their like. A click on a row goes to its block. Made while it is visible; in the background where there are many blocks.
class StatisticsPanel : public QWidget {
  Q_OBJECT
 public:
  StatisticsPanel(Document& document, TimelineWidget& timeline, QWidget* parent = nullptr);
  ~StatisticsPanel() override;
  /// The steps of the trace that is open, for the spread between them; the measured one may be among them. Of a stored run they are
  /// read from its store.
  void setSteps(std::vector<std::shared_ptr<const Measured>> steps);
  [[nodiscard]] bool isIdle() const;  ///< what it shows is of the selection, or it is hidden

 protected:
  void showEvent(QShowEvent* event) override;
  void changeEvent(QEvent* event) override;

 private:
  struct Private;
  std::unique_ptr<Private> d;
};

}  // namespace pw::gui
