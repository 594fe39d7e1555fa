#pragma once

#include <QAbstractTableModel>
#include <QSortFilterProxyModel>
#include <optional>
#include <vector>

#include "simulator/costs/uncertainty.h"
#include "simulator/search/search.h"

namespace pw::gui {

/// By how much a rank of the plan needs more than it has, where the memory limit of all is another one than when it was searched; a rank's
/// own limit stays.
[[nodiscard]] Bytes excessUnder(const Candidate& candidate, Bytes limit);

/// The plans found as a table, in the order of Found or sorted. Additional roles: the sort key, and what the delegates draw.
class CandidatesModel : public QAbstractTableModel {
  Q_OBJECT
 public:
  enum Column : int { Schedule, Ranks, Stages, Microbatches, Recompute, Step, Samples, Bubble, Peak, Fits, Splits, ColumnCount };
  enum Role : int { SortRole = Qt::UserRole, FrontRole, LeadsRole, ShareRole };  ///< ShareRole: peak memory as a share of the largest shown

  explicit CandidatesModel(QObject* parent = nullptr) : QAbstractTableModel(parent) {}

  /// Adds a candidate, which may change the marks of the others.
  void append(const std::vector<Candidate>& more);
  /// The end result, or nothing.
  void set(std::vector<Candidate> all);
  /// How far off the steps' predictions are; nothing: not known.
  void setUncertainty(const std::optional<Uncertainty>& uncertainty);
  /// Whether the first plan's step and this one's cannot be told apart, as their error bars overlap; the first plan itself is.
  [[nodiscard]] bool isLikeBest(int row) const;
  /// `Steps ± 3.2 % (4 past runs): the first 2 plans cannot be told apart.`; empty where nothing is known.
  [[nodiscard]] QString certainty() const;
  /// Marks the document's current plan.
  void setCurrent(const std::optional<PlanRequest>& request);
  /// Plans are shown as they fit this memory of a rank, not that of the search; 0: as much as it needs. Nothing: that of the search.
  /// Returns whether that is another limit than before.
  bool setLimit(std::optional<Bytes> limit);
  [[nodiscard]] Bytes limitOf(int row) const { return limit_.value_or(at(row).request.memoryLimit); }
  [[nodiscard]] bool fits(int row) const { return excessUnder(at(row), limitOf(row)) == 0; }
  [[nodiscard]] const std::vector<Candidate>& all() const { return candidates_; }
  [[nodiscard]] const Candidate& at(int row) const { return candidates_[static_cast<std::size_t>(row)]; }
  [[nodiscard]] bool isCurrent(int row) const;
  /// The row of an equal request; −1: none.
  [[nodiscard]] int rowOf(const PlanRequest& request) const;

  [[nodiscard]] int rowCount(const QModelIndex& parent = {}) const override;
  [[nodiscard]] int columnCount(const QModelIndex& parent = {}) const override;
  [[nodiscard]] QVariant data(const QModelIndex& index, int role) const override;
  [[nodiscard]] QVariant headerData(int section, Qt::Orientation orientation, int role) const override;

 private:
  [[nodiscard]] QString textOf(int row, int column) const;
  [[nodiscard]] QVariant keyOf(int row, int column) const;
  void mark();

  std::vector<Candidate> candidates_;
  std::optional<PlanRequest> current_;
  std::optional<Uncertainty> uncertainty_;
  std::optional<Bytes> limit_;
  Bytes most_ = 0;
};

/// Sorts by value, and of plans that differ only in their splits shows the best, unless all are requested. The Pareto front is always
/// shown.
class CandidatesFilter : public QSortFilterProxyModel {
  Q_OBJECT
 public:
  explicit CandidatesFilter(QObject* parent = nullptr);
  void setShowsAll(bool all);
  void setOnlyFitting(bool only);

 protected:
  [[nodiscard]] bool filterAcceptsRow(int row, const QModelIndex& parent) const override;
  [[nodiscard]] bool lessThan(const QModelIndex& left, const QModelIndex& right) const override;

 private:
  bool all_ = false, onlyFitting_ = false;
};

/// Whether both lead to the same plan: everything that a candidate decides is equal.
[[nodiscard]] bool isSamePlan(const PlanRequest& a, const PlanRequest& b);

/// Sets a request to the plan that was found; what a search does not decide is unchanged.
void takeOver(const PlanRequest& found, PlanRequest& request);

/// Why a plan does not fit this memory limit, in a sentence; empty when it does.
[[nodiscard]] QString whyNot(const Candidate& candidate, Bytes limit);
/// `zbv, 8 microbatches of 4, recompute full`.
[[nodiscard]] QString titleOf(const Candidate& candidate);

}  // namespace pw::gui
