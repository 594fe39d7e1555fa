#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "schedules/schedule.h"

namespace pw {

/// A named schedule family: what it requires of ranks, stages and microbatches, and its compute-only order.
struct Generator {
  std::string_view name;     ///< as on the command line: `1f1b`
  std::string_view summary;  ///< one line for `schedule list`: the rule and its source
  std::string_view needs;    ///< its constraints in words for `schedule list`; "any R, V, M" where there are none
  int chunks = 1;            ///< stages per rank if not given
  PlacementKind placement = PlacementKind::Loop;
  bool trains = true;               ///< false: it has no backwards
  std::string_view torchName = {};  ///< torch's class that generates the same cells, or empty
  /// Nothing when the combination is allowed, otherwise the sentence that says what is wrong and what would work.
  std::optional<std::string> (*refusal)(const Shape&) = nullptr;
  /// What torch refuses in addition to `refusal`; null where it refuses nothing more (or has no such schedule).
  std::optional<std::string> (*torchRefusal)(const Shape&) = nullptr;
  /// The compute-only schedule; called with allowed combinations only. Cost: linear in the number of actions (chimera and hanayo, which
  /// order by start times: times its logarithm; v-half and v-min also R³).
  Schedule (*generate)(const Shape&) = nullptr;
};

/// All generators, in the order `schedule list` shows them.
[[nodiscard]] std::span<const Generator> generators();

/// The generator of that name or of torch's name for it (`Interleaved1F1B`, `ScheduleGPipe`), ignoring case. Throws UsageError with similar
/// names for an unknown one; `others`: names that could be meant as well.
[[nodiscard]] const Generator& generatorOf(std::string_view name, std::span<const std::string_view> others = {});

/// The sentence of an error: `schedule dualpipe needs an even number of ranks (you have 5)` for `refusal` = `it needs an even …`.
[[nodiscard]] std::string refusalSentence(std::string_view schedule, std::string_view refusal);

/// Generates the named schedule. Throws UsageError for an unknown name or a combination that the family refuses.
[[nodiscard]] Schedule generate(std::string_view name, const Shape& shape);

/// Interleaved 1F1B with Megatron's microbatch group size (`--microbatch-group-size-per-virtual-pipeline-stage`): each
/// chunk takes `group` microbatches before the next one's turn; the last group may be smaller. `generate` takes torch's
/// groups: max(1, M div R) of them, as equal as possible. Throws UsageError for a group outside [min(R, M), M].
[[nodiscard]] Schedule interleavedWithGroups(const Shape& shape, int group);

/// The cycle in which a lockstep schedule of R ranks does this compute action: stage i does the forward of microbatch m
/// in cycle m + i and its backward in cycle m + 2R − 2 − i (PopART's pipelining document; the last rank's forward and
/// backward are one fragment pair).
[[nodiscard]] int lockstepCycle(int ranks, const Action& action);

/// Cycles of a lockstep schedule: fill and flush of 2R − 2 each, R ≥ 1: M + 2R − 2 in all.
[[nodiscard]] int lockstepCycles(const Shape& shape);

/// Throws UsageError where a schedule that says it runs in lockstep cannot: unless it has one stage for each rank, and each rank does the
/// compute actions of its microbatches in the order of their cycles. Cost: linear.
void requireCycles(const Schedule& schedule);

}  // namespace pw
