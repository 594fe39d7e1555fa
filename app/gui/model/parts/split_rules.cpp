#include "app/gui/model/parts/split_rules.h"

#include <algorithm>
#include <utility>

#include "app/gui/common/format.h"
#include "app/gui/document/drawn.h"
#include "schedules/error.h"
#include "schedules/generate.h"
#include "simulator/model/graph_facts.h"
#include "simulator/order/find.h"
#include "simulator/partition/split.h"
#include "simulator/plan/planner.h"

namespace pw::gui {
namespace {

bool isBefore(const SplitPoint& point, NodeId node) { return point.begin < node; }

StageChange changed(const Design& design, std::vector<NodeId> begins) {
  const int stages = static_cast<int>(begins.size()) + 1;
  if (design.customRows) {
    return {translated("The schedule comes from a file and has exactly %1 stages; choose a schedule in the plan to change their number.")
                .arg(design.customRows->placement.stages()),
            {},
            0};
  }
  if (const auto drawn = drawnOf(design)) {
    if (stages == static_cast<int>(drawn->placement.stages())) return {{}, std::move(begins), design.request.ranks};
    return {translated("Schedule %1 was drawn for %2 stages; choose another in the plan to change their number.")
                .arg(QString::fromStdString(drawn->name))
                .arg(drawn->placement.stages()),
            {},
            0};
  }
  try {
    const std::string& schedule = design.request.schedule;
    const int chunks = design.request.chunks > 0 ? design.request.chunks : usualChunks(schedule);
    if (stages % chunks != 0) {
      const int fewer = stages / chunks * chunks;
      return {translated(
                  "%1 puts %2 stages on each rank, so there cannot be %3 of them; move a split instead, or change the ranks in the plan to "
                  "get %4 stages.")
                  .arg(QString::fromStdString(schedule))
                  .arg(chunks)
                  .arg(stages)
                  .arg(fewer > 0 ? translated("%1 or %2").arg(fewer).arg(fewer + chunks) : QString::number(chunks)),
              {},
              0};
    }
    const int ranks = stages / chunks;
    if (madeSchedule(schedule) == nullptr) {
      if (const auto refusal = generatorOf(schedule).refusal({ranks, stages, design.request.microbatches}))
        return {QString::fromStdString(*refusal), {}, 0};
    }
    return {{}, std::move(begins), ranks};
  } catch (const Error& e) {
    return {QString::fromUtf8(e.what()), {}, 0};
  }
}

}  // namespace

SplitRules::SplitRules(std::shared_ptr<const ModelGraph> graph, std::vector<SplitPoint> points, std::int64_t microbatch)
    : graph_(std::move(graph)), points_(std::move(points)), microbatch_(microbatch) {}

const SplitPoint* SplitRules::point(NodeId node) const {
  const auto found = std::lower_bound(points_.begin(), points_.end(), node, isBefore);
  return found != points_.end() && found->begin == node ? &*found : nullptr;
}

std::optional<NodeId> SplitRules::next(NodeId from, int direction) const {
  const auto at = std::lower_bound(points_.begin(), points_.end(), from, isBefore);
  if (direction < 0) return at == points_.begin() ? std::nullopt : std::optional(std::prev(at)->begin);
  const auto after = at != points_.end() && at->begin == from ? std::next(at) : at;
  return after == points_.end() ? std::nullopt : std::optional(after->begin);
}

QString SplitRules::name(NodeId node) const {
  const SplitPoint* found = point(node);
  return found != nullptr ? QString::fromStdString(found->name) : translated("node %1").arg(node.value);
}

QString SplitRules::obstacle(NodeId node) const {
  if (!graph_) return translated("There is no model to split.");
  if (point(node) != nullptr) return {};
  const auto known = obstacles_.find(node);
  if (known != obstacles_.end()) return known->second;
  return obstacles_[node] = findObstacle(node);
}

QString SplitRules::findObstacle(NodeId node) const {
  if (node.value <= 0) return translated("The first stage already begins here.");
  if (node.index() >= graph_->nodes.size()) return translated("The model ends here: a stage after it would be empty.");
  for (const KeptTogether& group : keptTogether(*graph_)) {
    if (node <= group.first || node > group.last) continue;
    const Node& changer = graph_->node(group.changer);
    return translated("No split here: %1 (%2) changes %3 in place, and both stages would use it.")
        .arg(QString::fromStdString(operatorName(changer)), QString::fromStdString(changer.sourceLine),
             QString::fromStdString(graph_->value(group.value).name));
  }
  const std::vector<bool> recomputable = recomputableNodes(*graph_);
  if (std::find(recomputable.begin(), recomputable.begin() + node.value, false) == recomputable.begin() + node.value) {
    return translated("No split here: the next stage would recompute all of this, so the stage before would have nothing to do.");
  }
  try {
    static_cast<void>(cutGraph(*graph_, {node}, bindBatch(*graph_, microbatch_), nullptr));
  } catch (const Error& e) {
    return QString::fromUtf8(e.what());
  }
  return translated("No split here: stages begin where a module begins or ends.");
}

QString SplitRules::refusalToMove(const std::vector<NodeId>& begins, std::size_t split, NodeId node) const {
  if (split >= begins.size()) return translated("This split no longer exists.");
  if (node == begins[split]) return {};
  QString reason = obstacle(node);
  if (!reason.isEmpty()) return reason;
  if (split > 0 && node <= begins[split - 1]) return translated("Stage %1 would be empty: the split above is here.").arg(split);
  if (split + 1 < begins.size() && node >= begins[split + 1])
    return translated("Stage %1 would be empty: the split below is here.").arg(split + 1);
  return {};
}

StageChange withSplit(const Design& design, const SplitRules& rules, NodeId node) {
  std::vector<NodeId> begins = design.request.begins;
  const auto at = std::lower_bound(begins.begin(), begins.end(), node);
  if (at != begins.end() && *at == node) return {translated("A stage already begins here."), {}, 0};
  const QString reason = rules.obstacle(node);
  if (!reason.isEmpty()) return {reason, {}, 0};
  begins.insert(at, node);
  return changed(design, std::move(begins));
}

StageChange withoutSplit(const Design& design, std::size_t split) {
  std::vector<NodeId> begins = design.request.begins;
  if (split >= begins.size()) return {translated("There is no such split."), {}, 0};
  begins.erase(begins.begin() + static_cast<std::ptrdiff_t>(split));
  return changed(design, std::move(begins));
}

}  // namespace pw::gui
