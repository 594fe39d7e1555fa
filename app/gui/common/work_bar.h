#pragma once

#include <QTimer>
#include <QWidget>

class QLabel;
class QPushButton;

namespace pw::gui {

class Job;

/// What a job is doing, with Cancel, for as long as it runs; hidden otherwise, and for the first moment, which most work needs no longer
/// than.
class WorkBar : public QWidget {
  Q_OBJECT
 public:
  /// Follows the job, which must outlive it.
  explicit WorkBar(Job& job, QWidget* parent = nullptr);

 private:
  QLabel* text_;
  QPushButton* cancel_;
  QTimer* moment_;  ///< runs from the start of work until the bar is shown
};

}  // namespace pw::gui
