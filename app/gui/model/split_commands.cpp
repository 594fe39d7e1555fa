#include "app/gui/model/split_commands.h"

#include <QAction>
#include <QMenu>
#include <algorithm>
#include <utility>

#include "app/gui/model/tree_view.h"
#include "schedules/error.h"
#include "simulator/order/find.h"
#include "simulator/partition/split.h"
#include "simulator/partition/stage_costs.h"
#include "simulator/plan/planner.h"
#include "simulator/search/fitted_splits.h"

namespace pw::gui {

SplitCommands::SplitCommands(Document& document, TreeView& view, QObject* parent) : QObject(parent), document_(document), view_(view) {
  connect(&balancing_, &Job::failed, this, &SplitCommands::refused);
}

void SplitCommands::edit(const QString& what, const StageChange& change) {
  if (!change.refusal.isEmpty()) {
    emit refused(change.refusal);
    return;
  }
  document_.edit(what, [&](Design& design) {
    design.request.begins = change.begins;
    design.request.ranks = change.ranks;
  });
  emit done();
}

int SplitCommands::splitAt(int row) const {
  const CallTree& tree = static_cast<const TreeModel*>(view_.model())->tree();
  const auto& begins = document_.design().request.begins;
  if (row < 0 || row >= tree.size()) return -1;
  const auto at = std::lower_bound(begins.begin(), begins.end(), tree.row(row).firstNode);
  return at != begins.end() && *at == tree.row(row).firstNode ? static_cast<int>(at - begins.begin()) : -1;
}

void SplitCommands::splitBefore(int row) {
  const CallTree& tree = static_cast<const TreeModel*>(view_.model())->tree();
  if (row < 0 || row >= tree.size()) {
    emit refused(tr("First select the row where a stage should begin."));
    return;
  }
  edit(tr("Split"), withSplit(document_.design(), rules_, tree.row(row).firstNode));
}

void SplitCommands::removeBefore(int row) {
  const int split = splitAt(row);
  if (split < 0) {
    emit refused(tr("No stage begins at this row, so there is no split to remove."));
  } else {
    remove(static_cast<std::size_t>(split));
  }
}

void SplitCommands::remove(std::size_t split) { edit(tr("Remove split"), withoutSplit(document_.design(), split)); }

void SplitCommands::step(std::size_t split, int direction) {
  const std::vector<NodeId> begins = document_.design().request.begins;
  if (split >= begins.size()) return;
  const auto to = rules_.next(begins[split], direction);
  const QString refusal = to              ? rules_.refusalToMove(begins, split, *to)
                          : direction < 0 ? tr("No stage can begin above this place.")
                                          : tr("No stage can begin below this place.");
  if (!refusal.isEmpty()) {
    emit refused(refusal);
    return;
  }
  document_.edit(tr("Move split"), [&](Design& design) { design.request.begins[split] = *to; });
  view_.reveal(*to);
  emit done();
}

void SplitCommands::balanceSplits(Balance by) {
  const auto graph = document_.graph();
  const auto profile = document_.profile();
  const auto stages = static_cast<int>(document_.design().request.begins.size()) + 1;
  if (!graph || !profile || stages < 2) {
    emit refused(stages < 2 ? tr("There is only one stage, so there is nothing to balance; split the model first.")
                            : tr("Costs for balancing are not available yet; try again in a moment."));
    return;
  }
  const PlanRequest request = document_.design().request;
  balancing_.start(tr("Balance splits"), [this, graph, profile, request, stages, by](JobControl&) -> std::function<void()> {
    auto begins = balancedFor(request, *graph, *profile, stages, by);
    return [this, graph, begins = std::move(begins)] {
      if (document_.graph() != graph || document_.design().request.begins.size() != begins.size()) return;  // of something else by now
      document_.edit(tr("Balance splits"), [&](Design& design) { design.request.begins = begins; });
      emit done();
    };
  });
}

bool SplitCommands::hasMemoryLimit() const {
  const auto profile = document_.profile();
  const PlanRequest& request = document_.design().request;
  if (!profile) return request.memoryLimit > 0;
  try {
    const auto limits = memoryLimits(request, *profile, static_cast<std::size_t>(request.ranks));
    return std::ranges::any_of(limits, [](Bytes limit) { return limit > 0; });
  } catch (const Error&) {  // more ranks than the cluster lists, which the prediction says
    return false;
  }
}

void SplitCommands::fitSplits() {
  const auto graph = document_.graph();
  const auto profile = document_.profile();
  const auto prediction = document_.prediction();
  const PlanRequest request = document_.design().request;
  if (!graph || !profile || !prediction || request.begins.empty()) {
    emit refused(request.begins.empty() ? tr("There is only one stage, so there is nothing to balance; split the model first.")
                                        : tr("Costs for balancing are not available yet; try again in a moment."));
    return;
  }
  balancing_.start(tr("Fit splits"),
                   [this, graph, profile, request, rows = prediction->rows](JobControl& control) -> std::function<void()> {
                     const auto stages = static_cast<int>(rows->placement.stages());
                     const auto balanced =
                         balancedSplits(*graph, *profile, stages, Balance::Time, stageSpeeds(*profile, rows->placement, request.replicas));
                     const OrderEffort effort{.threads = 1, .shouldContinue = [&control](double) { return !control.isCancelled(); }};
                     auto begins = splitsWithinLimits(request, *graph, profile, *rows, balanced, effort);
                     return [this, graph, request, begins = std::move(begins)] {
                       if (document_.graph() != graph || document_.design().request != request) return;  // of something else by now
                       if (begins == request.begins)
                         return emit refused(tr("No other splits were found that fit the memory limit better."));
                       document_.edit(tr("Fit splits"), [&](Design& design) { design.request.begins = begins; });
                       emit done();
                     };
                   });
}

void SplitCommands::fillMenu(QMenu& menu, int row, int split) {
  const CallTree& tree = static_cast<const TreeModel*>(view_.model())->tree();
  menu.setToolTipsVisible(true);
  if (row >= 0) {
    const StageChange change = withSplit(document_.design(), rules_, tree.row(row).firstNode);
    QAction* here = menu.addAction(tr("Split here") + QStringLiteral("\tS"), this, [this, row] { splitBefore(row); });
    here->setEnabled(change.refusal.isEmpty());
    here->setToolTip(change.refusal.isEmpty() ? tr("A stage begins with this row") : change.refusal);
  }
  const int removable = split >= 0 ? split : splitAt(row);
  QAction* remove = menu.addAction(tr("Remove split") + QStringLiteral("\tDel"), this,
                                   [this, removable] { this->remove(static_cast<std::size_t>(removable)); });
  const QString kept =
      removable < 0 ? tr("No stage begins at this row") : withoutSplit(document_.design(), static_cast<std::size_t>(removable)).refusal;
  remove->setEnabled(kept.isEmpty());
  remove->setToolTip(kept.isEmpty() ? tr("Merges the stages on both sides") : kept);
  if (split >= 0) {
    menu.addAction(tr("Move up") + QStringLiteral("\t↑"), this, [this, split] { step(static_cast<std::size_t>(split), -1); });
    menu.addAction(tr("Move down") + QStringLiteral("\t↓"), this, [this, split] { step(static_cast<std::size_t>(split), 1); });
  }
  QMenu* balancing = menu.addMenu(tr("Balance splits"));
  const std::pair<QString, Balance> ways[] = {{tr("By time"), Balance::Time},
                                              {tr("By memory"), Balance::Memory},
                                              {tr("By parameters"), Balance::Parameters},
                                              {tr("By number of layers"), Balance::Layers}};
  for (const auto& [name, by] : ways) balancing->addAction(name, this, [this, by = by] { balanceSplits(by); });
  QAction* fit = balancing->addAction(tr("By time, within the memory limit"), this, [this] { fitSplits(); });
  fit->setEnabled(hasMemoryLimit());
  fit->setToolTip(fit->isEnabled() ? tr("Moves splits so that every rank fits, and the step stays as short as possible")
                                   : tr("No rank has a memory limit"));
  balancing->setToolTipsVisible(true);
}

}  // namespace pw::gui
