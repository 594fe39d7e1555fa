#pragma once

// Internal to the import of traces: what one file holds, before ranks and steps are known.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "schedules/job_rank.h"
#include "simulator/trace/trace.h"

namespace pw {

/// Limits of the times that an import accepts from a file [ns]: points within 69 years of its origin (files may count from 1970), durations
/// up to 46 days. So the sum of a file's origin and a time, and the difference of two such sums, stay within 64 bits.
inline constexpr Ns kLatestTime{2'200'000'000'000'000'000};
inline constexpr Ns kLongestDuration{4'000'000'000'000'000};

/// A thread of a process of a file.
struct EventTrack {
  std::int64_t process = 0, thread = 0;  ///< as the file numbers them, or below 0 where it names them
  bool device = false;                   ///< spans of a device's stream, not of the program that feeds it
  bool own = false;                      ///< written by this program
  std::string processName = {}, threadName = {};
};

/// A track of a file: its position in `FileEvents::tracks`.
using Track = Id<struct TrackTag>;

/// Until `assemble` has found the ranks, `rank` of a file's spans and memory samples holds their track: a file may have millions, which are
/// placed without a copy. These three are the only way in and out.
[[nodiscard]] constexpr Rank asRank(Track track) { return Rank(track.value); }
[[nodiscard]] constexpr Track trackOf(const Span& span) { return Track(span.rank.value); }
[[nodiscard]] constexpr Track trackOf(const MemorySample& sample) { return Track(sample.rank.value); }

/// A step the profiler marked, on a track.
struct StepMark {
  Track track;
  std::int32_t number = 0;
  Ns start = 0;
};

/// A message as a transport posted it on a track; `end`: when somebody waited for it, and it was there.
struct PostedTransfer {
  Track track;
  Ns start = 0, end = 0;
};

/// Ranks of the job that communicate, as a file lists those of its own rank.
struct RankGroup {
  std::string name;  ///< `mesh_tp`, `PIPELINE_MODEL_PARALLEL_GROUP`, …; often empty or `undefined`
  std::vector<JobRank> ranks;
};

/// The pipeline's spans of one file. Times count from any origin, one for the file.
struct FileEvents {
  std::string source;  ///< path, for people
  /// `rank`: the track (`trackOf`). Stage −1 of F and B: the only one of its rank. Peer of messages: −1 where unknown. Microbatch −1 of
  /// compute, messages and waits: known by the order of the rank's operations (`numberByOrder`).
  std::vector<Span> spans;
  std::vector<EventTrack> tracks;
  std::vector<MemorySample> memory;  ///< `rank`: the track; of `own` ones, that of the rank's counter
  std::vector<StepMark> marks;
  std::vector<PostedTransfer> receives, sends;
  std::vector<RankGroup> groups;  ///< those with this rank
  bool exactStarts = false;       ///< actions start when they compute, not when they begin to wait for their input
  bool hostTimes = false;         ///< times are the program's, which only starts what a device computes: the device's are incomplete
  bool chunks = false;            ///< the schedule gives several stages to a rank
  bool timeless = false;          ///< the file holds durations and an order: starts are how long a rank had worked before
  bool severalRanks = false;      ///< each of its processes is a rank
  std::optional<JobRank> rank;    ///< where the file says so
  std::int64_t worldSize = 0;     ///< ranks of the job, where the file says so
  Ns origin = 0;                  ///< absolute time of the file's 0, where it says so
  bool truncated = false;
  std::uint64_t events = 0;    ///< all, pipeline or not
  std::uint64_t unused = 0;    ///< UNSHARD and RESHARD
  std::uint64_t unusable = 0;  ///< pipeline events without usable times
  std::uint64_t unclosed = 0;  ///< B without E, or E without B
};

}  // namespace pw
