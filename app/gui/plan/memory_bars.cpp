#include "app/gui/plan/memory_bars.h"

#include <QHelpEvent>
#include <QPainter>
#include <QToolTip>
#include <algorithm>

#include "app/gui/common/format.h"
#include "app/gui/common/theme.h"

namespace pw::gui {
namespace {

constexpr std::size_t kMost = 16;  ///< bars

bool needsLess(const RankMetrics& a, const RankMetrics& b) { return a.peakBytes < b.peakBytes; }

}  // namespace

MemoryBars::MemoryBars(QWidget* parent) : QWidget(parent) {
  setAccessibleName(tr("Peak memory per rank"));
  setSizePolicy(QSizePolicy::Expanding, QSizePolicy::Fixed);
}

int MemoryBars::row() const { return fontMetrics().height() + 4; }

QSize MemoryBars::sizeHint() const { return {160, static_cast<int>(std::min(ranks_.size(), kMost)) * row() + 4}; }

void MemoryBars::show(const std::vector<RankMetrics>& ranks, Bytes limit) {
  ranks_ = ranks;
  limit_ = limit;
  QStringList words;
  for (const RankMetrics& rank : ranks_) words << tr("rank %1: %2").arg(rank.rank.value).arg(sizeText(rank.peakBytes));
  setAccessibleDescription(words.join(QStringLiteral(", ")));
  updateGeometry();
  update();
}

QString MemoryBars::restText() const {
  if (ranks_.size() <= kMost) return {};
  const auto [least, most] = std::minmax_element(ranks_.begin() + (kMost - 1), ranks_.end(), needsLess);
  return tr("%1 more ranks, from %2 (rank %3) to %4 (rank %5). Analysis, Memory lists every rank.")
      .arg(ranks_.size() - (kMost - 1))
      .arg(sizeText(least->peakBytes))
      .arg(least->rank.value)
      .arg(sizeText(most->peakBytes))
      .arg(most->rank.value);
}

bool MemoryBars::event(QEvent* event) {
  if (event->type() != QEvent::ToolTip) return QWidget::event(event);
  const auto* help = static_cast<QHelpEvent*>(event);
  const bool isRest = help->pos().y() >= static_cast<int>(kMost - 1) * row();
  if (const QString text = isRest ? restText() : QString(); !text.isEmpty())
    QToolTip::showText(help->globalPos(), text, this);
  else
    QToolTip::hideText();
  return true;
}

void MemoryBars::paintEvent(QPaintEvent*) {
  QPainter painter(this);
  const Theme& t = currentTheme();
  Bytes most = limit_;
  for (const RankMetrics& rank : ranks_) most = std::max(most, rank.peakBytes);
  const int label = fontMetrics().horizontalAdvance(QStringLiteral("rank 000 ")),
            value = fontMetrics().horizontalAdvance(QStringLiteral("1023.0 MiB "));
  const double bar = std::max(10, width() - label - value);
  const std::size_t shown = std::min(ranks_.size(), kMost);
  for (std::size_t i = 0; i < shown; ++i) {
    const bool isRest = i + 1 == kMost && ranks_.size() > kMost;
    const RankMetrics& rank = isRest ? *std::max_element(ranks_.begin() + (kMost - 1), ranks_.end(), needsLess) : ranks_[i];
    const int y = static_cast<int>(i) * row();
    const bool over = isEnabled() && limit_ > 0 && rank.peakBytes > limit_;
    painter.setPen(t.faintText);
    painter.drawText(QRect(0, y, label, row()), Qt::AlignVCenter,
                     isRest ? tr("+%1 more").arg(ranks_.size() - (kMost - 1)) : tr("rank %1").arg(rank.rank.value));
    const double length = most > 0 ? bar * static_cast<double>(rank.peakBytes) / static_cast<double>(most) : 0;
    painter.fillRect(QRectF(label, y + 3, bar, row() - 6), t.bubble);
    painter.fillRect(QRectF(label, y + 3, length, row() - 6), over ? t.error : isEnabled() ? t.accent : t.faintText);
    painter.setPen(over ? t.error : isEnabled() ? t.text : t.faintText);
    painter.drawText(QRect(width() - value, y, value, row()), Qt::AlignVCenter | Qt::AlignRight, sizeText(rank.peakBytes));
  }
  if (limit_ > 0 && most > 0) {
    const double x = label + bar * static_cast<double>(limit_) / static_cast<double>(most);
    painter.setPen(QPen(t.error, 1.5, Qt::DashLine));
    painter.drawLine(QPointF(x, 0), QPointF(x, static_cast<double>(shown) * row()));
  }
}

}  // namespace pw::gui
