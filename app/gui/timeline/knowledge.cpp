#include "app/gui/timeline/knowledge.h"

#include <utility>
#include <vector>

#include "app/gui/timeline/facts/navigation.h"

namespace pw::gui {
namespace {

std::size_t indexOf(Source source) { return source == Source::Predicted ? 0 : 1; }

}  // namespace

Knowledge::Knowledge(const ShownTimelines& shown, const Scene& scene) : shown_(shown), scene_(scene) {}

void Knowledge::forget(Source source) {
  matches_.reset();
  dependencies_[indexOf(source)].reset();
  if (source != Source::Predicted) return;
  explaining_.cancel();
  explanation_ = nullptr;
}

StageLinks Knowledge::links(Source source) const {
  const int stages = timelineFrom(scene_, source)->stages;
  const auto& prediction = shown_.prediction();
  const bool known = prediction && static_cast<int>(prediction->costs.stages.size()) == stages;
  return known ? linksOf(prediction->costs) : chainLinks(stages);
}

const Dependencies* Knowledge::dependencies(Source source) {
  const Timeline* timeline = timelineFrom(scene_, source);
  if (timeline == nullptr) return nullptr;
  auto& own = dependencies_[indexOf(source)];
  if (!own) own = std::make_shared<const Dependencies>(*timeline, links(source));
  return own.get();
}

bool Knowledge::isPrepared(Source source) const { return !shown_.isLarge() || dependencies_[indexOf(source)] != nullptr; }

void Knowledge::prepare() {
  using Made = std::pair<std::shared_ptr<const Timeline>, std::shared_ptr<const Dependencies>>;
  struct Wanted {
    std::shared_ptr<const Timeline> timeline;
    StageLinks links;
  };
  std::vector<Wanted> wanted;
  for (const Source source : {Source::Predicted, Source::Measured}) {
    if (timelineFrom(scene_, source) != nullptr && !isPrepared(source))
      wanted.push_back({source == Source::Predicted ? scene_.predicted : scene_.measured, links(source)});
  }
  if (wanted.empty()) return;
  preparing_.start(tr("Looking through the timeline"), [this, wanted](JobControl& control) -> std::function<void()> {
    std::vector<Made> made;
    for (const Wanted& one : wanted) {
      if (!control.isCancelled()) made.emplace_back(one.timeline, std::make_shared<const Dependencies>(*one.timeline, one.links));
    }
    return [this, made] {
      for (const auto& [of, dependencies] : made) {
        if (of == scene_.predicted && !dependencies_[0]) dependencies_[0] = dependencies;
        if (of == scene_.measured && !dependencies_[1]) dependencies_[1] = dependencies;
      }
      emit prepared();
    };
  });
}

const Matches& Knowledge::matches() {
  if (!matches_) matches_ = matchSpans(*scene_.predicted, *scene_.measured);
  return *matches_;
}

std::optional<SourcedSpan> Knowledge::counterpart(const SourcedSpan& span) {
  const Source other = span.source == Source::Predicted ? Source::Measured : Source::Predicted;
  const Timeline* own = timelineFrom(scene_, span.source);
  if (!shown_.isSettled() || !exists(own, span.span) || timelineFrom(scene_, other) == nullptr) return std::nullopt;
  if (span.span.track == TrackKind::Compute) {
    const auto& all = span.source == Source::Predicted ? matches().measuredOf : matches().predictedOf;
    const auto rank = span.span.rank.index(), index = static_cast<std::size_t>(span.span.index);
    if (rank >= all.size() || index >= all[rank].size() || all[rank][index] < 0) return std::nullopt;
    return SourcedSpan{other, {span.span.rank, TrackKind::Compute, all[rank][index]}};
  }
  if (!isPrepared(other)) return std::nullopt;
  const auto same = dependencies(other)->find(span.span.rank, tagOf(*own, span.span));
  return same ? std::optional(SourcedSpan{other, *same}) : std::nullopt;
}

Cause Knowledge::causeOf(const BubbleRef& gap) {
  const Timeline& t = *timelineFrom(scene_, gap.source);
  const auto [from, to] = gapOf(t, gap);
  if (gap.source == Source::Predicted && explanation_) {
    if (const Bubble* bubble = bubbleIn(*explanation_, gap.rank, from, to)) return pw::gui::causeOf(*bubble, t, *dependencies(gap.source));
  }
  if (gap.source == Source::Predicted) requestExplanation();
  return simpleCause(gap, t, *dependencies(gap.source));
}

SpanFacts Knowledge::factsOf(const SourcedSpan& at, bool fully) {
  const Timeline& t = *timelineFrom(scene_, at.source);
  const Span span = spanOf(t, at.span);
  Bytes bytes = 0;
  if (at.span.track == TrackKind::Communication) {
    const auto& prediction = shown_.prediction();
    if (at.source == Source::Predicted && prediction) bytes = bytesOf(prediction->costs, *prediction->rows, span);
    if (at.source == Source::Measured && shown_.measured()) bytes = bytesOf(shown_.measured()->trace, span);
  }
  SpanFacts known = pw::gui::factsOf(at, t, fully ? dependencies(at.source) : nullptr, bytes);
  known.predictedName = scene_.predictedName;
  known.measuredName = scene_.measuredName;
  const auto other = counterpart(at);
  known.isOtherWork = other && !scene_.comparesTimes;
  if (other && scene_.comparesTimes) known.other = spanOf(*timelineFrom(scene_, other->source), other->span);
  return known;
}

void Knowledge::requestExplanation() {
  const auto& prediction = shown_.prediction();
  if (!prediction || explanation_ || explaining_.isRunning()) return;
  explaining_.start(tr("Explaining bubbles"), [this, p = prediction](JobControl&) -> std::function<void()> {
    auto made = std::make_shared<const Explanation>(explain(*p->rows, p->costs, p->program, p->times));
    return [this, p, made] {
      if (p != shown_.prediction()) return;
      explanation_ = made;
      emit explained();
    };
  });
}

}  // namespace pw::gui
