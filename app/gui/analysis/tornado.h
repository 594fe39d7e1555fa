#pragma once

#include <QWidget>

#include "simulator/report/sensitivity.h"

namespace pw::gui {

/// How much the makespan depends on each stage and link: a bar from where it takes less to where it takes more, the longest on top; in
/// words for those who do not see it.
class Tornado : public QWidget {
  Q_OBJECT
 public:
  explicit Tornado(QWidget* parent = nullptr);
  void show(SensitivityReport report);
  [[nodiscard]] const SensitivityReport& report() const { return report_; }
  [[nodiscard]] QSize sizeHint() const override;
  [[nodiscard]] QSize minimumSizeHint() const override { return sizeHint(); }

 protected:
  bool event(QEvent* event) override;
  void paintEvent(QPaintEvent* event) override;
  void changeEvent(QEvent* event) override;

 private:
  [[nodiscard]] int row() const;  ///< its height
  SensitivityReport report_;
};

}  // namespace pw::gui
