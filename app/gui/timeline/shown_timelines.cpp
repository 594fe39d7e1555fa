#include "app/gui/timeline/shown_timelines.h"

#include <algorithm>
#include <utility>

#include "app/gui/document/copies.h"
#include "app/gui/document/execution.h"
#include "app/gui/document/same_splits.h"
#include "app/gui/document/times.h"

namespace pw::gui {
namespace {

constexpr int kSettleMs = 120;               ///< after the last prediction of a drag
constexpr std::size_t kManySpans = 200'000;  ///< above this size, non-urgent work waits for `settled` even without a drag

std::size_t spansIn(const Timeline* timeline) {
  std::size_t spans = 0;
  if (timeline == nullptr) return spans;
  for (const auto& rank : timeline->ranks) spans += rank.compute.size() + rank.communication.size();
  return spans;
}

/// Whether every track has as many spans: then an index still means the same action.
bool sameShape(const Timeline* a, const Timeline* b) {
  if (a == nullptr || b == nullptr) return a == b;
  const auto same = [](const auto& x, const auto& y) {
    return x.compute.size() == y.compute.size() && x.communication.size() == y.communication.size();
  };
  return a->stages == b->stages && std::equal(a->ranks.begin(), a->ranks.end(), b->ranks.begin(), b->ranks.end(), same);
}

}  // namespace

ShownTimelines::ShownTimelines(const Document& document, Scene& scene) : document_(document), scene_(scene) {
  settling_.setSingleShot(true);
  settling_.setInterval(kSettleMs);
  connect(&settling_, &QTimer::timeout, this, &ShownTimelines::settled);
  connect(&document, &Document::modelChanged, this, [this] {
    if (!document_.prediction() || document_.graph() != graph_) newModel_ = true;  // other split points alone do not make a new model
    graph_ = document_.graph();
  });
}

ShownTimelines::Change ShownTimelines::takePrediction() {
  const auto next = document_.prediction();
  const bool keepsLast = !next && !newModel_ && (!document_.problem().isEmpty() || document_.isPredicting());
  if (keepsLast || next == prediction_) return {};
  const Timeline* made = next ? &next->timeline : nullptr;
  Change change{true, false, newModel_ || !sameShape(scene_.predicted.get(), made)};
  if (next) change.isOtherModel = std::exchange(newModel_, false);
  scene_.predicted = next ? std::shared_ptr<const Timeline>(next, made) : nullptr;
  prediction_ = next;
  compareStages();
  measureSize();
  return change;
}

ShownTimelines::Change ShownTimelines::takeMeasured() {
  const auto next = document_.measured();
  if (next == measured_ && (next != nullptr) == (scene_.measured != nullptr)) return {};
  const bool same = next && sameShape(scene_.measured.get(), &next->timeline);
  measured_ = next;
  ownRanks_ = next ? next->timeline.ranks.size() / std::max<std::size_t>(1, copiesIn(next->timeline)) : 0;
  const bool isPlan = next && !next->pinnedAs.isEmpty();
  scene_.predictedName = isPlan ? tr("this plan") : tr("predicted");
  scene_.measuredName = next ? nameOfTimes(*next) : tr("measured");
  if (next && next->live && rehearses(document_)) scene_.measuredName = tr("rehearsed");
  scene_.measured = next ? std::shared_ptr<const Timeline>(next, &next->timeline) : nullptr;
  const bool isOneOfMany = next && next->isReplayed && !next->stepName.empty();  // not the usual one
  if (isOneOfMany) scene_.measuredName = tr("%1, replayed").arg(QString::fromStdString(next->stepName));
  compareStages();
  measureSize();
  return {true, false, !same && !scene_.predicted};
}

std::shared_ptr<const Prediction> ShownTimelines::before() const {
  const auto before = document_.before(), now = document_.prediction();
  if (!before || !now || before == now || !scene_.predicted) return nullptr;
  if (isMoving()) return before;
  const bool isAlike = before->timeline.ranks.size() == now->timeline.ranks.size();
  return isAlike && !scene_.measured && !isLarge_ && !isChangeDismissed() && document_.problem().isEmpty() ? before : nullptr;
}

std::size_t ShownTimelines::pipelineRanks() const {
  const std::size_t predicted = scene_.predicted ? scene_.predicted->ranks.size() : 0;
  if (!measured_) return predicted;
  std::size_t own = ownRanks_;
  if (!measured_->pinnedAs.isEmpty()) own = measured_->timeline.ranks.size();
  if (measured_->run) own = measured_->run->plan.schedule.rows.size();
  if (own == 0 || predicted == 0) return std::max(own, predicted);
  return own == predicted ? own : 0;
}

void ShownTimelines::settleLater() { settling_.start(); }

void ShownTimelines::compareStages() {
  scene_.comparesTimes = !prediction_ || !measured_ || splitsOf(*prediction_, *measured_, document_.design()) == Splits::Same;
}

void ShownTimelines::measureSize() { isLarge_ = spansIn(scene_.predicted.get()) + spansIn(scene_.measured.get()) > kManySpans; }

}  // namespace pw::gui
