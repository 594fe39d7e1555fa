#pragma once

#include <QPixmap>
#include <QWidget>

#include "simulator/timeline/figure.h"

namespace pw::gui {

/// A figure on white paper, as large as there is room for, at most three times its size.
class FigurePreview : public QWidget {
  Q_OBJECT
 public:
  explicit FigurePreview(QWidget* parent = nullptr);

  void setFigure(Figure figure);          ///< the traces it was laid out from must live as long
  void explain(const QString& sentence);  ///< instead of a figure
  [[nodiscard]] const Figure& figure() const { return figure_; }
  [[nodiscard]] QSize sizeHint() const override;

 protected:
  void paintEvent(QPaintEvent* event) override;
  void resizeEvent(QResizeEvent* event) override;

 private:
  void draw();

  Figure figure_;
  QString sentence_;
  QPixmap picture_;
};

}  // namespace pw::gui
