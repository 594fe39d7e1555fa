#pragma once

// The job under diagnosis: its graph of waits, and words for its places. For use in this folder only.

#include <cstddef>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "simulator/hang/diagnose.h"
#include "simulator/hang/rows.h"
#include "simulator/hang/waits.h"

namespace pw::hang {

/// A job's dumps, its schedule if there is one, and what each rank is taken to wait for.
struct Inquiry {
  const Dumps& dumps;
  const Rows* rows;  ///< null without a schedule
  Waits waits;
  /// By dump: what the rank waits in: the waits of its oldest operation that is not done, and of those started together with it.
  std::vector<std::vector<Wait>> primary{};

  Inquiry(const Dumps& all, const Rows* placed);

  /// How far a rank is known to have come in its row.
  struct Progress {
    Rank row{-1};
    std::optional<Place> last{};
    void advance(const Place& place) {
      if (!last || std::tie(place.step, place.position) > std::tie(last->step, last->position)) last = place;
    }
  };
  /// By what it posted.
  [[nodiscard]] Progress progressOf(std::size_t dump) const;
  /// Of a rank without a dump: by the messages that others exchanged with it.
  [[nodiscard]] Progress seenOf(JobRank rank) const;
  /// The dump's index; nothing where the rank left none.
  [[nodiscard]] std::optional<std::size_t> dumpOf(JobRank rank) const;
  [[nodiscard]] const RecordedOp& opOf(const Wait& wait) const;
  /// Whether the rank waits for nobody, or nothing is known of it: it left no dump or is known to be gone.
  [[nodiscard]] bool isSilent(JobRank rank) const;
  /// Whether this wait leads on to what the other rank waits for.
  [[nodiscard]] bool leadsOn(const Wait& wait) const;
  /// Whether a rank posted operations after one that is not done, so that it does not wait for each.
  [[nodiscard]] bool postsAhead() const;
  /// Takes ranks to wait only for what their next action needs, and those whose next action needs nothing to be silent. At the end of
  /// its row a rank waits for its sends.
  void receivesArePostedAhead();

  [[nodiscard]] Spot spotOf(std::size_t dump, std::size_t op, JobRank on) const;
  [[nodiscard]] Spot spotOf(const Wait& wait) const;
  /// A place of the schedule at which the rank posted nothing.
  [[nodiscard]] Spot spotAt(JobRank rank, Rank row, const Place& place) const;
  /// The earliest of these: by the time posted where all are known, then by rank and operation. Nothing of none.
  [[nodiscard]] std::optional<Wait> earliest(const std::vector<Wait>& some) const;
  [[nodiscard]] SilentRank silentOf(JobRank rank) const;
};

/// `rank 1 waits in 1RECV_F3 (position 7) for rank 0`.
[[nodiscard]] std::string textOf(const Spot& spot);
/// `1RECV_F3 (position 7)`, or without an action the operation.
[[nodiscard]] std::string placeText(const Spot& spot);

}  // namespace pw::hang
