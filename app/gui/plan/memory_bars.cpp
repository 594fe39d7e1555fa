#include "app/gui/plan/memory_bars.h"

#include <QHelpEvent>
#include <QPainter>
#include <QToolTip>
#include <algorithm>
#include <utility>

#include "app/gui/common/format.h"
#include "app/gui/common/theme.h"
#include "simulator/plan/excess.h"

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

void MemoryBars::show(const std::vector<RankMetrics>& ranks, std::vector<Bytes> limits) {
  ranks_ = ranks;
  limits_ = std::move(limits);
  limits_.resize(ranks_.size());
  QStringList words;
  for (std::size_t r = 0; r < ranks_.size(); ++r) {
    const QString text = tr("rank %1: %2").arg(ranks_[r].rank.value).arg(sizeText(ranks_[r].peakBytes));
    words << (excessOf(ranks_[r].peakBytes, limits_[r]) > 0 ? tr("%1, more than its %2").arg(text, sizeText(limits_[r])) : text);
  }
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
  const auto at = static_cast<std::size_t>(std::max(0, help->pos().y()) / row());
  const bool isRest = at + 1 >= kMost && ranks_.size() > kMost;
  const QString limit = !isRest && at < ranks_.size() && limits_[at] > 0 ? tr("of %1").arg(sizeText(limits_[at])) : QString();
  if (const QString text = isRest ? restText() : limit; !text.isEmpty())
    QToolTip::showText(help->globalPos(), text, this);
  else
    QToolTip::hideText();
  return true;
}

void MemoryBars::paintEvent(QPaintEvent*) {
  QPainter painter(this);
  const Theme& t = currentTheme();
  Bytes needed = 0;
  for (const RankMetrics& rank : ranks_) needed = std::max(needed, rank.peakBytes);
  Bytes most = needed;
  for (const Bytes limit : limits_) {  // one far above all that is needed would leave nothing of the bars
    if (limit < 3 * needed) most = std::max(most, limit);
  }
  const int label = fontMetrics().horizontalAdvance(QStringLiteral("rank 000 ")),
            value = fontMetrics().horizontalAdvance(QStringLiteral("1023.0 MiB "));
  const double bar = std::max(10, width() - label - value);
  const std::size_t shown = std::min(ranks_.size(), kMost);
  for (std::size_t i = 0; i < shown; ++i) {
    const bool isRest = i + 1 == kMost && ranks_.size() > kMost;
    const auto needsMost = std::max_element(ranks_.begin() + static_cast<std::ptrdiff_t>(isRest ? kMost - 1 : i), ranks_.end(), needsLess);
    const std::size_t r = isRest ? static_cast<std::size_t>(needsMost - ranks_.begin()) : i;
    const RankMetrics& rank = ranks_[r];
    const int y = static_cast<int>(i) * row();
    const bool over = isEnabled() && excessOf(rank.peakBytes, limits_[r]) > 0;
    painter.setPen(t.faintText);
    painter.drawText(QRect(0, y, label, row()), Qt::AlignVCenter,
                     isRest ? tr("+%1 more").arg(ranks_.size() - (kMost - 1)) : tr("rank %1").arg(rank.rank.value));
    const double length = most > 0 ? bar * static_cast<double>(rank.peakBytes) / static_cast<double>(most) : 0;
    painter.fillRect(QRectF(label, y + 3, bar, row() - 6), t.bubble);
    painter.fillRect(QRectF(label, y + 3, length, row() - 6), over ? t.error : isEnabled() ? t.accent : t.faintText);
    painter.setPen(over ? t.error : isEnabled() ? t.text : t.faintText);
    painter.drawText(QRect(width() - value, y, value, row()), Qt::AlignVCenter | Qt::AlignRight, sizeText(rank.peakBytes));
    if (limits_[r] <= 0 || limits_[r] > most) continue;
    const double x = label + bar * static_cast<double>(limits_[r]) / static_cast<double>(most);
    painter.setPen(QPen(t.error, 1.5, Qt::DashLine));
    painter.drawLine(QPointF(x, y), QPointF(x, y + row()));
  }
}

}  // namespace pw::gui
