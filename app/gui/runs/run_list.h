#pragma once

#include <QAbstractTableModel>
#include <vector>

#include "backends/store/run_store.h"

namespace pw::gui {

/// Runs of a store as a table, newest first. After its own columns come those of facts that lists show (`kRunColumns`).
class RunList : public QAbstractTableModel {
  Q_OBJECT
 public:
  enum Column : int { Id, When, Model, Schedule, Ranks, Microbatches, Backend, Predicted, Measured, Error, Ended, ColumnCount };

  explicit RunList(QObject* parent = nullptr) : QAbstractTableModel(parent) {}

  /// `runs`: as the store lists them, oldest first.
  void setRuns(std::vector<RunSummary> runs);
  [[nodiscard]] const std::vector<RunSummary>& runs() const { return runs_; }  ///< oldest first
  [[nodiscard]] const RunSummary& at(int row) const { return runs_[runs_.size() - 1 - static_cast<std::size_t>(row)]; }
  [[nodiscard]] int rowOf(RunId id) const;  ///< −1: not there

  [[nodiscard]] int rowCount(const QModelIndex& parent = {}) const override;
  [[nodiscard]] int columnCount(const QModelIndex& parent = {}) const override;
  [[nodiscard]] QVariant data(const QModelIndex& index, int role) const override;
  [[nodiscard]] QVariant headerData(int section, Qt::Orientation orientation, int role) const override;

 private:
  std::vector<RunSummary> runs_;
};

}  // namespace pw::gui
