#include "simulator/timeline/writers.h"

#include <limits>
#include <utility>

namespace pw {

void sortTies(SpanTrack& track) {
  std::vector<std::pair<Ns, SpanTag>> run;
  for (std::size_t from = 0, to = 0; from < track.size(); from = to) {
    bool ordered = true;
    for (to = from + 1; to < track.size() && track.start[to] == track.start[from]; ++to)
      ordered = ordered && orderOf(track, to - 1) <= orderOf(track, to);
    if (ordered) continue;
    run.clear();
    for (std::size_t i = from; i < to; ++i) run.emplace_back(track.end[i], track.tags[i]);
    std::sort(run.begin(), run.end(), [](const auto& a, const auto& b) {
      return std::tie(a.first, a.second.kind, a.second.stage, a.second.microbatch, a.second.peer) <
             std::tie(b.first, b.second.kind, b.second.stage, b.second.microbatch, b.second.peer);
    });
    for (std::size_t i = from; i < to; ++i) std::tie(track.end[i], track.tags[i]) = run[i - from];
  }
}

void mergeRuns(SpanTrack& track, std::vector<std::size_t> begins) {
  SpanTrack left;
  const auto at = [](auto& values, std::size_t i) { return values.begin() + static_cast<std::ptrdiff_t>(i); };
  const auto merge = [&](std::size_t from, std::size_t middle, std::size_t to) {
    if (from == middle || middle == to || track.start[middle - 1] <= track.start[middle]) return;
    left.start.assign(at(track.start, from), at(track.start, middle));
    left.end.assign(at(track.end, from), at(track.end, middle));
    left.tags.assign(at(track.tags, from), at(track.tags, middle));
    for (std::size_t l = 0, r = middle, i = from; l < left.size(); ++i) {
      const bool takesLeft = r == to || left.start[l] <= track.start[r];
      const SpanTrack& source = takesLeft ? left : track;
      const std::size_t j = takesLeft ? l++ : r++;
      track.start[i] = source.start[j];
      track.end[i] = source.end[j];
      track.tags[i] = source.tags[j];
    }
  };
  while (begins.size() > 1) {
    std::vector<std::size_t> merged;
    for (std::size_t run = 0; run < begins.size(); run += 2) {
      merged.push_back(begins[run]);
      if (run + 1 < begins.size()) merge(begins[run], begins[run + 1], run + 2 < begins.size() ? begins[run + 2] : track.size());
    }
    begins = std::move(merged);
  }
}

namespace {

void summarize(SpanTrack& track) {
  constexpr std::size_t kBlock = SpanTrack::kBlock;
  const std::size_t size = track.size(), blocks = (size + kBlock - 1) / kBlock;
  track.firstStart.resize(blocks);
  track.ownEnd.resize(blocks);
  track.latestEnd.resize(blocks);
  track.busy.resize(blocks + 1);
  KindTimes sum{};
  Ns latest = std::numeric_limits<Ns>::min();
  bool second = false;  // the span before is the forward of this one's slot
  for (std::size_t block = 0; block < blocks; ++block) {
    track.busy[block] = sum;
    track.firstStart[block] = track.start[block * kBlock];
    Ns own = std::numeric_limits<Ns>::min();
    for (std::size_t i = block * kBlock; i < std::min(size, (block + 1) * kBlock); ++i) {
      const Ns time = track.end[i] - track.start[i];
      const bool first = isSlotAt(track, i);
      sum[static_cast<std::size_t>(track.tags[i].kind)] += first ? time / 2 : second ? time - time / 2 : time;
      second = first;
      own = std::max(own, track.end[i]);
    }
    latest = std::max(latest, own);
    track.ownEnd[block] = own;
    track.latestEnd[block] = latest;
  }
  track.busy[blocks] = sum;
}

void summarize(MemoryTrack& track) {
  constexpr std::size_t kBlock = MemoryTrack::kBlock;
  const std::size_t size = track.bytes.size();
  track.extremes.reserve(track.bytes.capacity() / kBlock + 1);  // as far as another filling may come
  track.extremes.resize((size + kBlock - 1) / kBlock);
  track.firstTime.reserve(track.extremes.capacity());
  track.firstTime.resize(track.extremes.size());
  track.peak = 0;
  for (std::size_t block = 0; block < track.extremes.size(); ++block) {
    const Bytes* const from = track.bytes.data() + block * kBlock;
    const Bytes* const to = track.bytes.data() + std::min(size, (block + 1) * kBlock);
    Bytes least = *from, most = *from;
    for (const Bytes* b = from + 1; b < to; ++b) {
      least = std::min(least, *b);
      most = std::max(most, *b);
    }
    track.firstTime[block] = track.time[block * kBlock];
    track.extremes[block] = {least, most};
    track.peak = std::max(track.peak, most);
  }
}

}  // namespace

void summarizeRanks(Timeline& timeline) {
  for (Timeline::RankTracks& rank : timeline.ranks) {
    summarize(rank.compute);
    summarize(rank.memory);
  }
}

void summarizeCommunication(Timeline& timeline) {
  for (Timeline::RankTracks& rank : timeline.ranks) summarize(rank.communication);
}

void summarizeWhole(Timeline& timeline) {
  timeline.end = 0;
  timeline.peak = 0;
  for (const Timeline::RankTracks& rank : timeline.ranks) {
    for (const SpanTrack* const track : {&rank.compute, &rank.communication}) {
      if (!track->latestEnd.empty()) timeline.end = std::max(timeline.end, track->latestEnd.back());
    }
    timeline.peak = std::max(timeline.peak, rank.memory.peak);
  }
}

void summarize(Timeline& timeline) {
  summarizeRanks(timeline);
  summarizeCommunication(timeline);
  summarizeWhole(timeline);
}

}  // namespace pw
