#include "app/gui/runs/run_list.h"

#include <QColor>
#include <QFontMetrics>
#include <QGuiApplication>
#include <QSize>
#include <algorithm>
#include <iterator>
#include <utility>

#include "app/gui/common/format.h"
#include "app/gui/common/theme.h"
#include "app/gui/document/run_name.h"

namespace pw::gui {
namespace {

bool isComparable(const RunSummary& run) { return run.predictedStep > 0 && run.medianMeasuredStep > 0; }

double errorOf(const RunSummary& run) {
  return static_cast<double>(run.medianMeasuredStep - run.predictedStep) / static_cast<double>(run.predictedStep);
}

/// The facts that have a column here.
std::vector<RunColumn> shownFacts() {
  std::vector<RunColumn> shown;
  std::ranges::copy_if(kRunColumns, std::back_inserter(shown), [](const RunColumn& column) { return !column.title.empty(); });
  return shown;
}

bool isNumber(int column) {
  switch (static_cast<RunList::Column>(column)) {
    case RunList::Id:
    case RunList::Ranks:
    case RunList::Microbatches:
    case RunList::Predicted:
    case RunList::Measured:
    case RunList::Error: return true;
    case RunList::When:
    case RunList::Model:
    case RunList::Schedule:
    case RunList::Backend:
    case RunList::Ended:
    case RunList::ColumnCount: return false;
  }
  return false;
}

/// Left-aligned text after a column of right-aligned numbers needs some room.
QString inset(const QString& text) { return QChar(0x2002) + text; }

QString textOf(const RunSummary& run, int column) {
  const QString nothing = QStringLiteral("–");
  if (column >= RunList::ColumnCount) {
    const QString text =
        QString::fromStdString(textOf(shownFacts().at(static_cast<std::size_t>(column - RunList::ColumnCount)), run.facts));
    return inset(text.isEmpty() ? nothing : text);
  }
  switch (static_cast<RunList::Column>(column)) {
    case RunList::Id: return QString::number(run.id.value);
    case RunList::When: return inset(whenOf(run.startedAt));
    case RunList::Model: return QString::fromStdString(run.model);
    case RunList::Schedule: return QString::fromStdString(run.schedule);
    case RunList::Ranks: return QString::number(run.ranks);
    case RunList::Microbatches: return QString::number(run.microbatches);
    case RunList::Backend: return inset(QString::fromStdString(howComputed(run)));
    case RunList::Predicted: return run.predictedStep > 0 ? durationText(run.predictedStep) : nothing;
    case RunList::Measured:
      if (run.medianMeasuredStep <= 0) return nothing;
      return run.facts.synthetic ? RunList::tr("%1 rehearsed").arg(durationText(run.medianMeasuredStep))
                                 : durationText(run.medianMeasuredStep);
    case RunList::Error:
      return isComparable(run) ? (errorOf(run) > 0 ? QStringLiteral("▲ ") : QStringLiteral("▼ ")) + signedPercentText(errorOf(run))
                               : nothing;
    case RunList::Ended:
      switch (run.state) {
        case RunState::Completed:
          return inset(run.steps == 1 ? RunList::tr("completed, 1 step") : RunList::tr("completed, %1 steps").arg(run.steps));
        case RunState::Unfinished:
          return inset(run.steps == 1 ? RunList::tr("unfinished, 1 step") : RunList::tr("unfinished, %1 steps").arg(run.steps));
        case RunState::Failed: break;
      }
      return inset(QStringLiteral("✕ ") + QString::fromStdString(run.failure));
    case RunList::ColumnCount: break;
  }
  return {};
}

}  // namespace

void RunList::setRuns(std::vector<RunSummary> runs) {
  if (runs == runs_) return;  // what is selected stays
  beginResetModel();
  runs_ = std::move(runs);
  endResetModel();
}

int RunList::rowOf(RunId id) const {
  for (int row = 0; row < rowCount(); ++row) {
    if (at(row).id == id) return row;
  }
  return -1;
}

int RunList::rowCount(const QModelIndex& parent) const { return parent.isValid() ? 0 : static_cast<int>(runs_.size()); }

int RunList::columnCount(const QModelIndex& parent) const {
  return parent.isValid() ? 0 : ColumnCount + static_cast<int>(shownFacts().size());
}

QVariant RunList::data(const QModelIndex& index, int role) const {
  if (!checkIndex(index, CheckIndexOption::IndexIsValid)) return {};
  const RunSummary& run = at(index.row());
  const int column = index.column();
  switch (role) {
    case Qt::DisplayRole: return textOf(run, column);
    case Qt::TextAlignmentRole:
      return QVariant::fromValue(Qt::Alignment(Qt::AlignVCenter | (isNumber(column) ? Qt::AlignRight : Qt::AlignLeft)));
    case Qt::ForegroundRole:
      if (!run.failure.empty()) return column == Ended && run.state == RunState::Failed ? currentTheme().error : currentTheme().faintText;
      return {};
    case Qt::ToolTipRole:
      if (column == When) return QString::fromStdString(run.startedAt);
      if (column == Ended && !run.failure.empty()) return QString::fromStdString(run.failure);
      if (column == Measured && run.facts.synthetic)
        return tr(
            "Duration of the median step, which --synthetic rehearsed: its stages took as long as the plan says and computed nothing");
      if (column == Measured) return tr("Duration of the median step, without the first, which warms up");
      return {};
    case Qt::AccessibleTextRole:
      if (column == Error && isComparable(run))
        return errorOf(run) > 0 ? tr("%1 slower than predicted").arg(percentText(errorOf(run)))
                                : tr("%1 faster than predicted").arg(percentText(-errorOf(run)));
      return textOf(run, column).trimmed();
    case Qt::SizeHintRole: {
      const QFontMetrics metrics(QGuiApplication::font());
      return QSize(metrics.horizontalAdvance(textOf(run, column)) + 12, metrics.height() + 8);
    }
    default: return {};
  }
}

QVariant RunList::headerData(int section, Qt::Orientation orientation, int role) const {
  if (orientation != Qt::Horizontal || section < 0 || section >= columnCount()) return {};
  if (role == Qt::TextAlignmentRole)
    return QVariant::fromValue(Qt::Alignment(Qt::AlignVCenter | (isNumber(section) ? Qt::AlignRight : Qt::AlignLeft)));
  if (role == Qt::ToolTipRole) {
    if (section == Backend) return tr("How ranks exchanged messages, and the precision if it was not as traced");
    if (section == Predicted) return tr("Duration of a step as predicted");
    if (section == Error) return tr("How much longer (▲) or shorter (▼) a step was than predicted");
    return {};
  }
  if (role != Qt::DisplayRole) return {};
  if (section >= ColumnCount) {
    QString title = QString::fromUtf8(shownFacts().at(static_cast<std::size_t>(section - ColumnCount)).title);
    title[0] = title[0].toUpper();
    return inset(title);
  }
  switch (static_cast<Column>(section)) {
    case Id: return tr("Run");
    case When: return inset(tr("Started"));
    case Model: return tr("Model");
    case Schedule: return tr("Schedule");
    case Ranks: return tr("Ranks");
    case Microbatches: return tr("Microbatches");
    case Backend: return inset(tr("Backend"));
    case Predicted: return tr("Predicted");
    case Measured: return tr("Measured");
    case Error: return tr("Error");
    case Ended: return inset(tr("Ended"));
    case ColumnCount: break;
  }
  return {};
}

}  // namespace pw::gui
