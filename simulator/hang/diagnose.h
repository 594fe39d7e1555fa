#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "schedules/check.h"
#include "simulator/hang/recording.h"

namespace pw::hang {

enum class Verdict : std::uint8_t {
  Nothing,             ///< no operation is open
  CannotTell,          ///< none is open, but what is there holds none of the kind that may be
  SilentRank,          ///< ranks wait for one that waits for nobody, or left no dump
  Cycle,               ///< ranks wait for each other
  SizeMismatch,        ///< the two ends of a message, or the ranks of a collective, disagree about its size
  MissingMessage,      ///< a rank left out a message that another waits for
  CollectiveMismatch,  ///< ranks are in different collectives of one communicator
  InFlight,            ///< both ends are posted and agree, but the message did not arrive
};
constexpr std::string_view nameOf(Verdict verdict) {
  switch (verdict) {
    case Verdict::Nothing: return "nothing";
    case Verdict::CannotTell: return "cannot_tell";
    case Verdict::SilentRank: return "silent_rank";
    case Verdict::Cycle: return "cycle";
    case Verdict::SizeMismatch: return "size_mismatch";
    case Verdict::MissingMessage: return "missing_message";
    case Verdict::CollectiveMismatch: return "collective_mismatch";
    case Verdict::InFlight: return "in_flight";
  }
  return {};
}

/// A place in a rank's work.
struct Spot {
  JobRank rank{-1};
  Rank row{-1};  ///< of the schedule; −1: without one, or the rank is in no group of its size
  int position =
      -1;  ///< in the schedule's row as in its file; without a schedule, or where its file does not have it, among the operations
  bool inRow = false;              ///< `position` is one of the schedule
  int step = -1;                   ///< from 0; −1: unknown
  std::optional<Action> action{};  ///< where the schedule or the recorder names it
  std::string operation{};         ///< the recorder's name; empty where nothing was posted
  JobRank on{-1};                  ///< the rank that it waits for
  Ns posted = 0;                   ///< 0: unknown
  bool setsUp = false;             ///< a message of the runtime's set-up, before the schedule

  bool operator==(const Spot&) const = default;
};

/// A rank that others wait for.
struct SilentRank {
  JobRank rank;
  Rank row{-1};                ///< of the schedule; −1: unknown
  std::string file{};          ///< of its dump; empty where it left none
  std::optional<Spot> last{};  ///< the last message that it is known to have done
  std::optional<Spot> next{};  ///< what the schedule has after that; without a dump, beyond receives whose sender went on
  /// What the rank may have been in: the schedule up to its next message, and that; without a dump up to the first send that its receiver
  /// waits for.
  std::vector<Action> possible{};
  std::string why{};  ///< `it left no dump`
};

struct Diagnosis {
  Verdict verdict = Verdict::Nothing;
  std::string sentence{};                 ///< the verdict for people
  std::optional<Spot> firstStuck{};       ///< the operation that began to wait first, of those the verdict is about
  std::optional<Spot> cause{};            ///< where it went wrong: the message that was left out, the end that has another size
  std::vector<Spot> cycle{};              ///< each waits for the next one's rank, the last for the first
  std::vector<SilentRank> silent{};       ///< by rank: the first 64
  std::size_t silentRanks = 0;            ///< how many there are
  std::vector<JobRank> missing{};         ///< ranks without a dump
  std::vector<Spot> waits{};              ///< of each rank that waits, what it waits in
  std::vector<Problem> problems{};        ///< for which `check` refuses the schedule
  std::optional<std::size_t> caughtBy{};  ///< the problem that is what hangs
  std::optional<bool> checkWouldCatch{};  ///< whether there is one; nothing without a schedule, or where it cannot be told
  bool followed = true;                   ///< no rank departs from its row of the schedule
  bool inOrder = true;                    ///< nor from the order of all its messages; else only that between each two ranks was compared
  std::vector<std::string> notes{};
};

/// Finds what stopped a job. A rank waits in its oldest operation that is not done; but with a schedule in what its next action needs, for
/// receives may be posted ahead, else in the oldest that may be. Where a schedule is free of deadlock, ranks that follow it cannot wait for
/// each other: of a cycle those whose next action needs nothing do not wait. A cycle counts only if none of its ranks also waits for a rank
/// that is silent. Ties: the operation posted first, then the lowest rank. `schedule`: null where there is none. Cost: n log n in
/// operations.
[[nodiscard]] Diagnosis diagnose(const Dumps& dumps, const Schedule* schedule);

}  // namespace pw::hang
