#pragma once

// Internal to the import of traces: which ranks form a pipeline, where a job has several of them beside each other.

#include <cstdint>
#include <string>
#include <vector>

#include "backends/traces/events.h"
#include "backends/traces/ranks.h"

namespace pw {

/// Where the ranks of a job's trace stand (the trace that is not this program's own).
struct RankPlaces {
  std::vector<std::int32_t> pipeline;    ///< by rank: which of the pipelines beside each other, from 0
  std::vector<std::int32_t> firstStage;  ///< by rank: the stage of actions that name none, where a rank has one
  std::vector<ImportedRank> ranks;       ///< by rank; empty where the job is one pipeline of ranks that are numbered as here
};

/// Ranks that do the same actions are replicas of each other: the k-th of each stage belong to one pipeline, unless the files list the
/// pipeline's own group. Adds sentences about what was found to `notes`. Cost: linear.
[[nodiscard]] RankPlaces placeRanks(const std::vector<FileEvents>& files, const RankMap& map, std::vector<std::string>& notes);

}  // namespace pw
