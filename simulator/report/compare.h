#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "simulator/report/metrics.h"

namespace pw {

/// Whether stages of one number do the same work in two traces. Where a model is cut elsewhere they do not.
enum class Splits : std::uint8_t { Same, Other };

/// Difference of a measured trace from a predicted one. Signed fractions are (measured − predicted) / predicted,
/// 0 where nothing was predicted (the contribution still shows it).
struct GroupError {
  std::string group;  ///< `F`, `stage 1`, `rank 0`, `B (I + W)`
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
  int matchedSplit = 0;    ///< of them, backwards that are whole in one (B) and split in the other (I and W)
  int unmatched = 0;       ///< found in one only
  Splits splits = Splits::Same;
  std::vector<GroupError> byKind, byStage, byRank;
  std::vector<GroupError> byCause;  ///< `B of stage 1`, `OPTIMIZER`: what differences come from

  bool operator==(const Comparison&) const = default;
};

/// Matches compute spans by (rank, kind, stage, microbatch), repeated ones in the order of their starts; start errors count from each
/// trace's first compute start. A backward that one trace has whole (B) and the other split (I and W) is matched by its B and its I; its W
/// belongs to it and is neither matched nor unmatched. `byKind` includes waits, messages and optimizer; `byStage` and `byRank` are compute
/// only. `byCause` leaves out waits and messages, which follow from others; compute is by kind and stage, or by kind where one trace has
/// stages that the other lacks or where splits differ. With other splits `byStage` is empty. Groups are in the order of kinds, stages and
/// ranks; those in neither trace are left out. Cost: n log n.
[[nodiscard]] Comparison compare(const Trace& predicted, const Trace& measured, Splits splits = Splits::Same);

/// What the times of B, I and W together are called, where traces that `differInSplit` are compared: those of one kind alone would be those
/// of different work.
inline constexpr std::string_view kBackwards = "B (I + W)";

/// Whether some stage's backward of a microbatch is whole (B, no I or W) in one of the traces and split (I and W, no B) in the other, on
/// whatever ranks. Cost: n log n where both kinds occur.
[[nodiscard]] bool differInSplit(const Trace& a, const Trace& b);
/// The kind that a span is counted as where backwards `differInSplit`: I and W as B, others as they are.
[[nodiscard]] SpanKind joinedKind(SpanKind kind);

}  // namespace pw
