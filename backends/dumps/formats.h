#pragma once

// The formats that `readDumps` reads. For use in this folder only.

#include <cstddef>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "simulator/hang/recording.h"

namespace simdjson::dom {
class element;
}

namespace pw::dumps {

/// Ranks of a job that this program looks at, and entries of one dump.
inline constexpr std::int64_t kMostJobRanks = 65536;
inline constexpr std::size_t kMostOps = 4'000'000;

/// What is read already.
struct Known {
  std::map<hang::Group, std::size_t> groups{};  ///< by index
  std::map<JobRank, std::string> files{};       ///< the dump of each rank
};

/// What is being read, and how its faults are told.
struct Source {
  std::string file;
  hang::Dumps& dumps;
  Known& known;

  /// Throws UsageError: `F is not a usable dump: WHAT; CURE`.
  [[noreturn]] void refuse(const std::string& what) const;
  /// A rank of the job. Throws as `refuse` unless it is one.
  [[nodiscard]] JobRank rank(std::int64_t value, const char* what) const;
  /// The index of a group, which is added where it is new. One without members is of all ranks.
  [[nodiscard]] std::size_t group(hang::Group group) const;
  /// Adds a rank's dump, and notes where the rank has one already.
  void add(hang::RankDump dump) const;
};

/// torch's Flight Recorder as JSON: `torch._C._distributed_c10d._dump_fr_trace_json()`, or the pickled dump written as JSON.
[[nodiscard]] bool isFlightRecorder(const simdjson::dom::element& root);
void readFlightRecorder(const simdjson::dom::element& root, const Source& source);
/// Whether numbers of collectives skip just where messages were started together between them, as torch 2.4 counts.
[[nodiscard]] bool countsMessages(const hang::RankDump& dump);

/// `ncclras -f json`.
[[nodiscard]] bool isRas(const simdjson::dom::element& root);
void readRas(const simdjson::dom::element& root, const Source& source);

/// A flight record of this program (resources/docs/formats.md).
[[nodiscard]] bool isFlightRecord(const simdjson::dom::element& root);
void readFlightRecord(const simdjson::dom::element& root, const Source& source);

/// The number in a file's name that says its rank: after the last `rank`, else the last number; −1 without one.
[[nodiscard]] std::int64_t rankInName(const std::string& file);

}  // namespace pw::dumps
