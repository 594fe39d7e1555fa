#include "app/gui/runs/group_table.h"

#include <QApplication>
#include <QPainter>
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <string_view>
#include <utility>

#include "app/gui/common/format.h"
#include "app/gui/common/theme.h"
#include "simulator/report/verdict.h"

namespace pw::gui {
namespace {

constexpr int kGap = 6;

/// `▲ +2.10 ms`, `▼ −1.00 ms`, `0`.
QString signedDuration(Ns difference) {
  if (difference == 0) return QStringLiteral("0");
  return (difference > 0 ? QStringLiteral("▲ +") : QStringLiteral("▼ −")) + durationText(abs(difference));
}

QString timeOf(Ns time) { return time == 0 ? QStringLiteral("–") : durationText(time); }

QString differenceText(const GroupError& group) {
  const QString text = signedDuration(group.measured - group.predicted);
  return group.predicted > 0 && group.measured > 0 && group.measured != group.predicted
             ? QStringLiteral("%1  (%2)").arg(text, signedPercentText(group.durationError))
             : text;
}

/// Room for the widest text a difference can have.
int textWidth(const QFontMetrics& metrics) { return metrics.horizontalAdvance(QStringLiteral("▲ +88.88 ms  (+888.8 %)")); }

}  // namespace

QString groupLabel(const std::string& group) {
  static constexpr std::array<std::pair<std::string_view, const char*>, 13> kMeanings{{
      {"F", QT_TRANSLATE_NOOP("pw::gui::GroupTable", "forward")},
      {"B", QT_TRANSLATE_NOOP("pw::gui::GroupTable", "backward")},
      {kBackwards, QT_TRANSLATE_NOOP("pw::gui::GroupTable", "backward")},
      {"I", QT_TRANSLATE_NOOP("pw::gui::GroupTable", "input gradients")},
      {"W", QT_TRANSLATE_NOOP("pw::gui::GroupTable", "weight gradients")},
      {"SEND_F", QT_TRANSLATE_NOOP("pw::gui::GroupTable", "messages forward")},
      {"SEND_B", QT_TRANSLATE_NOOP("pw::gui::GroupTable", "messages back")},
      {"WAIT_F", QT_TRANSLATE_NOOP("pw::gui::GroupTable", "waits for values")},
      {"WAIT_B", QT_TRANSLATE_NOOP("pw::gui::GroupTable", "waits for gradients")},
      {"REDUCE_GRAD", QT_TRANSLATE_NOOP("pw::gui::GroupTable", "sums of gradients")},
      {"OPTIMIZER", QT_TRANSLATE_NOOP("pw::gui::GroupTable", "updates")},
      {"LOAD", QT_TRANSLATE_NOOP("pw::gui::GroupTable", "loads")},
      {"STORE", QT_TRANSLATE_NOOP("pw::gui::GroupTable", "stores")},
  }};
  const std::string_view kind = std::string_view(group).substr(0, group.find(" of stage "));
  const auto found = std::ranges::find_if(kMeanings, [&](const auto& meaning) { return kind == meaning.first; });
  const QString letters = QString::fromStdString(group);
  return found == kMeanings.end() ? letters : letters + QStringLiteral("  ") + GroupTable::tr(found->second);
}

void GroupTable::setGroups(const std::vector<GroupError>& groups, const QString& before, const QString& after) {
  beginResetModel();
  groups_ = sortedByContribution(groups);
  before_ = before;
  after_ = after;
  largest_ = groups_.empty() ? 0 : groups_.front().contribution;
  endResetModel();
}

int GroupTable::rowCount(const QModelIndex& parent) const { return parent.isValid() ? 0 : static_cast<int>(groups_.size()); }

int GroupTable::columnCount(const QModelIndex& parent) const { return parent.isValid() ? 0 : ColumnCount; }

QVariant GroupTable::data(const QModelIndex& index, int role) const {
  if (!checkIndex(index, CheckIndexOption::IndexIsValid)) return {};
  const GroupError& group = groups_[static_cast<std::size_t>(index.row())];
  const auto column = static_cast<Column>(index.column());
  const bool isMessage = group.group.starts_with("SEND_");
  switch (role) {
    case Qt::DisplayRole:
      switch (column) {
        case Group: return groupLabel(group.group);
        case Before: return timeOf(group.predicted);
        case After: return timeOf(group.measured);
        case Difference: return differenceText(group);
        case ColumnCount: break;
      }
      return {};
    case kBarRole:
      if (column != Difference || largest_ == 0 || group.contribution == 0) return 0.0;
      return static_cast<double>(group.measured > group.predicted ? group.contribution : -group.contribution) /
             static_cast<double>(largest_);
    case Qt::TextAlignmentRole:
      return QVariant::fromValue(
          Qt::Alignment(Qt::AlignVCenter | (column == Group || column == Difference ? Qt::AlignLeft : Qt::AlignRight)));
    case Qt::ForegroundRole: return isMessage ? QVariant(currentTheme().faintText) : QVariant();
    case Qt::ToolTipRole:
      if (isMessage) return tr("A measured message ends when its receiver takes it; the delay it causes is counted as waiting.");
      return tr("Summed over the step");
    case Qt::AccessibleTextRole:
      if (column != Difference) return data(index, Qt::DisplayRole);
      if (group.measured == group.predicted) return tr("no difference");
      return (group.measured > group.predicted ? tr("%1 longer") : tr("%1 shorter"))
          .arg(durationText(abs(group.measured - group.predicted)));
    default: return {};
  }
}

QVariant GroupTable::headerData(int section, Qt::Orientation orientation, int role) const {
  if (orientation != Qt::Horizontal || section < 0 || section >= ColumnCount) return {};
  const auto column = static_cast<Column>(section);
  if (role == Qt::TextAlignmentRole)
    return QVariant::fromValue(
        Qt::Alignment(Qt::AlignVCenter | (column == Group || column == Difference ? Qt::AlignLeft : Qt::AlignRight)));
  if (role != Qt::DisplayRole) return {};
  switch (column) {
    case Group: return tr("Group");
    case Before: return before_;
    case After: return after_;
    case Difference: return QChar(0x2002) + tr("Difference");
    case ColumnCount: break;
  }
  return {};
}

void DifferenceDelegate::paint(QPainter* painter, const QStyleOptionViewItem& option, const QModelIndex& index) const {
  QStyleOptionViewItem item = option;
  initStyleOption(&item, index);
  const QString text = std::exchange(item.text, {});
  const QStyle* style = item.widget != nullptr ? item.widget->style() : QApplication::style();
  style->drawControl(QStyle::CE_ItemViewItem, &item, painter, item.widget);  // background, selection and focus
  const Theme& theme = currentTheme();
  const double part = index.data(GroupTable::kBarRole).toDouble();
  const bool selected = (item.state & QStyle::State_Selected) != 0;
  painter->save();
  painter->setRenderHint(QPainter::Antialiasing);
  const QRect textRect(item.rect.left() + 2 * kGap, item.rect.top(), std::min(textWidth(item.fontMetrics), item.rect.width() - 2 * kGap),
                       item.rect.height());
  painter->setPen(item.palette.color(selected ? QPalette::HighlightedText : QPalette::Text));
  painter->drawText(textRect, static_cast<int>(Qt::AlignVCenter | Qt::AlignLeft),
                    item.fontMetrics.elidedText(text, Qt::ElideRight, textRect.width()));
  const QRectF room(textRect.right() + kGap, item.rect.top() + 4, item.rect.right() - textRect.right() - 2 * kGap, item.rect.height() - 8);
  if (room.width() > 2 * kGap) {
    const double middle = room.center().x(), length = std::abs(part) * room.width() / 2;
    const QColor colour = selected ? item.palette.color(QPalette::HighlightedText) : part > 0 ? theme.slower : theme.faster;
    if (length > 0)
      painter->fillRect(QRectF(part > 0 ? middle : middle - length, room.top(), std::max(length, 1.0), room.height()), colour);
    painter->setPen(QPen(selected ? item.palette.color(QPalette::HighlightedText) : theme.faintText, 1));
    painter->drawLine(QPointF(middle, item.rect.top()), QPointF(middle, item.rect.bottom()));
  }
  painter->restore();
}

QSize DifferenceDelegate::sizeHint(const QStyleOptionViewItem& option, const QModelIndex& /*index*/) const {
  return {textWidth(option.fontMetrics) + 12 * option.fontMetrics.averageCharWidth() + 3 * kGap, option.fontMetrics.height() + 8};
}

}  // namespace pw::gui
