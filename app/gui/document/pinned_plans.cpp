#include "app/gui/document/pinned_plans.h"

#include <algorithm>
#include <utility>

#include "app/gui/common/format.h"
#include "app/gui/document/drawn.h"
#include "simulator/text/counted.h"
#include "simulator/timeline/fill.h"

namespace pw::gui {
namespace {

std::shared_ptr<const Measured> stepOf(const Prediction& prediction, std::int64_t samples, const QString& name) {
  const Shape shape = shapeOf(*prediction.rows);
  const QString title = QStringLiteral("%1: %2, %3, %4, %5")
                            .arg(name, QString::fromStdString(prediction.rows->name), QString::fromStdString(counted(shape.ranks, "rank")),
                                 QString::fromStdString(counted(shape.microbatches, "microbatch")), durationText(prediction.step));
  return pinnedStep(name, title, traceOf(prediction), cutOf(prediction.priced.partition, prediction.priced.cuts), samples);
}

}  // namespace

std::shared_ptr<const Measured> pinnedStep(const QString& name, const QString& title, Trace trace, std::optional<ModelCut> cut,
                                           std::int64_t samples) {
  auto step = std::make_shared<Measured>();
  step->title = title;
  step->pinnedAs = name;
  step->timeline = timelineOf(trace);
  step->trace = std::move(trace);
  step->cut = std::move(cut);
  step->samples = samples;
  return step;
}

PinnedPlans::PinnedPlans(Document& document, QObject* parent) : QObject(parent), document_(document) {
  connect(&document, &Document::modelChanged, this, [this] {
    if (document_.graph() == graph_ && document_.design().customCosts == costs_ && (graph_ || costs_)) return;
    graph_ = document_.graph();
    costs_ = document_.design().customCosts;
    if (plans_.empty() && !unpinned_) return;
    plans_.clear();
    unpinned_.reset();
    emit changed();
  });
  connect(&document, &Document::measuredChanged, this, &PinnedPlans::changed);
}

const PinnedPlan* PinnedPlans::compared() const {
  const auto found = std::ranges::find(plans_, document_.measured(), &PinnedPlan::step);
  return found == plans_.end() ? nullptr : &*found;
}

void PinnedPlans::pin() {
  const auto prediction = document_.prediction();
  if (!prediction || document_.isPredicting() || !document_.problem().isEmpty())
    return emit refused(tr("There is no prediction of this plan to pin; wait for it, or change the plan so that it can be predicted."));
  if (plans_.size() >= kMost) return emit refused(tr("%1 plans are pinned; unpin one first.").arg(kMost));
  graph_ = document_.graph();
  costs_ = document_.design().customCosts;
  const QString name = freeName();
  plans_.push_back({name, document_.design(), stepOf(*prediction, samplesOf(document_.predicted()), name)});
  std::ranges::sort(plans_, {}, &PinnedPlan::name);
  document_.markUnsaved();  // projects keep what is pinned
  emit changed();
}

QString PinnedPlans::freeName() const {
  QString name = QStringLiteral("A");
  while (std::ranges::find(plans_, name, &PinnedPlan::name) != plans_.end()) name[0] = QChar(name[0].unicode() + 1);
  return name;
}

void PinnedPlans::pinAgain() {
  if (!unpinned_) return;
  if (plans_.size() >= kMost) return emit refused(tr("%1 plans are pinned; unpin one first.").arg(kMost));
  PinnedPlan plan = *std::exchange(unpinned_, std::nullopt);
  if (std::ranges::find(plans_, plan.name, &PinnedPlan::name) != plans_.end()) {
    auto step = std::make_shared<Measured>(*plan.step);
    plan.name = step->pinnedAs = freeName();
    plan.step = std::move(step);
  }
  plans_.push_back(std::move(plan));
  std::ranges::sort(plans_, {}, &PinnedPlan::name);
  document_.markUnsaved();  // projects keep what is pinned
  emit changed();
}

void PinnedPlans::restore(std::vector<PinnedPlan> plans) {
  plans_ = std::move(plans);
  unpinned_.reset();
  graph_ = document_.graph();
  costs_ = document_.design().customCosts;
  std::ranges::sort(plans_, {}, &PinnedPlan::name);
  emit changed();
}

void PinnedPlans::unpin(std::size_t index) {
  if (index >= plans_.size()) return;
  const bool isShown = compared() == &plans_[index];
  unpinned_ = std::move(plans_[index]);
  plans_.erase(plans_.begin() + static_cast<std::ptrdiff_t>(index));
  document_.markUnsaved();  // projects keep what is pinned
  if (isShown)
    document_.setMeasured(nullptr);
  else
    emit changed();
}

void PinnedPlans::compareWith(std::size_t index) {
  if (index < plans_.size()) document_.setMeasured(plans_[index].step);
}

void PinnedPlans::compareWithNone() {
  if (compared() != nullptr) document_.setMeasured(nullptr);
}

void PinnedPlans::goBackTo(std::size_t index) {
  if (index >= plans_.size()) return;
  document_.edit(tr("Go back to plan %1").arg(plans_[index].name), [&](Design& design) {
    const Design now = std::exchange(design, plans_[index].design);
    keepOwn(design, now);
  });
}

void PinnedPlans::compare(std::size_t first, std::size_t second) {
  if (first >= plans_.size() || second >= plans_.size()) return;
  goBackTo(first);
  compareWith(second);
}

}  // namespace pw::gui
