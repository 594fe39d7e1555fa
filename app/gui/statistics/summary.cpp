#include "app/gui/statistics/summary.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

#include "app/gui/timeline/facts/navigation.h"
#include "simulator/text/median.h"

namespace pw::gui {
namespace {

using Key = std::pair<SpanKind, Stage>;

Block blockAt(const SpanTrack& track, const SourcedSpan& span) {
  const auto i = static_cast<std::size_t>(span.span.index);
  return {span, track.tags[i].kind, track.tags[i].stage, track.start[i], track.end[i] - track.start[i]};
}

/// The group of some blocks, in the order of their durations; its axis is set later.
BlockGroup groupOf(const Key& key, const std::vector<const Block*>& blocks) {
  BlockGroup group;
  group.kind = key.first;
  group.stage = key.second;
  group.count = blocks.size();
  for (const Block* block : blocks) group.total += block->duration;
  group.least = blocks.front()->duration;
  std::vector<Ns> durations;
  for (const Block* block : blocks) durations.push_back(block->duration);
  group.median = *medianOf(std::move(durations));
  group.most = blocks.back()->duration;
  const auto earlier = [](const Block* a, const Block* b) { return std::tuple(a->start, a->span) < std::tuple(b->start, b->span); };
  const auto first = std::ranges::lower_bound(blocks, group.most, {}, [](const Block* b) { return b->duration; });
  group.longest = (*std::min_element(first, blocks.end(), earlier))->span;
  return group;
}

/// In which part of the axis a duration lies.
std::size_t binOf(Ns duration, const BlockGroup& group) {
  if (group.axisTo == group.axisFrom) return kBins / 2;
  const double share = static_cast<double>(duration - group.axisFrom) / static_cast<double>(group.axisTo - group.axisFrom);
  return std::min(kBins - 1, static_cast<std::size_t>(share * kBins));
}

}  // namespace

std::vector<Block> blocksIn(const Timeline& timeline, Source source, Ns from, Ns to) {
  std::vector<Block> blocks;
  for (std::size_t r = 0; r < timeline.ranks.size(); ++r) {
    for (const TrackKind kind : {TrackKind::Compute, TrackKind::Communication}) {
      const SpanTrack& track = kind == TrackKind::Compute ? timeline.ranks[r].compute : timeline.ranks[r].communication;
      const auto [first, last] = visible(track, from, to);
      for (std::size_t i = first; i < last; ++i) {
        if (track.start[i] >= to || track.end[i] <= from) continue;
        blocks.push_back(blockAt(track, {source, {Rank(r), kind, static_cast<std::int32_t>(i)}}));
      }
    }
  }
  return blocks;
}

std::vector<Block> blocksOf(const Timeline& timeline, Source source, const std::vector<SourcedSpan>& spans) {
  std::vector<Block> blocks;
  for (const SourcedSpan& span : spans) {
    if (span.source == source && exists(&timeline, span.span)) blocks.push_back(blockAt(trackOf(timeline, span.span), span));
  }
  return blocks;
}

Summary summaryOf(const std::vector<Block>& blocks) {
  Summary summary;
  std::map<Key, std::vector<const Block*>> grouped;
  for (const Block& block : blocks) grouped[{block.kind, block.stage}].push_back(&block);
  std::map<SpanKind, std::pair<Ns, Ns>> axes;
  for (auto& [key, own] : grouped) {
    std::ranges::sort(own, {}, [](const Block* b) { return b->duration; });
    const BlockGroup& group = summary.groups.emplace_back(groupOf(key, own));
    const auto axis = axes.try_emplace(key.first, group.least, group.most).first;
    axis->second = {std::min(axis->second.first, group.least), std::max(axis->second.second, group.most)};
    summary.count += group.count;
    summary.total += group.total;
  }
  std::vector<SlowBlock> slow;
  for (BlockGroup& group : summary.groups) {
    std::tie(group.axisFrom, group.axisTo) = axes.at(group.kind);
    for (const Block* block : grouped.at({group.kind, group.stage})) {
      ++group.bins[binOf(block->duration, group)];
      slow.push_back({*block, group.median});
    }
  }
  const auto slower = [](const SlowBlock& a, const SlowBlock& b) {
    return std::tuple(a.median - a.block.duration, -a.block.duration, a.block.start, a.block.span) <
           std::tuple(b.median - b.block.duration, -b.block.duration, b.block.start, b.block.span);
  };
  const auto kept = static_cast<std::ptrdiff_t>(std::min(kMostSlow, slow.size()));
  std::partial_sort(slow.begin(), slow.begin() + kept, slow.end(), slower);
  slow.resize(static_cast<std::size_t>(kept));
  summary.slowest = std::move(slow);
  return summary;
}

StepMeans meansOf(const Timeline& step) {
  std::map<Key, std::pair<double, double>> sums;  // durations, and how many
  for (const Timeline::RankTracks& rank : step.ranks) {
    for (const SpanTrack* track : {&rank.compute, &rank.communication}) {
      for (std::size_t i = 0; i < track->size(); ++i) {
        auto& [sum, count] = sums[{track->tags[i].kind, track->tags[i].stage}];
        sum += static_cast<double>(track->end[i] - track->start[i]);
        ++count;
      }
    }
  }
  StepMeans means;
  for (const auto& [key, sum] : sums) means.emplace(key, sum.first / sum.second);
  return means;
}

void addSpread(Summary& summary, const std::vector<StepMeans>& steps) {
  for (BlockGroup& group : summary.groups) {
    std::vector<double> means;
    for (const StepMeans& step : steps) {
      if (const auto found = step.find({group.kind, group.stage}); found != step.end()) means.push_back(found->second);
    }
    if (means.size() < 2) continue;
    const auto [least, most] = std::ranges::minmax(means);
    double sum = 0;
    for (const double mean : means) sum += mean;
    if (sum > 0) group.spread = (most - least) * static_cast<double>(means.size()) / sum;
  }
}

}  // namespace pw::gui
