#include "simulator/timeline/timeline.h"

#include <algorithm>
#include <cassert>
#include <limits>

#include "simulator/timeline/writers.h"

namespace pw {
namespace {

std::size_t at(SpanKind kind) { return static_cast<std::size_t>(kind); }

/// How much of its time a span counts: in a slot the forward gets one half and the backward the rest.
Ns share(const SpanTrack& track, std::size_t i, Ns time) {
  if (isSlotAt(track, i)) return time / 2;
  return i > 0 && isSlotAt(track, i - 1) ? time - time / 2 : time;
}

/// The first block with a span that ends after `time`, or that has earlier ones.
std::size_t firstBlockEndingAfter(const SpanTrack& track, Ns time) {
  return static_cast<std::size_t>(std::upper_bound(track.latestEnd.begin(), track.latestEnd.end(), time) - track.latestEnd.begin());
}

/// The last span with index < `next` that ends after `time`.
std::optional<std::size_t> lastEndingAfter(const SpanTrack& track, Ns time, std::size_t next) {
  const std::size_t least = firstBlockEndingAfter(track, time);
  for (std::size_t block = (next + SpanTrack::kBlock - 1) / SpanTrack::kBlock; block-- > least;) {
    if (track.ownEnd[block] <= time) continue;
    for (std::size_t i = std::min(next, (block + 1) * SpanTrack::kBlock); i-- > block * SpanTrack::kBlock;) {
      if (track.end[i] > time) return i;
    }
  }
  return std::nullopt;
}

/// Time of [from, to) covered by spans; overlaps count once.
Ns covered(const SpanTrack& track, Ns from, Ns to) {
  const auto [first, last] = visible(track, from, to);
  Ns sum = 0, done = from;
  for (std::size_t i = first; i < last; ++i) {
    const Ns begin = std::max(track.start[i], done), end = std::min(track.end[i], to);
    if (end <= begin) continue;
    sum += end - begin;
    done = end;
  }
  return sum;
}

}  // namespace

Timeline timelineOf(const Trace& trace) {
  Timeline timeline;
  timeline.ranks.resize(static_cast<std::size_t>(trace.ranks));
  std::vector<std::pair<SpanWriter, SpanWriter>> writers;
  std::vector<MemoryWriter> memory;
  for (Timeline::RankTracks& rank : timeline.ranks) {
    writers.emplace_back(SpanWriter(rank.compute, 0), SpanWriter(rank.communication, 0));
    memory.emplace_back(rank.memory);
  }
  for (const Span& s : trace.spans) {
    if (isWait(s.kind)) continue;
    auto& [compute, communication] = writers[s.rank.index()];
    const bool beside = isMessage(s.kind) || isBeside(s);
    (beside ? communication : compute).push(s.start, s.end, {s.kind, s.stage, s.microbatch, s.peer});
    timeline.stages = std::max(timeline.stages, s.stage.value + 1);
  }
  for (const MemorySample& sample : trace.memory) memory[sample.rank.index()].put(sample.time, sample.bytes);
  for (auto& [compute, communication] : writers) {
    compute.finish();
    communication.finish();
  }
  for (MemoryWriter& writer : memory) writer.finish();
  summarize(timeline);
  return timeline;
}

const SpanTrack& trackOf(const Timeline& timeline, const SpanRef& ref) {
  const Timeline::RankTracks& tracks = timeline.ranks[ref.rank.index()];
  return ref.track == TrackKind::Compute ? tracks.compute : tracks.communication;
}

Span spanOf(const Timeline& timeline, const SpanRef& ref) {
  const SpanTrack& track = trackOf(timeline, ref);
  const auto i = static_cast<std::size_t>(ref.index);
  const SpanTag& tag = track.tags[i];
  return {ref.rank, tag.kind, tag.stage, tag.microbatch, tag.peer, 0, track.start[i], track.end[i]};
}

std::pair<std::size_t, std::size_t> visible(const SpanTrack& track, Ns from, Ns to) {
  const std::size_t last = firstFrom(track, to);
  std::size_t first = firstBlockEndingAfter(track, from) * SpanTrack::kBlock;
  while (first < last && track.end[first] <= from) ++first;
  return {std::min(first, last), last};
}

std::size_t firstFrom(const SpanTrack& track, Ns time, std::size_t hint) {
  // Gallops from the hint over whole blocks, then bisects, then searches within the block.
  const auto& starts = track.firstStart;
  std::size_t low = 0, high = starts.size(),
              block = std::min(hint / SpanTrack::kBlock, high);  // the first block that starts at or after lies in [low, high]
  if (block < high && starts[block] < time) {
    low = block + 1;
    for (std::size_t step = 1; low + step < high; step *= 2) {
      if (starts[low + step] >= time) {
        high = low + step;
      } else {
        low += step + 1;
      }
    }
  } else {
    high = block;
    for (std::size_t step = 1; step < high - low; step *= 2) {
      if (starts[high - step] < time) {
        low = high - step + 1;
      } else {
        high -= step;
      }
    }
  }
  const auto begin = starts.begin();
  block = static_cast<std::size_t>(
      std::lower_bound(begin + static_cast<std::ptrdiff_t>(low), begin + static_cast<std::ptrdiff_t>(high), time) - begin);
  if (block == 0) return 0;
  const auto from = track.start.begin() + static_cast<std::ptrdiff_t>((block - 1) * SpanTrack::kBlock);
  const auto to = track.start.begin() + static_cast<std::ptrdiff_t>(std::min(block * SpanTrack::kBlock, track.size()));
  return static_cast<std::size_t>(std::lower_bound(from, to, time) - track.start.begin());
}

KindTimes busyBefore(const SpanTrack& track, Ns to, std::size_t next) {
  const std::size_t block = next / SpanTrack::kBlock;
  KindTimes sum = track.busy[block];
  for (std::size_t i = block * SpanTrack::kBlock; i < next; ++i)
    sum[at(track.tags[i].kind)] += share(track, i, track.end[i] - track.start[i]);
  // Of spans that are still running at `to`, only the part before it counts.
  for (std::size_t b = firstBlockEndingAfter(track, to); b * SpanTrack::kBlock < next; ++b) {
    if (track.ownEnd[b] <= to) continue;
    for (std::size_t i = b * SpanTrack::kBlock; i < std::min(next, (b + 1) * SpanTrack::kBlock); ++i) {
      if (track.end[i] <= to) continue;
      sum[at(track.tags[i].kind)] += share(track, i, to - track.start[i]) - share(track, i, track.end[i] - track.start[i]);
    }
  }
  return sum;
}

KindTimes busyByKind(const SpanTrack& track, Ns from, Ns to) {
  if (to <= from || track.size() == 0) return {};
  const std::size_t first = firstFrom(track, from);
  const KindTimes before = busyBefore(track, from, first);
  KindTimes sum = busyBefore(track, to, firstFrom(track, to, first));
  for (std::size_t k = 0; k < kSpanKinds; ++k) sum[k] -= before[k];
  return sum;
}

std::optional<std::size_t> spanAt(const SpanTrack& track, Ns time) {
  const std::size_t next = time == std::numeric_limits<Ns>::max() ? track.size() : firstFrom(track, time + 1);
  const auto found = lastEndingAfter(track, time, next);
  return found && *found > 0 && isSlotAt(track, *found - 1) ? *found - 1 : found;
}

std::optional<std::pair<Ns, Ns>> bubbleAt(const Timeline& timeline, Rank rank, Ns time) {
  if (time < 0 || time >= timeline.end) return std::nullopt;
  const SpanTrack& track = timeline.ranks[rank.index()].compute;
  const std::size_t next = firstFrom(track, time + 1);
  if (lastEndingAfter(track, time, next)) return std::nullopt;
  const std::size_t block = next / SpanTrack::kBlock;
  Ns from = block == 0 ? 0 : track.latestEnd[block - 1];
  for (std::size_t i = block * SpanTrack::kBlock; i < next; ++i) from = std::max(from, track.end[i]);
  return std::pair{from, next == track.size() ? timeline.end : track.start[next]};
}

std::optional<SpanRef> findAction(const Timeline& timeline, Rank rank, SpanKind kind, Stage stage, Microbatch microbatch, int occurrence) {
  if (rank.value < 0 || rank.index() >= timeline.ranks.size()) return std::nullopt;
  const auto& tags = timeline.ranks[rank.index()].compute.tags;
  for (std::size_t i = 0; i < tags.size(); ++i) {
    if (tags[i].kind != kind || tags[i].microbatch != microbatch || tags[i].stage != stage) continue;
    if (occurrence-- == 0) return SpanRef{rank, TrackKind::Compute, static_cast<std::int32_t>(i)};
  }
  return std::nullopt;
}

std::vector<RangeTotals> rangeTotals(const Timeline& timeline, Ns from, Ns to) {
  std::vector<RangeTotals> result;
  for (const Timeline::RankTracks& rank : timeline.ranks) {
    RangeTotals& total = result.emplace_back();
    const KindTimes busy = busyByKind(rank.compute, from, to);
    for (const SpanKind kind : {SpanKind::Forward, SpanKind::Backward, SpanKind::BackwardInput, SpanKind::BackwardWeight})
      total.busy += busy[at(kind)];
    const Ns begin = std::max<Ns>(from, 0), end = std::min(to, timeline.end);
    if (end > begin) total.bubble = end - begin - covered(rank.compute, begin, end);
    total.communication = covered(rank.communication, from, to);
  }
  return result;
}

}  // namespace pw
