#include "app/gui/figure/preview.h"

#include <QPainter>
#include <algorithm>
#include <utility>

#include "app/gui/common/theme.h"
#include "app/gui/figure/painter.h"

namespace pw::gui {
namespace {

constexpr int kMargin = 12;

}  // namespace

FigurePreview::FigurePreview(QWidget* parent) : QWidget(parent) {
  setAccessibleName(tr("Preview of the figure"));
  setMinimumSize(180, 120);
  setSizePolicy(QSizePolicy::Expanding, QSizePolicy::Expanding);
}

QSize FigurePreview::sizeHint() const { return {560, 420}; }

void FigurePreview::setFigure(Figure figure) {
  figure_ = std::move(figure);
  sentence_.clear();
  draw();
}

void FigurePreview::explain(const QString& sentence) {
  sentence_ = sentence;
  update();
}

void FigurePreview::draw() {
  picture_ = {};
  update();
  if (figure_.width <= 0 || figure_.height <= 0) return;
  constexpr double kLargest = 3 * 96 / 25.4;  // pixels of a mm, at three times the size on paper
  const double scale = std::min({(width() - 2 * kMargin) / figure_.width, (height() - 2 * kMargin) / figure_.height, kLargest});
  if (scale <= 0) return;
  const double ratio = devicePixelRatioF();
  picture_ = QPixmap(QSizeF(figure_.width * scale * ratio, figure_.height * scale * ratio).toSize().expandedTo({1, 1}));
  picture_.setDevicePixelRatio(ratio);
  picture_.fill(Qt::white);
  QPainter painter(&picture_);
  paintFigure(painter, figure_, scale);
}

void FigurePreview::resizeEvent(QResizeEvent* event) {
  QWidget::resizeEvent(event);
  draw();
}

void FigurePreview::paintEvent(QPaintEvent*) {
  QPainter painter(this);
  const Theme& theme = currentTheme();
  painter.fillRect(rect(), theme.dark ? theme.background : QColor(0xd8, 0xdb, 0xe0));
  if (!sentence_.isEmpty()) {
    painter.setPen(theme.text);
    painter.drawText(rect().adjusted(2 * kMargin, 0, -2 * kMargin, 0), Qt::AlignCenter | Qt::TextWordWrap, sentence_);
    return;
  }
  const QSizeF size = picture_.deviceIndependentSize();
  painter.drawPixmap(QPointF((width() - size.width()) / 2, (height() - size.height()) / 2), picture_);
}

}  // namespace pw::gui
