#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "simulator/step/program.h"
#include "simulator/trace/span_kind.h"
#include "simulator/trace/trace.h"

namespace pw {

/// What a span of a timeline shows.
struct SpanTag {
  SpanKind kind = SpanKind::Forward;
  Stage stage;
  Microbatch microbatch;
  Rank peer;  ///< messages: the receiver; else the rank itself

  bool operator==(const SpanTag&) const = default;
};

/// A time of each SpanKind.
using KindTimes = std::array<Ns, kSpanKinds>;

/// Spans of one track in flat arrays, in the order of (start, end, kind, stage, microbatch, peer). On a compute track ends ascend too; the
/// two spans of a slot have equal times and are adjacent. On a communication track spans may overlap.
struct SpanTrack {
  std::vector<Ns> start, end;
  std::vector<SpanTag> tags;
  // Summaries of blocks of kBlock spans, so that drawing a pixel with many spans is as cheap as one with a few:
  static constexpr std::size_t kBlock = 32;
  std::vector<Ns> firstStart;   ///< by block
  std::vector<Ns> ownEnd;       ///< by block: latest end of its spans
  std::vector<Ns> latestEnd;    ///< by block: latest end up to its last span
  std::vector<KindTimes> busy;  ///< by block, and one more: time in the spans before the block; the two spans of a slot count half each

  [[nodiscard]] std::size_t size() const { return start.size(); }

  bool operator==(const SpanTrack&) const = default;
};

/// Whether the span and the next one are one slot: a forward and a backward over the same time.
[[nodiscard]] inline bool isSlotAt(const SpanTrack& track, std::size_t i) {
  return i + 1 < track.size() && track.start[i] == track.start[i + 1] && track.end[i] == track.end[i + 1] &&
         track.end[i] > track.start[i] && track.tags[i].kind == SpanKind::Forward && track.tags[i + 1].kind == SpanKind::Backward;
}

/// A rank's memory: `bytes[i]` from `time[i]` to `time[i + 1]`; and the first time and the least and most of blocks of kBlock samples.
struct MemoryTrack {
  std::vector<Ns> time;
  std::vector<Bytes> bytes;
  static constexpr std::size_t kBlock = 32;
  std::vector<Ns> firstTime;
  std::vector<std::pair<Bytes, Bytes>> extremes;
  Bytes peak = 0;

  bool operator==(const MemoryTrack&) const = default;
};

/// A trace laid out for drawing and searching. Waits are not spans here: gaps of a compute track up to `end` are bubble.
struct Timeline {
  struct RankTracks {
    SpanTrack compute;        ///< F, B, I, W, optimizer, sums of shared gradients, load, store
    SpanTrack communication;  ///< messages this rank sends, and its reductions
    MemoryTrack memory;

    bool operator==(const RankTracks&) const = default;
  };
  std::vector<RankTracks> ranks;
  Ns end = 0;  ///< last end of a span
  int stages = 0;
  Bytes peak = 0;  ///< most memory of any rank

  bool operator==(const Timeline&) const = default;
};

/// The timeline of a trace, which must be in order (`normalize`). Linear.
[[nodiscard]] Timeline timelineOf(const Trace& trace);

enum class TrackKind : std::uint8_t { Compute, Communication };

/// One span of a timeline.
struct SpanRef {
  Rank rank;
  TrackKind track = TrackKind::Compute;
  std::int32_t index = 0;

  auto operator<=>(const SpanRef&) const = default;
};

[[nodiscard]] const SpanTrack& trackOf(const Timeline& timeline, const SpanRef& ref);
[[nodiscard]] Span spanOf(const Timeline& timeline, const SpanRef& ref);

/// Indices [first, last) that include all spans touching [from, to); on a communication track some spans inside the range may not touch it.
/// O(log n).
[[nodiscard]] std::pair<std::size_t, std::size_t> visible(const SpanTrack& track, Ns from, Ns to);

/// The first span that starts at or after `time`; n if none. `hint`: an index near the result, if known; the cost is logarithmic in its
/// distance.
[[nodiscard]] std::size_t firstFrom(const SpanTrack& track, Ns time, std::size_t hint = 0);

/// Time within [from, to) of each kind (index: SpanKind); a slot's two spans count half each, to the nanosecond. O(log n + kBlock), and
/// with overlapping spans also the number in flight at `from` and `to`.
[[nodiscard]] KindTimes busyByKind(const SpanTrack& track, Ns from, Ns to);
/// The same from the beginning to `to`; `next`: `firstFrom(track, to)`.
[[nodiscard]] KindTimes busyBefore(const SpanTrack& track, Ns to, std::size_t next);

/// The span at a time; of a slot the forward; of several messages the one that started last. O(log n), and as `busyByKind`.
[[nodiscard]] std::optional<std::size_t> spanAt(const SpanTrack& track, Ns time);

/// Where a rank's compute track is idle around a time: the end of the span before (0 for the first) and the start of the next (the
/// timeline's end after the last). Nothing where the rank is busy.
[[nodiscard]] std::optional<std::pair<Ns, Ns>> bubbleAt(const Timeline& timeline, Rank rank, Ns time);

/// The span of this compute action on this rank, its `occurrence`-th. O(n); build a table for many.
[[nodiscard]] std::optional<SpanRef> findAction(const Timeline& timeline, Rank rank, SpanKind kind, Stage stage, Microbatch microbatch,
                                                int occurrence = 0);

/// What ranks did in [from, to).
struct RangeTotals {
  Ns busy = 0;           ///< F, B, I, W
  Ns bubble = 0;         ///< nothing on the compute track, within the timeline: from 0 to its end
  Ns communication = 0;  ///< messages of this rank in flight and its reductions; overlaps count once

  bool operator==(const RangeTotals&) const = default;
};
/// By rank. Linear in the spans of the range.
[[nodiscard]] std::vector<RangeTotals> rangeTotals(const Timeline& timeline, Ns from, Ns to);

}  // namespace pw
