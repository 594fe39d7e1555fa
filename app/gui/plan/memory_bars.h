#pragma once

#include <QWidget>
#include <vector>

#include "simulator/report/metrics.h"

namespace pw::gui {

/// Peak memory of each rank as bars against the limit; in words for those who do not see it. Beyond 16 ranks the last bar is an ellipsis.
class MemoryBars : public QWidget {
  Q_OBJECT
 public:
  explicit MemoryBars(QWidget* parent = nullptr);
  /// `limit` 0: none.
  void show(const std::vector<RankMetrics>& ranks, Bytes limit);
  [[nodiscard]] QSize sizeHint() const override;
  [[nodiscard]] QSize minimumSizeHint() const override { return sizeHint(); }

 protected:
  void paintEvent(QPaintEvent* event) override;

 private:
  [[nodiscard]] int row() const;  ///< its height
  std::vector<RankMetrics> ranks_;
  Bytes limit_ = 0;
};

}  // namespace pw::gui
