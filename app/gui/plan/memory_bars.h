#pragma once

#include <QWidget>
#include <vector>

#include "simulator/report/metrics.h"

namespace pw::gui {

/// Peak memory of each rank as bars against its limit; in words for those who do not see it. Of more than 16 ranks the last bar stands for
/// all that have none: it is of the one that needs most, and its tip says from what to what they need.
class MemoryBars : public QWidget {
  Q_OBJECT
 public:
  explicit MemoryBars(QWidget* parent = nullptr);
  /// `limits`: by rank, 0 or left out: none.
  void show(const std::vector<RankMetrics>& ranks, std::vector<Bytes> limits);
  [[nodiscard]] QSize sizeHint() const override;
  [[nodiscard]] QSize minimumSizeHint() const override { return sizeHint(); }

 protected:
  bool event(QEvent* event) override;
  void paintEvent(QPaintEvent* event) override;

 private:
  [[nodiscard]] int row() const;           ///< its height
  [[nodiscard]] QString restText() const;  ///< of the ranks without a bar; empty: all have one
  std::vector<RankMetrics> ranks_;
  std::vector<Bytes> limits_;  ///< one for each
};

}  // namespace pw::gui
