#pragma once

// Internal to the import of traces: what one file holds, before ranks and steps are known.

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "backends/traces/import.h"
#include "backends/traces/names/patterns.h"

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

/// Cuts what is no computation off actions: torch's runtime waits for a receive within the action that needs it, and its GPipe sends within
/// the action too, so on a CPU an action's span begins with the wait and ends after the send. Both become spans of their own; waits that
/// only posted a receive are dropped. Slots stay: whose the wait is cannot be seen. Does nothing where the file says nothing about
/// transfers. Cost: a sort of the transfers.
void cutTransfers(FileEvents& file);

/// Whether span `i` shares its interval with a neighbour of its track.
[[nodiscard]] bool inSlot(const std::vector<Span>& spans, std::size_t i);

/// Reads a Chrome JSON file; `advance` gets the bytes read so far and returns whether to continue. Nothing if it did not. Throws UsageError
/// for a file that is no such JSON.
[[nodiscard]] std::optional<FileEvents> readChromeFile(const std::string& path, const NamePatterns& patterns,
                                                       const std::function<bool(std::uint64_t bytes)>& advance);

/// Reads an export of Nsight Systems in SQLite: the ranges of NVTX that label actions, of each process, with the times of the kernels that
/// were launched in them where there are any. As above.
[[nodiscard]] std::optional<FileEvents> readNsightFile(const std::string& path, const NamePatterns& patterns,
                                                       const std::function<bool(std::uint64_t bytes)>& advance);

/// Turns the events of the files into steps: finds ranks, aligns clocks, splits into steps, trims overlaps. Throws UsageError when there is
/// no pipeline span.
[[nodiscard]] ImportedTrace assemble(std::vector<FileEvents> files, std::string title);

/// Reads a trace dumped by Primus. `folder` holds config.json and pp_rank_N.json.
[[nodiscard]] ImportedTrace readPrimus(const std::string& folder);

/// Sorts by (start, rank, end, …), as `Trace` has them; quick where sorted runs follow each other.
void sortSpans(std::vector<Span>& spans);

/// Trims the compute spans of each rank so that none overlaps another, except in slots; drops spans inside another one. Sorted spans in,
/// sorted out. Returns how many were dropped, or cut by more than the microsecond that their times may be rounded to. Linear.
std::size_t cutOverlaps(std::vector<Span>& spans, int ranks);

/// Leaves out backwards that compute nothing: torch's schedules label them in an evaluation (`schedule.eval`), too. Those are the backwards
/// of a microbatch that take less than a tenth of the shortest forward and of the longest backwards of their stage; where that is so of all
/// backwards of all stages, of the forward alone. `spans`: sorted by start, with stages and microbatches. Cost: n log n.
void dropEmptyBackwards(std::vector<Span>& spans);

/// Number and noun: `1 event`, `12 events`.
[[nodiscard]] std::string countedEvents(std::uint64_t number, const std::string& noun);

}  // namespace pw
