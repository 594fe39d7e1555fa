#pragma once

// Internal to the import of traces: which ranks form a pipeline, where a job has several of them beside each other.

#include <cstdint>
#include <string>
#include <vector>

#include "backends/traces/events/events.h"
#include "backends/traces/events/imported.h"
#include "backends/traces/recovery/ranks.h"

namespace pw {

/// Where the ranks of a job's trace stand (the trace that is not this program's own).
struct RankPlaces {
  std::vector<Rank> renumbered;        ///< by rank of the map: the rank that it is in all that follows
  std::vector<std::int32_t> pipeline;  ///< by rank: which of the pipelines beside each other, from 0
  std::vector<Stage> firstStage;       ///< by rank: the stage of actions that name none, where a rank has one
  int replicas = 1, tensor = 1;        ///< their product is the number of pipelines
  bool interleaved = false;            ///< actions name no stage, and come in an order that only several stages on each rank have
  std::vector<ImportedRank> ranks;     ///< by rank; empty where the job is one pipeline of ranks that are numbered as here
};

/// Where pipelines run beside each other, ranks are numbered by data-parallel replica, then tensor-parallel rank, then pipeline rank, as in
/// this program's own runs. Ranks that do the same actions are replicas of each other: the k-th of each stage belong to one pipeline,
/// unless the files list the pipeline's own group. Adds sentences about what was found to `notes`. Cost: linear.
[[nodiscard]] RankPlaces placeRanks(const std::vector<FileEvents>& files, const RankMap& map, std::vector<std::string>& notes);

}  // namespace pw
