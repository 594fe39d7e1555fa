#pragma once

// Internal to the import of traces: which rank a track belongs to.

#include <string>
#include <vector>

#include "backends/traces/events/events.h"

namespace pw {

/// The rank and trace that the spans of a track belong to.
struct TrackTarget {
  std::int32_t trace = -1;  ///< of `RankMap::traces`; −1: nowhere
  Rank rank;
  bool spans = true;    ///< false: only its marks and memory are taken
  bool compute = true;  ///< false: its compute spans are another stream's

  [[nodiscard]] bool takes(const Span& span) const { return trace >= 0 && spans && (compute || !isCompute(span.kind)); }
};

struct RankMap {
  struct Traced {
    std::string name;  ///< of this program's own traces; empty for the one of all other tracks
    bool own = false;
    int ranks = 0;
  };
  std::vector<Traced> traces;
  std::vector<std::vector<TrackTarget>> targets;  ///< by file and track
};

/// Numbers the ranks from 0 in the order of the job's. Adds sentences about assumptions to `notes`. Cost: linear.
[[nodiscard]] RankMap mapRanks(const std::vector<FileEvents>& files, std::vector<std::string>& notes);

}  // namespace pw
