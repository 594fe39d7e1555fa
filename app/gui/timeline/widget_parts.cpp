#include "app/gui/timeline/widget_parts.h"

#include <QAccessible>
#include <algorithm>
#include <utility>

#include "app/gui/timeline/cell_times.h"
#include "app/gui/timeline/overview/groups.h"
#include "app/gui/timeline/selection_details.h"

namespace pw::gui {

// ---- What it shows when the timelines, or what is selected in them, are others --------------------------------------

void TimelineWidget::Private::takeLimits() {
  std::vector<Bytes> limits = document.rankLimits();
  if (limits == scene.memoryLimits) return;
  scene.memoryLimits = std::move(limits);
  canvas->update();
}

void TimelineWidget::Private::takePrediction() {
  progress.noteAnswer();
  takeLimits();
  const auto change = shown.takePrediction();
  if (!change.isAny) return canvas->update();
  if (change.isOtherModel) selection.forget();
  knowledge.forget(Source::Predicted);
  paintedNewest = !scene.predicted;
  takeTimelines(change.isOtherShape);
}

void TimelineWidget::Private::takeMeasured() {
  const auto change = shown.takeMeasured();
  if (!change.isAny) return;
  knowledge.forget(Source::Measured);
  takeTimelines(change.isOtherShape);
}

void TimelineWidget::Private::restore(const SavedView& view) {
  selection.clear();
  selection.restore(view.selection);
  place.restore(view);  // after it: a selection moves the view
}

void TimelineWidget::Private::takeTimelines(bool isOtherShape) {
  selection.keep(!isOtherShape);
  if (isOtherShape) finder.forget();
  const auto before = shown.before();
  place.showUpTo(before ? before->timeline.end : Ns(0));
  place.takeTimelines(isOtherShape, shown.isMoving());
  updateGroups();
  notes.refresh();
  if (pending && !isEmpty(scene) && !shown.awaitsModel()) restore(*std::exchange(pending, std::nullopt));
  canvas->update();
  if (isOtherShape) overview->forget();
  updateOverview();
  if (document.isDragging() && !hand->isOn()) updateDetails();
  if (shown.isMoving() || shown.isLarge())
    shown.settleLater();
  else
    settle();
}

/// What may wait until a drag rests.
void TimelineWidget::Private::settle() {
  if (shown.isMoving()) {
    shown.settleLater();
    return updateDetails();
  }
  overview->forget();
  knowledge.prepare();
  place.settle();
  finder.refresh();
  selection.markAlso();
  selection.refresh();
  updateDetails();
  canvas->update();
}

void TimelineWidget::Private::explained() {
  if (shown.isMoving()) return;
  selection.refresh();
  updateDetails();
  canvas->update();
}

void TimelineWidget::Private::updateDetails() {
  QString text = detailsOf(selection, scene, knowledge, shown.isMoving());
  if (!hand->isOn() && !shown.isChangeDismissed()) {  // else the bar of the edits says it
    const QString change = changeText(document);
    if (text.isEmpty() || (document.isDragging() && !change.isEmpty()))
      text = change;
    else if (!change.isEmpty())
      text = change + QLatin1Char('\n') + text;
  }
  showDetails(text);
  steps = selection.gap() && !isEmpty(scene) ? knowledge.causeOf(*selection.gap()).steps : std::vector<CauseStep>();
  QStringList links;
  for (const CauseStep& step : steps) links << (step.span ? step.text : QString());
  strip->setLinks(links);
}

void TimelineWidget::Private::showDetails(const QString& text) {
  const QString hint = tr("Click a block or a bubble for its details; drag on the ruler to sum up a range; press / to find.");
  strip->setDetails(text, isEmpty(scene) ? QString() : hint);
  if (text == details) return;
  details = text;
  canvas->setAccessibleDescription(details);
  QAccessibleEvent changed(canvas, QAccessible::DescriptionChanged);
  QAccessible::updateAccessibility(&changed);
  emit w.detailsChanged(details);
}

void TimelineWidget::Private::updateOverview() {
  constexpr int kLeastHeight = 260;  // of the timeline, so that there is room for rows
  overview->setVisible(scene.showsOverview && !isEmpty(scene) && w.height() >= kLeastHeight);
  overview->follow();
  commands.updateToggles();
}

void TimelineWidget::Private::updateGroups() {
  const auto profile = document.design().customCosts ? nullptr : document.profile();
  std::vector<QString> groups = groupsOf(scene.ranks.size(), shown.pipelineRanks(), profile ? profile->topology : Topology{});
  if (groups == scene.groups) return;
  scene.groups = std::move(groups);
  place.resized();
  canvas->update();
}

void TimelineWidget::Private::showEditing() {
  commands.updateToggles();
  editing.show();
  canvas->updateSoon();
}

}  // namespace pw::gui
