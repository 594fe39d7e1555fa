#pragma once

// Internal to the import of traces: how long actions of programs on CPUs wait for other replicas.

#include <cstdint>
#include <map>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "backends/traces/events/events.h"

namespace pw {

/// DDP launches reductions while the last backward of a step computes, and waits for them before it returns: until the other replicas have
/// theirs. What a thread does within such a backward tells the wait apart: it does next to nothing from then on. FSDP says when it takes
/// gathered parameters, in the first forward of a step.
class ReductionWaits {
 public:
  /// Something that a thread did, by its process and number; what is annotated around much of a step does not count.
  void addOperator(std::int64_t process, std::int64_t thread, Ns start, Ns end);
  /// A collective of Gloo, on whatever thread.
  void addCollective(std::int64_t process, Ns start, Ns end);

  /// FSDP's range in which a thread gathers parameters, or waits for them and copies them.
  void addGather(std::int64_t process, std::int64_t thread, Ns start, Ns end);

  /// Ends the backwards of a file where they begin to wait for collectives that end within them, and adds the wait as a reduction of the
  /// whole rank; where more than half of a thread's backwards of a kind do so, these collectives are part of them (tensor parallelism).
  /// Leaves labels of a reduction out in which no collective is, where others are in the file: DDP reduces in backwards. Cost: n log n in
  /// what was added.
  void cut(FileEvents& file);
  /// Begins forwards after what FSDP gathers within them, which it adds as loading of the whole rank, where at most half of a thread's
  /// forwards have any: else parameters are gathered for each. For a file whose forwards begin when their input is there.
  void cutGathers(FileEvents& file);

 private:
  struct Times {
    Ns start, end;
    auto operator<=>(const Times&) const = default;
  };
  static std::optional<Ns> waitIn(const Span& span, const std::vector<Times>& collectives, const std::vector<Times>& operators);

  void leaveEmptyReductions(FileEvents& file) const;

  std::map<std::pair<std::int64_t, std::int64_t>, std::vector<Times>> operators_;  ///< by process and thread
  std::map<std::pair<std::int64_t, std::int64_t>, std::vector<Times>> gathers_;    ///< likewise
  std::map<std::int64_t, std::vector<Times>> collectives_;                         ///< by process
};

/// Whether an event of this name is a collective of Gloo: `gloo:all_reduce`.
[[nodiscard]] bool isHostCollective(std::string_view name);
/// Whether it is FSDP's: `FSDP::all_gather`, `FSDP::all_gather_copy_out`.
[[nodiscard]] bool isGather(std::string_view name);

}  // namespace pw
