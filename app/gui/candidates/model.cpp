#include "app/gui/candidates/model.h"

#include <QColor>
#include <QFont>
#include <algorithm>
#include <utility>

#include "app/gui/common/format.h"
#include "app/gui/common/theme.h"
#include "simulator/plan/excess.h"
#include "simulator/search/ranking.h"
#include "simulator/text/three_digits.h"

namespace pw::gui {
namespace {

bool isNumber(int column) {
  switch (static_cast<CandidatesModel::Column>(column)) {
    case CandidatesModel::Ranks:
    case CandidatesModel::Stages:
    case CandidatesModel::Microbatches:
    case CandidatesModel::Step:
    case CandidatesModel::Samples:
    case CandidatesModel::Bubble:
    case CandidatesModel::Peak: return true;
    case CandidatesModel::Schedule:
    case CandidatesModel::Splits:
    case CandidatesModel::Recompute:
    case CandidatesModel::Fits:
    case CandidatesModel::ColumnCount: return false;
  }
  return false;
}

struct RecomputeText {
  QString operator()(const RecomputeNone&) const { return QStringLiteral("–"); }
  QString operator()(const RecomputeFull&) const { return CandidatesModel::tr("full"); }
  QString operator()(const RecomputeAuto&) const { return CandidatesModel::tr("auto"); }
  QString operator()(const RecomputeModules& modules) const {
    QStringList names;
    for (const std::string& name : modules.names) names << QString::fromStdString(name);
    return names.join(QStringLiteral(", "));
  }
};

QString recomputeOf(const PlanRequest& request) { return std::visit(RecomputeText(), request.recompute); }

QString splitOf(const Candidate& c) {
  const QString balance =
      c.split == SplitSource::Marks ? CandidatesModel::tr("as marked") : CandidatesModel::tr("by %1").arg(textOf(nameOf(c.split)));
  return c.moves == 0 ? balance : CandidatesModel::tr("%1, %2 moved").arg(balance).arg(c.moves);
}

QString headerOf(int column) {
  switch (static_cast<CandidatesModel::Column>(column)) {
    case CandidatesModel::Schedule: return CandidatesModel::tr("Schedule");
    case CandidatesModel::Ranks: return CandidatesModel::tr("Ranks");
    case CandidatesModel::Stages: return CandidatesModel::tr("Stages");
    case CandidatesModel::Microbatches: return CandidatesModel::tr("Microbatches");
    case CandidatesModel::Splits: return CandidatesModel::tr("Splits");
    case CandidatesModel::Recompute: return CandidatesModel::tr("Recompute");
    case CandidatesModel::Step: return CandidatesModel::tr("Step");
    case CandidatesModel::Samples: return CandidatesModel::tr("Samples/s");
    case CandidatesModel::Bubble: return CandidatesModel::tr("Bubble");
    case CandidatesModel::Peak: return CandidatesModel::tr("Peak memory");
    case CandidatesModel::Fits: return CandidatesModel::tr("Fits");
    case CandidatesModel::ColumnCount: break;
  }
  return {};
}

QString hintOf(int column) {
  switch (static_cast<CandidatesModel::Column>(column)) {
    case CandidatesModel::Ranks: return CandidatesModel::tr("Ranks of all replicas: replicas × ranks of a pipeline");
    case CandidatesModel::Microbatches: return CandidatesModel::tr("Number of microbatches × microbatch size [samples]");
    case CandidatesModel::Splits:
      return CandidatesModel::tr("What the splits balance over the stages, and how many splits were then moved to shorten the step");
    case CandidatesModel::Bubble: return CandidatesModel::tr("Idle time of all ranks as a share of the makespan");
    case CandidatesModel::Peak: return CandidatesModel::tr("Most memory of any rank");
    case CandidatesModel::Schedule:
    case CandidatesModel::Stages:
    case CandidatesModel::Recompute:
    case CandidatesModel::Step:
    case CandidatesModel::Samples:
    case CandidatesModel::Fits:
    case CandidatesModel::ColumnCount: break;
  }
  return {};
}

}  // namespace

bool isSamePlan(const PlanRequest& a, const PlanRequest& b) {
  return a.schedule == b.schedule && a.ranks == b.ranks && a.begins == b.begins && a.replicaBegins == b.replicaBegins &&
         a.microbatches == b.microbatches && a.microbatch == b.microbatch && samplesOf(a) == samplesOf(b) && a.replicas == b.replicas &&
         a.recompute == b.recompute && a.rankOrder == b.rankOrder;
}

void takeOver(const PlanRequest& wanted, PlanRequest& r) {
  r.schedule = wanted.schedule;
  r.ranks = wanted.ranks;
  r.chunks = wanted.chunks;
  r.microbatches = wanted.microbatches;
  r.replicas = wanted.replicas;
  r.microbatch = wanted.microbatch;
  r.batch = wanted.batch == wanted.microbatch * wanted.microbatches * wanted.replicas ? 0 : wanted.batch;
  r.begins = wanted.begins;
  r.replicaBegins = wanted.replicaBegins;
  r.recompute = wanted.recompute;
  r.rankOrder = wanted.rankOrder;
  if (std::holds_alternative<RecomputeAuto>(wanted.recompute)) r.memoryLimit = wanted.memoryLimit;
}

Bytes excessUnder(const Candidate& c, Bytes limit) {
  const bool isOfOwnMemory = c.excess != excessOf(c.peak, c.request.memoryLimit);
  return std::max(isOfOwnMemory ? c.excess : 0, excessOf(c.peak, limit));
}

QString whyNot(const Candidate& c, Bytes limit) {
  const Bytes excess = excessUnder(c, limit);
  if (excess == 0) return {};
  if (excess != excessOf(c.peak, limit)) return CandidatesModel::tr("One rank needs %1 more than its own memory.").arg(sizeText(excess));
  return CandidatesModel::tr("Needs %1 on one rank, %2 more than the limit of %3.")
      .arg(sizeText(c.peak), sizeText(excess), sizeText(limit));
}

QString titleOf(const Candidate& c) {
  const QString name = QString::fromStdString(c.request.schedule);
  const QString title =
      c.request.microbatches == 1
          ? CandidatesModel::tr("%1, 1 microbatch of %2").arg(name).arg(c.request.microbatch)
          : CandidatesModel::tr("%1, %2 microbatches of %3").arg(name).arg(c.request.microbatches).arg(c.request.microbatch);
  return std::holds_alternative<RecomputeNone>(c.request.recompute)
             ? title
             : CandidatesModel::tr("%1, recompute %2").arg(title, recomputeOf(c.request));
}

void CandidatesModel::mark() {
  markFront(candidates_);
  markLeads(candidates_);
  most_ = 0;
  for (const Candidate& c : candidates_) most_ = std::max({most_, c.peak, c.request.memoryLimit});
}

void CandidatesModel::append(const std::vector<Candidate>& more) {
  if (more.empty()) return;
  const int first = rowCount();
  beginInsertRows({}, first, first + static_cast<int>(more.size()) - 1);
  candidates_.insert(candidates_.end(), more.begin(), more.end());
  mark();
  endInsertRows();
  if (first > 0) emit dataChanged(index(0, 0), index(first - 1, ColumnCount - 1));
}

void CandidatesModel::set(std::vector<Candidate> all) {
  beginResetModel();
  candidates_ = std::move(all);
  mark();
  endResetModel();
}

void CandidatesModel::setCurrent(const std::optional<PlanRequest>& request) {
  if (current_ == request) return;
  current_ = request;
  if (rowCount() > 0)
    emit dataChanged(index(0, 0), index(rowCount() - 1, ColumnCount - 1), {Qt::FontRole, Qt::ToolTipRole, Qt::AccessibleTextRole});
}

void CandidatesModel::setUncertainty(const std::optional<Uncertainty>& uncertainty) {
  uncertainty_ = uncertainty;
  if (rowCount() > 0) emit dataChanged(index(0, 0), index(rowCount() - 1, ColumnCount - 1));
}

bool CandidatesModel::isLikeBest(int row) const {
  return uncertainty_ && areIndistinguishable(*uncertainty_, candidates_.front(), at(row));
}

QString CandidatesModel::certainty() const {
  if (!uncertainty_ || candidates_.empty()) return {};
  int alike = 0;
  for (int row = 0; row < rowCount(); ++row) alike += isLikeBest(row) ? 1 : 0;
  const QString bar = QString::fromStdString(formatErrorBar(*uncertainty_));
  if (alike == 1) return tr("Steps %1: the first plan is the fastest.").arg(bar);
  const QString plans = alike == 2 ? tr("1 plan") : tr("%1 plans").arg(alike - 1);
  return tr("Steps %1: %2 cannot be told apart from the best, marked ≈.").arg(bar, plans);
}

bool CandidatesModel::setLimit(std::optional<Bytes> limit) {
  if (std::exchange(limit_, limit) == limit) return false;
  if (rowCount() > 0) emit dataChanged(index(0, 0), index(rowCount() - 1, ColumnCount - 1));
  return true;
}

bool CandidatesModel::isCurrent(int row) const { return current_ && isSamePlan(*current_, at(row).request); }

int CandidatesModel::rowOf(const PlanRequest& request) const {
  const auto found = std::ranges::find(candidates_, request, &Candidate::request);
  return found == candidates_.end() ? -1 : static_cast<int>(found - candidates_.begin());
}

int CandidatesModel::rowCount(const QModelIndex& parent) const { return parent.isValid() ? 0 : static_cast<int>(candidates_.size()); }

int CandidatesModel::columnCount(const QModelIndex& parent) const { return parent.isValid() ? 0 : ColumnCount; }

QString CandidatesModel::textOf(int row, int column) const {
  const Candidate& c = at(row);
  switch (static_cast<Column>(column)) {
    case Schedule:
      return c.certificate ? tr("%1, %2").arg(QString::fromStdString(c.request.schedule), QString::fromStdString(gapText(*c.certificate)))
                           : QString::fromStdString(c.request.schedule);
    case Ranks:
      return c.request.replicas == 1 ? QString::number(c.request.ranks)
                                     : QStringLiteral("%1 × %2").arg(c.request.replicas).arg(c.request.ranks);
    case Stages: return QString::number(c.stages);
    case Microbatches: return QStringLiteral("%1 × %2").arg(c.request.microbatches).arg(c.request.microbatch);
    case Splits: return splitOf(c);
    case Recompute: return recomputeOf(c.request);
    case Step:
      return uncertainty_ ? tr("%1 ± %2").arg(durationText(c.step), durationText(errorBar(*uncertainty_, c.step))) : durationText(c.step);
    case Samples:
      return c.samplesPerSecond < 1'000 ? QString::fromStdString(threeDigits(c.samplesPerSecond)) : countText(c.samplesPerSecond);
    case Bubble: return percentText(c.bubbleFraction);
    case Peak: return c.peak > 0 ? sizeText(c.peak) : QStringLiteral("–");
    case Fits:
      if (!fits(row)) return tr("no, + %1").arg(sizeText(excessUnder(c, limitOf(row))));
      return limitOf(row) == 0 ? QStringLiteral("–") : tr("yes");
    case ColumnCount: break;
  }
  return {};
}

QVariant CandidatesModel::keyOf(int row, int column) const {
  const Candidate& c = at(row);
  switch (static_cast<Column>(column)) {
    case Schedule:
    case Splits:
    case Recompute: return textOf(row, column);
    case Ranks: return c.request.ranks * c.request.replicas;
    case Stages: return c.stages;
    case Microbatches: return c.request.microbatches;
    case Step: return static_cast<qlonglong>(c.step);
    case Samples: return c.samplesPerSecond;
    case Bubble: return c.bubbleFraction;
    case Peak:
    case Fits: return static_cast<qlonglong>(c.peak);
    case ColumnCount: break;
  }
  return {};
}

QVariant CandidatesModel::data(const QModelIndex& index, int role) const {
  if (!checkIndex(index, CheckIndexOption::IndexIsValid)) return {};
  const Candidate& c = at(index.row());
  const int column = index.column();
  switch (role) {
    case Qt::DisplayRole:
      return (column == Step && index.row() > 0 && isLikeBest(index.row()) ? tr("≈ ") : QString()) + textOf(index.row(), column);
    case Qt::AccessibleTextRole: {
      QString text = textOf(index.row(), column);
      if (column == Schedule && c.onFront) text = tr("%1, on the Pareto front").arg(text);
      if (column == Step && index.row() > 0 && isLikeBest(index.row())) text = tr("%1, not to be told apart from the best").arg(text);
      if (column == Schedule && isCurrent(index.row())) text = tr("%1, the current plan").arg(text);
      return text;
    }
    case Qt::TextAlignmentRole: return QVariant(Qt::AlignVCenter | (isNumber(column) ? Qt::AlignRight : Qt::AlignLeft));
    case Qt::ForegroundRole: return fits(index.row()) ? QVariant() : QVariant(currentTheme().faintText);
    case Qt::FontRole: {
      QFont font;
      font.setBold(isCurrent(index.row()));
      return font.bold() ? QVariant(font) : QVariant();
    }
    case Qt::ToolTipRole: {
      QStringList lines{titleOf(c)};
      if (isCurrent(index.row())) lines << tr("The current plan.");
      if (uncertainty_) lines << QString::fromStdString(formatPrediction(c.step, uncertainty_));
      if (index.row() > 0 && isLikeBest(index.row())) lines << tr("Not to be told apart from the best plan: their error bars overlap.");
      if (c.onFront) lines << tr("On the Pareto front: no plan found is as fast with less memory.");
      if (c.certificate)
        lines
            << tr("Found by %1; %2").arg(QString::fromStdString(c.certificate->foundBy), QString::fromStdString(toString(*c.certificate)));
      if (c.scaled) lines << tr("From costs measured at another microbatch size.");
      if (!fits(index.row())) lines << whyNot(c, limitOf(index.row()));
      return lines.join(QLatin1Char('\n'));
    }
    case SortRole: return keyOf(index.row(), column);
    case FrontRole: return c.onFront;
    case LeadsRole: return c.leads;
    case ShareRole: return most_ > 0 ? static_cast<double>(c.peak) / static_cast<double>(most_) : 0.0;
    default: return {};
  }
}

QVariant CandidatesModel::headerData(int section, Qt::Orientation orientation, int role) const {
  if (orientation != Qt::Horizontal || section < 0 || section >= ColumnCount) return {};
  if (role == Qt::DisplayRole) return headerOf(section);
  if (role == Qt::ToolTipRole) return hintOf(section);
  if (role == Qt::TextAlignmentRole) return QVariant(Qt::AlignVCenter | (isNumber(section) ? Qt::AlignRight : Qt::AlignLeft));
  return {};
}

CandidatesFilter::CandidatesFilter(QObject* parent) : QSortFilterProxyModel(parent) {
  setSortRole(CandidatesModel::SortRole);
  setDynamicSortFilter(true);
}

void CandidatesFilter::setShowsAll(bool all) {
  all_ = all;
  invalidateFilter();
}

void CandidatesFilter::setOnlyFitting(bool only) {
  onlyFitting_ = only;
  invalidateFilter();
}

bool CandidatesFilter::filterAcceptsRow(int row, const QModelIndex& parent) const {
  const QModelIndex index = sourceModel()->index(row, 0, parent);
  if (onlyFitting_ && !static_cast<const CandidatesModel*>(sourceModel())->fits(row)) return false;
  return all_ || index.data(CandidatesModel::FrontRole).toBool() || index.data(CandidatesModel::LeadsRole).toBool();
}

bool CandidatesFilter::lessThan(const QModelIndex& left, const QModelIndex& right) const {
  const QVariant a = left.data(sortRole()), b = right.data(sortRole());
  const QPartialOrdering order = QVariant::compare(a, b);
  if (order == QPartialOrdering::Less) return true;
  if (order == QPartialOrdering::Greater) return false;
  return sortOrder() == Qt::AscendingOrder ? left.row() < right.row()
                                           : left.row() > right.row();  // equal ones stay in the order of the search
}

}  // namespace pw::gui
