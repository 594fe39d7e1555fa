#include "app/gui/document/copies.h"

#include <algorithm>
#include <iterator>
#include <optional>
#include <utility>
#include <vector>

namespace pw::gui {
namespace {

using Forward = std::pair<Stage, Microbatch>;

constexpr std::size_t kMostStages = 256;

/// The stages whose forwards are on a rank, ascending.
std::vector<Stage> stagesOn(const SpanTrack& track) {
  std::vector<Stage> stages;
  for (const SpanTag& tag : track.tags) {
    if (tag.kind != SpanKind::Forward || tag.stage.value < 0) continue;
    if (std::ranges::find(stages, tag.stage) == stages.end()) stages.push_back(tag.stage);
    if (stages.size() > kMostStages) break;  // of no real pipeline: one search for each span must stay cheap
  }
  std::ranges::sort(stages);
  return stages;
}

std::optional<Forward> firstForward(const Timeline& timeline) {
  std::optional<Forward> first;
  for (const auto& rank : timeline.ranks) {
    for (const SpanTag& tag : rank.compute.tags) {
      if (tag.kind != SpanKind::Forward || tag.stage.value < 0) continue;
      const Forward forward{tag.stage, tag.microbatch};
      if (!first || forward < *first) first = forward;
    }
  }
  return first;
}

}  // namespace

std::size_t copiesIn(const Timeline& timeline) {
  const auto first = firstForward(timeline);
  if (!first) return 1;
  const auto isFirst = [&](const SpanTag& tag) {
    return tag.kind == SpanKind::Forward && tag.stage == first->first && tag.microbatch == first->second;
  };
  const auto copies = static_cast<std::size_t>(
      std::ranges::count_if(timeline.ranks, [&](const auto& rank) { return std::ranges::any_of(rank.compute.tags, isFirst); }));
  if (copies < 2 || timeline.ranks.size() % copies != 0) return 1;
  const std::size_t ranks = timeline.ranks.size() / copies;
  std::vector<std::vector<Stage>> stages;
  stages.reserve(timeline.ranks.size());
  for (const auto& rank : timeline.ranks) stages.push_back(stagesOn(rank.compute));
  for (std::size_t r = ranks; r < stages.size(); ++r) {
    if (stages[r] != stages[r % ranks]) return 1;
  }
  return copies;
}

Trace firstCopy(const Trace& trace, std::size_t copies) {
  Trace first;
  first.ranks = trace.ranks / static_cast<int>(std::max<std::size_t>(1, copies));
  std::ranges::copy_if(trace.spans, std::back_inserter(first.spans), [&](const Span& span) { return span.rank.value < first.ranks; });
  return first;
}

}  // namespace pw::gui
