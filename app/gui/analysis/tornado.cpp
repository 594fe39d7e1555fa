#include "app/gui/analysis/tornado.h"

#include <QHelpEvent>
#include <QPainter>
#include <QToolTip>
#include <algorithm>
#include <utility>

#include "app/gui/common/format.h"
#include "app/gui/common/theme.h"

namespace pw::gui {
namespace {

constexpr int kLeastBars = 160;  ///< pixels for the bars of both sides
constexpr int kRightMargin = 6;  ///< pixels: the scroll bar follows

double relative(const SensitivityReport& report, Ns time) {
  return report.makespan > 0 ? static_cast<double>(time - report.makespan) / static_cast<double>(report.makespan) : 0;
}

double pathShare(const SensitivityReport& report, const Sensitivity& s) {
  return report.makespan > 0 ? static_cast<double>(s.onPath) / static_cast<double>(report.makespan) : 0;
}

QString nameOfRow(const Sensitivity& s) { return QString::fromStdString(nameOf(s.of)); }

}  // namespace

Tornado::Tornado(QWidget* parent) : QWidget(parent) {
  setAccessibleName(tr("What the makespan depends on"));
  setSizePolicy(QSizePolicy::Expanding, QSizePolicy::Fixed);
}

int Tornado::row() const { return fontMetrics().height() + 6; }

QSize Tornado::sizeHint() const {
  const int texts = fontMetrics().horizontalAdvance(QStringLiteral("link 000–000  +00.0 % +00.0 % 00.0 %"));
  return {texts + kLeastBars, static_cast<int>(report_.all.size()) * row()};
}

void Tornado::show(SensitivityReport report) {
  report_ = std::move(report);
  QStringList words;
  for (const Sensitivity& s : report_.all) {
    words << tr("%1: %2 to %3")
                 .arg(nameOfRow(s), signedPercentText(relative(report_, s.faster)), signedPercentText(relative(report_, s.slower)));
  }
  setAccessibleDescription(words.join(QStringLiteral(", ")));
  updateGeometry();
  update();
}

void Tornado::changeEvent(QEvent* event) {
  if (event->type() == QEvent::FontChange) updateGeometry();
  QWidget::changeEvent(event);
}

bool Tornado::event(QEvent* event) {
  if (event->type() != QEvent::ToolTip) return QWidget::event(event);
  const auto* help = static_cast<QHelpEvent*>(event);
  const int at = help->pos().y() / row();
  if (at < 0 || at >= static_cast<int>(report_.all.size())) {
    QToolTip::hideText();
    return true;
  }
  const Sensitivity& s = report_.all[static_cast<std::size_t>(at)];
  const QString change = percentText(report_.change, 0);
  QToolTip::showText(
      help->globalPos(),
      tr("<p style='white-space:pre'><b>%1</b><br>%2 less: %3<br>%2 more: %4<br>%5 of the critical path</p>")
          .arg(nameOfRow(s), change, durationText(s.faster), durationText(s.slower), percentText(pathShare(report_, s)).toHtmlEscaped()),
      this, QRect(0, at * row(), width(), row()));
  return true;
}

void Tornado::paintEvent(QPaintEvent*) {
  QPainter painter(this);
  const Theme& t = currentTheme();
  double most = 0;
  for (const Sensitivity& s : report_.all) most = std::max({most, -relative(report_, s.faster), relative(report_, s.slower)});
  const auto wide = [&](const QString& text) { return fontMetrics().horizontalAdvance(text); };
  int label = 0;
  for (const Sensitivity& s : report_.all) label = std::max(label, wide(nameOfRow(s)));
  label += wide(QStringLiteral("  "));
  const int figure = wide(QStringLiteral("+00.0 % ")), share = wide(QStringLiteral(" 100.0 % "));
  const double half = std::max(10.0, (width() - label - share) / 2.0 - figure), middle = label + figure + half;
  for (std::size_t i = 0; i < report_.all.size(); ++i) {
    const Sensitivity& s = report_.all[i];
    const int y = static_cast<int>(i) * row();
    const double less = -relative(report_, s.faster), more = relative(report_, s.slower);
    const double left = most > 0 ? half * std::max(0.0, less) / most : 0, right = most > 0 ? half * std::max(0.0, more) / most : 0;
    painter.setPen(t.text);
    painter.drawText(QRect(0, y, label, row()), Qt::AlignVCenter, nameOfRow(s));
    painter.fillRect(QRectF(middle - left, y + 3, left, row() - 6), t.faster);
    painter.fillRect(QRectF(middle, y + 3, right, row() - 6), t.slower);
    painter.drawText(QRectF(middle - left - figure, y, figure - 4, row()), Qt::AlignVCenter | Qt::AlignRight, signedPercentText(-less));
    painter.drawText(QRectF(middle + right + 4, y, figure, row()), Qt::AlignVCenter | Qt::AlignLeft, signedPercentText(more));
    painter.setPen(t.faintText);
    painter.drawText(QRect(width() - share, y, share - kRightMargin, row()), Qt::AlignVCenter | Qt::AlignRight,
                     percentText(pathShare(report_, s)));
  }
  painter.setPen(t.faintText);
  painter.drawLine(QPointF(middle, 0), QPointF(middle, static_cast<double>(report_.all.size()) * row()));
}

}  // namespace pw::gui
