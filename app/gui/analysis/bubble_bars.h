#pragma once

#include <QWidget>
#include <optional>
#include <vector>

#include "app/gui/common/theme.h"
#include "simulator/report/bubble_causes.h"

namespace pw::gui {

[[nodiscard]] QString nameOfCause(BubbleCause cause);
[[nodiscard]] QString meaningOf(BubbleCause cause);  ///< a clause: `in the steady phase, while …`
[[nodiscard]] QColor colourOf(BubbleCause cause, const Theme& theme);

[[nodiscard]] Qt::BrushStyle patternOf(BubbleCause cause);  ///< solid; hatched where something can be mended

/// The bubble by cause: a bar for each rank, as long as it idles, with a part for each cause; a thin line under it is as long as work was
/// ready meanwhile. Above them the causes with their sums. A click on a part, or Enter on a rank's longest, chooses a place in time.
class BubbleBars : public QWidget {
  Q_OBJECT
 public:
  explicit BubbleBars(QWidget* parent = nullptr);
  void show(std::vector<CausedIdle> ranks, Ns makespan);
  [[nodiscard]] const std::vector<CausedIdle>& ranks() const { return ranks_; }
  [[nodiscard]] QRectF partOf(Rank rank, BubbleCause cause) const;  ///< where it is drawn; empty: it is 0
  [[nodiscard]] QSize sizeHint() const override;
  [[nodiscard]] QSize minimumSizeHint() const override { return sizeHint(); }

 signals:
  void chosen(Rank rank, Ns from);  ///< the longest wait of a cause starts there

 protected:
  bool event(QEvent* event) override;
  void paintEvent(QPaintEvent* event) override;
  void mousePressEvent(QMouseEvent* event) override;
  void keyPressEvent(QKeyEvent* event) override;
  void changeEvent(QEvent* event) override;

 private:
  struct Part {
    Rank rank;
    BubbleCause cause = BubbleCause::StartUp;
  };
  [[nodiscard]] int row() const;  ///< its height
  [[nodiscard]] double labelWidth() const;
  [[nodiscard]] double pixels(Ns time) const;  ///< its length in a bar
  [[nodiscard]] std::optional<Part> partAt(QPointF at) const;
  [[nodiscard]] QString textOf(const Part& part) const;
  void choose(const Part& part);
  void paintSums(QPainter& painter) const;

  std::vector<CausedIdle> ranks_;
  Ns makespan_ = 0, longest_ = 0;  ///< longest: idle time of a rank
  std::size_t at_ = 0;             ///< the rank that the keyboard is on
};

}  // namespace pw::gui
