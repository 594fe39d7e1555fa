#include "app/gui/analysis/bubble_bars.h"

#include <QHelpEvent>
#include <QKeyEvent>
#include <QMouseEvent>
#include <QPainter>
#include <QToolTip>
#include <algorithm>
#include <functional>
#include <utility>

#include "app/gui/common/format.h"
#include "app/gui/common/theme.h"

namespace pw::gui {
namespace {

constexpr int kLeastBar = 160;  ///< pixels
constexpr int kReadyLine = 2;   ///< pixels
constexpr int kSideMargin = 4;

double share(Ns part, Ns whole) { return whole > 0 ? static_cast<double>(part) / static_cast<double>(whole) : 0; }

}  // namespace

QString nameOfCause(BubbleCause cause) {
  switch (cause) {
    case BubbleCause::StartUp: return BubbleBars::tr("start-up");
    case BubbleCause::Imbalance: return BubbleBars::tr("imbalance");
    case BubbleCause::Drain: return BubbleBars::tr("drain");
    case BubbleCause::Message: return BubbleBars::tr("message");
    case BubbleCause::Straggler: return BubbleBars::tr("straggler");
    case BubbleCause::MemoryLimit: return BubbleBars::tr("memory limit");
  }
  return {};
}

QString meaningOf(BubbleCause cause) {
  switch (cause) {
    case BubbleCause::StartUp: return BubbleBars::tr("before its first backward, while other ranks compute what must come first");
    case BubbleCause::Imbalance: return BubbleBars::tr("in the steady phase, while other ranks take longer to compute what it needs");
    case BubbleCause::Drain: return BubbleBars::tr("after its last forward, while other ranks still compute");
    case BubbleCause::Message: return BubbleBars::tr("while a message is in flight or waits for its channel");
    case BubbleCause::Straggler: return BubbleBars::tr("because the ranks that it waits for compute slower than the fastest one");
    case BubbleCause::MemoryLimit: return BubbleBars::tr("while its next forward is ready and the memory limit leaves no room for it");
  }
  return {};
}

QColor colourOf(BubbleCause cause, const Theme& theme) {
  switch (cause) {
    case BubbleCause::StartUp: return theme.accent;
    case BubbleCause::Imbalance: return theme.slower;
    case BubbleCause::Drain: return theme.faintText;
    case BubbleCause::Message: return kindColour(SpanKind::SendForward, theme);
    case BubbleCause::Straggler: return theme.error;
    case BubbleCause::MemoryLimit: return theme.warning;
  }
  return {};
}

Qt::BrushStyle patternOf(BubbleCause cause) {
  switch (cause) {
    case BubbleCause::StartUp:
    case BubbleCause::Imbalance:
    case BubbleCause::Drain:
    case BubbleCause::Message: return Qt::SolidPattern;
    case BubbleCause::Straggler: return Qt::BDiagPattern;
    case BubbleCause::MemoryLimit: return Qt::DiagCrossPattern;
  }
  return Qt::SolidPattern;
}

namespace {

/// With its hatching in the background's colour, for those who do not tell its colour from others.
void fillCause(QPainter& painter, const QRectF& area, BubbleCause cause, const Theme& theme) {
  painter.fillRect(area, colourOf(cause, theme));
  if (patternOf(cause) != Qt::SolidPattern) painter.fillRect(area, QBrush(theme.background, patternOf(cause)));
}

}  // namespace

BubbleBars::BubbleBars(QWidget* parent) : QWidget(parent) {
  setAccessibleName(tr("Bubble by cause"));
  setSizePolicy(QSizePolicy::Expanding, QSizePolicy::Fixed);
  setFocusPolicy(Qt::StrongFocus);
}

int BubbleBars::row() const { return fontMetrics().height() + 10; }

double BubbleBars::labelWidth() const { return fontMetrics().horizontalAdvance(tr("rank %1").arg(ranks_.size()) + QStringLiteral("  ")); }

double BubbleBars::pixels(Ns time) const {
  const double figure = fontMetrics().horizontalAdvance(QStringLiteral("  000.0 ms, 00.0 % "));
  return std::max(10.0, width() - labelWidth() - figure) * share(time, longest_);
}

QSize BubbleBars::sizeHint() const {
  const int texts = fontMetrics().horizontalAdvance(QStringLiteral("rank 000  000.0 ms, 00.0 % "));
  return {texts + kLeastBar, static_cast<int>(ranks_.size() + 1) * row() + 2};
}

void BubbleBars::show(std::vector<CausedIdle> ranks, Ns makespan) {
  ranks_ = std::move(ranks);
  makespan_ = makespan;
  longest_ = 0;
  for (const CausedIdle& rank : ranks_) longest_ = std::max(longest_, rank.by.sum());
  at_ = std::min(at_, ranks_.empty() ? 0 : ranks_.size() - 1);
  QStringList words;
  for (std::size_t r = 0; r < ranks_.size(); ++r) {
    QStringList parts;
    for (const BubbleCause cause : valuesOf<BubbleCause>())
      parts << QStringLiteral("%1 %2").arg(nameOfCause(cause), durationText(ranks_[r].by.of(cause)));
    words << tr("rank %1: %2").arg(r).arg(parts.join(QStringLiteral(", ")));
  }
  setAccessibleDescription(words.join(QStringLiteral("; ")));
  updateGeometry();
  update();
}

QRectF BubbleBars::partOf(Rank rank, BubbleCause cause) const {
  const IdleByCause& by = ranks_.at(rank.index()).by;
  double left = labelWidth();
  for (const BubbleCause before : valuesOf<BubbleCause>()) {
    if (before == cause) break;
    left += pixels(by.of(before));
  }
  return {left, static_cast<double>(row()) * (rank.value + 1) + 3, pixels(by.of(cause)), static_cast<double>(row()) - 9};
}

std::optional<BubbleBars::Part> BubbleBars::partAt(QPointF at) const {
  const auto below = static_cast<std::ptrdiff_t>(at.y()) / row() - 1;
  if (at.y() < row() || below >= std::ssize(ranks_)) return std::nullopt;
  const Rank rank(static_cast<std::size_t>(below));
  for (const BubbleCause cause : valuesOf<BubbleCause>()) {
    const QRectF part = partOf(rank, cause);
    if (at.x() >= part.left() && at.x() < part.right()) return Part{rank, cause};
  }
  return std::nullopt;
}

QString BubbleBars::textOf(const Part& part) const {
  const IdleByCause& by = ranks_[part.rank.index()].by;
  return tr("<p style='white-space:pre'><b>rank %1, %2: %3</b> (%4 of the makespan)<br>%5<br>Work was ready in %6 of its %7 idle.</p>")
      .arg(part.rank.value)
      .arg(nameOfCause(part.cause), durationText(by.of(part.cause)), percentText(share(by.of(part.cause), makespan_)).toHtmlEscaped(),
           meaningOf(part.cause), durationText(by.workReady), durationText(by.sum()));
}

void BubbleBars::choose(const Part& part) {
  const CausedIdle& rank = ranks_[part.rank.index()];
  if (rank.by.of(part.cause) > 0) emit chosen(part.rank, rank.longestFrom[static_cast<std::size_t>(part.cause)]);
}

void BubbleBars::mousePressEvent(QMouseEvent* event) {
  const auto part = partAt(event->position());
  if (!part || event->button() != Qt::LeftButton) return QWidget::mousePressEvent(event);
  at_ = part->rank.index();
  update();
  choose(*part);
}

void BubbleBars::keyPressEvent(QKeyEvent* event) {
  const bool up = event->key() == Qt::Key_Up, down = event->key() == Qt::Key_Down;
  if ((up || down) && !ranks_.empty()) {
    at_ = std::clamp<std::size_t>(at_ + (down ? 1 : 0) - (up && at_ > 0 ? 1 : 0), 0, ranks_.size() - 1);
    update();
  } else if ((event->key() == Qt::Key_Return || event->key() == Qt::Key_Enter) && at_ < ranks_.size()) {
    const auto& idle = ranks_[at_].by.idle;
    choose({Rank(at_), static_cast<BubbleCause>(std::ranges::max_element(idle) - idle.begin())});
  } else {
    QWidget::keyPressEvent(event);
  }
}

void BubbleBars::changeEvent(QEvent* event) {
  if (event->type() == QEvent::FontChange) updateGeometry();
  QWidget::changeEvent(event);
}

bool BubbleBars::event(QEvent* event) {
  if (event->type() != QEvent::ToolTip) return QWidget::event(event);
  const auto* help = static_cast<QHelpEvent*>(event);
  if (const auto part = partAt(help->pos())) {
    QToolTip::showText(help->globalPos(), textOf(*part), this, partOf(part->rank, part->cause).toRect());
  } else {
    QToolTip::hideText();
  }
  return true;
}

/// The causes with their colours and sums over all ranks.
void BubbleBars::paintSums(QPainter& painter) const {
  const Theme& t = currentTheme();
  IdleByCause sum;
  for (const CausedIdle& rank : ranks_) sum += rank.by;
  double x = kSideMargin;
  const double side = fontMetrics().ascent();
  const QString base = tr("of the bubble:");
  painter.setPen(t.faintText);
  painter.drawText(QPointF(x, (row() - fontMetrics().height()) / 2.0 + fontMetrics().ascent()), base);
  x += fontMetrics().horizontalAdvance(base + QStringLiteral("  "));
  const auto add = [&](const QString& name, Ns time, double height, const std::function<void(const QRectF&)>& fill) {
    const QString text = QStringLiteral("%1 %2").arg(name, percentText(share(time, sum.sum()), 0));
    fill(QRectF(x, (row() - height) / 2, side, height));
    painter.setPen(t.text);
    painter.drawText(QPointF(x + side + 4, (row() - fontMetrics().height()) / 2.0 + fontMetrics().ascent()), text);
    x += side + 4 + fontMetrics().horizontalAdvance(text + QStringLiteral("   "));
  };
  for (const BubbleCause cause : valuesOf<BubbleCause>()) {
    const bool isPlain = std::ranges::find(kPlainCauses, cause) != kPlainCauses.end();
    if (isPlain || sum.of(cause) > 0)
      add(nameOfCause(cause), sum.of(cause), side, [&](const QRectF& area) { fillCause(painter, area, cause, t); });
  }
  add(tr("work ready"), sum.workReady, kReadyLine, [&](const QRectF& area) { painter.fillRect(area, t.text); });
}

void BubbleBars::paintEvent(QPaintEvent*) {
  if (ranks_.empty()) return;
  QPainter painter(this);
  const Theme& t = currentTheme();
  paintSums(painter);
  for (std::size_t r = 0; r < ranks_.size(); ++r) {
    const double y = static_cast<double>(row()) * static_cast<double>(r + 1);
    const Ns all = ranks_[r].by.sum();
    if (hasFocus() && r == at_) {
      painter.setPen(t.focus);
      painter.drawRect(QRectF(0.5, y + 0.5, width() - 1.0, row() - 1.0));
    }
    painter.setPen(t.text);
    painter.drawText(QRectF(kSideMargin, y, labelWidth(), row()), Qt::AlignVCenter, tr("rank %1").arg(r));
    for (const BubbleCause cause : valuesOf<BubbleCause>()) fillCause(painter, partOf(Rank(r), cause), cause, t);
    painter.fillRect(QRectF(labelWidth(), y + row() - 4, pixels(ranks_[r].by.workReady), kReadyLine), t.text);
    painter.drawText(QRectF(labelWidth() + pixels(all) + 6, y, width(), row()), Qt::AlignVCenter,
                     tr("%1, %2").arg(durationText(all), percentText(share(all, makespan_))));
  }
}

}  // namespace pw::gui
