#include "app/gui/timeline/drawing/look.h"

#include <QGuiApplication>
#include <QPainter>
#include <algorithm>
#include <cmath>

namespace pw::gui {
Look::Look(const Scene& scene, const Theme& theme)
    : theme_(&theme), by_(scene.colourBy), background_(theme.background.rgb()), highlight_(theme.focus.rgb()), text_(theme.text.rgb()) {
  bubble_ = {theme.bubble.rgb(), theme.bubbleHatch.rgb(), Qt::BDiagPattern};
  for (std::size_t k = 0; k < kSpanKinds; ++k) {
    const auto kind = static_cast<SpanKind>(k);
    kinds_[k] = patterned(kindColour(kind, theme).rgb(), kind);
  }
  if (by_ != ColourBy::Stage) return;
  int stages = 1;
  for (const auto& timeline : {scene.predicted, scene.measured}) stages = std::max(stages, timeline ? timeline->stages : 0);
  for (int s = 0; s < stages; ++s) {
    for (std::size_t k = 0; k < kSpanKinds; ++k) stages_.push_back(patterned(stageColour(Stage(s), theme).rgb(), static_cast<SpanKind>(k)));
  }
}

Fill Look::patterned(QRgb base, SpanKind kind) const {
  // Marks must stay readable behind text and calm in small blocks: a little darker, on dark fills a little lighter.
  const bool light = qGray(base) > 110;
  return {base, mixed(base, light ? qRgb(0, 0, 0) : qRgb(255, 255, 255), light ? 0.20 : 0.22), kindPattern(kind)};
}

Fill Look::of(const SpanTag& tag) const {
  const Fill& kind = kinds_[indexOf(tag.kind)];
  if (tag.stage.value < 0 || by_ == ColourBy::Kind) return kind;
  if (by_ == ColourBy::Stage) return stages_[std::min(stages_.size() - 1, tag.stage.index() * kSpanKinds + indexOf(tag.kind))];
  if (tag.microbatch.value < 0) return kind;
  Fill fill = patterned(microbatchColour(tag.microbatch, *theme_).rgb(), SpanKind::Forward);
  fill.pattern = kind.pattern;
  return fill;
}

Fill Look::ofDifference(std::optional<double> error) const {
  const QRgb neutral = mixed(background_, text_, theme_->dark ? 0.30 : 0.24);
  if (!error) return {mixed(background_, text_, 0.12), mixed(background_, text_, 0.45), Qt::BDiagPattern};
  // Full colour from half as long again on.
  const double strength = std::min(1.0, std::abs(*error) / 0.5);
  const QRgb target = (*error > 0 ? theme_->slower : theme_->faster).rgb();
  Fill fill{mixed(neutral, target, std::sqrt(strength))};
  fill.mark = mixed(fill.base, text_, 0.25);
  if (strength > 0.1) fill.pattern = *error > 0 ? Qt::SolidPattern : Qt::Dense6Pattern;
  return fill;
}

Fill Look::dimmed(const Fill& fill) const {
  constexpr double kFaint = 0.80;
  return {mixed(fill.base, background_, kFaint), mixed(fill.mark, background_, kFaint), fill.pattern};
}

QRgb Look::textOn(const Fill& fill) const { return gui::textOn(QColor(fill.base)).rgb(); }

double textScale(const Scene& scene) {
  // The usual font is 16 pixels high; small differences between systems change nothing.
  const double system = qGuiApp == nullptr ? 1 : QFontMetricsF(QGuiApplication::font()).height() / 16;
  return scene.zoomText * (system > 0.85 && system < 1.2 ? 1 : std::clamp(system, 0.6, 4.0));
}

QRgb Look::ofBaseLine(const Fill& fill) const { return mixed(fill.base, theme_->dark ? qRgb(255, 255, 255) : qRgb(0, 0, 0), 0.45); }

QFont sceneFont(const Scene& scene, double share) {
  QFont font = QGuiApplication::font();
  font.setPixelSize(std::max(6, static_cast<int>(std::lround(12.5 * textScale(scene) * share))));
  return font;
}

std::string labelOf(const SpanTag& tag, bool withStage) {
  switch (tag.kind) {
    case SpanKind::Forward:
    case SpanKind::Backward:
    case SpanKind::BackwardInput:
    case SpanKind::BackwardWeight: {
      std::string label = withStage ? std::to_string(tag.stage.value) : std::string();
      return label.append(nameOf(tag.kind)).append(std::to_string(tag.microbatch.value));
    }
    case SpanKind::ReduceGrad: return "sum";
    case SpanKind::Optimizer: return withStage && tag.stage.value >= 0 ? std::to_string(tag.stage.value) + "opt" : "opt";
    case SpanKind::Load: return "load";
    case SpanKind::Store: return "store";
    case SpanKind::SendForward:
    case SpanKind::SendBackward:
    case SpanKind::WaitForward:
    case SpanKind::WaitBackward: return {};
  }
  return {};
}

Stack stackOf(const KindTimes& busy, double time, int height) {
  Stack stack;
  double sum = 0;
  int below = 0;
  // Backward at the bottom, forward on it: what a pipeline mostly does keeps its place.
  for (const SpanKind kind :
       {SpanKind::Backward, SpanKind::BackwardInput, SpanKind::BackwardWeight, SpanKind::Forward, SpanKind::ReduceGrad, SpanKind::Optimizer,
        SpanKind::Load, SpanKind::Store, SpanKind::SendForward, SpanKind::SendBackward}) {
    const Ns part = busy[indexOf(kind)];
    if (part <= 0) continue;
    sum += static_cast<double>(part);
    int top = static_cast<int>(std::lround(std::min(1.0, sum / time) * height));
    top = std::min(height, std::max(top, below + 2));
    if (top > below) stack.parts[stack.count++] = {kind, top - below};
    below = top;
  }
  return stack;
}

void addBusy(KindTimes& busy, const SpanTrack& track, std::size_t i, Ns time) {
  if (time <= 0) return;
  const SpanKind kind = track.tags[i].kind;
  const bool half = kind == SpanKind::Forward ? isSlotAt(track, i) : kind == SpanKind::Backward && i > 0 && isSlotAt(track, i - 1);
  busy[indexOf(kind)] += half ? time / 2 : time;
}

KindTimes busyOfFew(const SpanTrack& track, Ns from, Ns to, std::size_t first, std::size_t next) {
  KindTimes busy{};
  while (first > 0 && track.end[first - 1] > from) --first;
  for (std::size_t i = first; i < next; ++i) addBusy(busy, track, i, std::min(track.end[i], to) - std::max(track.start[i], from));
  return busy;
}

int messageLanes(const SpanTrack& track) { return !track.busy.empty() && track.busy.back()[indexOf(SpanKind::ReduceGrad)] > 0 ? 3 : 2; }

int messageLane(SpanKind kind) { return kind == SpanKind::SendForward ? 0 : kind == SpanKind::SendBackward ? 1 : 2; }

std::pair<int, int> messageLaneLines(int lane, int lanes, int height) {
  const int top = height * lane / lanes, bottom = height * (lane + 1) / lanes;
  return {top, lane + 1 < lanes ? bottom - 1 : bottom};
}

}  // namespace pw::gui
