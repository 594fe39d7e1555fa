#pragma once

#include <string>
#include <vector>

#include "simulator/report/metrics.h"

namespace pw {

/// Difference of a measured trace from a predicted one. Signed fractions are (measured − predicted) / predicted,
/// 0 where nothing was predicted (the contribution still shows it).
struct GroupError {
  std::string group;  ///< `F`, `stage 1`, `rank 0`
  Ns predicted = 0;   ///< summed duration
  Ns measured = 0;
  double durationError = 0;
  Ns contribution = 0;  ///< |measured − predicted|: where the error comes from; 0 for messages, which end when their receiver takes them

  bool operator==(const GroupError&) const = default;
};
struct Comparison {
  Ns predictedMakespan = 0, measuredMakespan = 0;
  Ns predictedStep = 0, measuredStep = 0;
  double makespanError = 0;
  double stepError = 0;
  double actionError = 0;  ///< mean absolute start error of matched compute actions / measured makespan
  int matched = 0;         ///< compute actions found in both
  int unmatched = 0;       ///< found in one only
  std::vector<GroupError> byKind, byStage, byRank;

  bool operator==(const Comparison&) const = default;
};

/// Matches compute spans by (rank, kind, stage, microbatch), repeated ones in the order of their starts; start errors count from each
/// trace's first compute start. `byKind` includes waits, messages and optimizer; `byStage` and `byRank` are compute only. Groups are in the
/// order of kinds, stages and ranks; those in neither trace are left out.
[[nodiscard]] Comparison compare(const Trace& predicted, const Trace& measured);

}  // namespace pw
