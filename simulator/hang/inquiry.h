#pragma once

// The job under diagnosis: its graph of waits, and words for its places. For use in this folder only.

#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
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
  /// Hosts only enqueue: a wait holds their device's stream, as torch's does with NCCL. Then a rank has come as far as its device.
  bool hostsRunAhead = false;
  std::vector<bool> doubtful{};  ///< by dump: what the rank does next needs none of its open operations; it need not wait for one

  Inquiry(const Dumps& all, const Rows* placed);

  /// How far a rank is known to have come in its row.
  struct Progress {
    Rank row{-1};
    std::optional<Place> last{};
    void advance(const Place& place) {
      if (!last || std::tie(place.step, place.position) > std::tie(last->step, last->position)) last = place;
    }
  };
  /// By what it posted; by what of it is done where hosts run ahead.
  [[nodiscard]] Progress progressOf(std::size_t dump) const;
  /// The other end of a message of a rank without a dump.
  struct Seen {
    bool done = false, awaited = false;  ///< awaited: its rank waits in it
  };
  /// By step and position in the row of a rank without a dump, as far as others posted their ends.
  [[nodiscard]] std::map<std::pair<int, int>, Seen> seenOf(JobRank rank) const;
  /// The dump's index; nothing where the rank left none.
  [[nodiscard]] std::optional<std::size_t> dumpOf(JobRank rank) const;
  [[nodiscard]] const RecordedOp& opOf(const Wait& wait) const;
  /// Whether the rank waits for nobody, or nothing is known of it: it left no dump or is known to be gone.
  [[nodiscard]] bool isSilent(JobRank rank) const;
  /// Whether this wait leads on to what the other rank waits for.
  [[nodiscard]] bool leadsOn(const Wait& wait) const;
  /// Whether a rank posted operations after one that is not done, so that it does not wait for each.
  [[nodiscard]] bool postsAhead() const;
  /// Whether a rank posted something after an action that needs a receive which is not done.
  [[nodiscard]] bool postsBeyondNeeds() const;
  /// Takes ranks to wait where their devices do: in the oldest open operation, or, where recorders say which operations devices began and
  /// this is none of them, for nobody: it computes before it.
  void devicesWait();
  [[nodiscard]] std::optional<std::size_t> neededOf(std::size_t dump) const;
  /// Takes ranks to wait for what their next action needs; where that is no open operation, for the oldest open one, which is doubtful. At
  /// the end of its row a rank waits for its sends: torch's runtime for the newest first. Where messages are waited for at once, a rank
  /// waits in the receive that it posted last, and before that in the send to the same rank right before it, as 1F1B starts them together.
  void receivesArePostedAhead();
  /// Takes the doubtful of these ranks to be silent. Returns whether there was one.
  bool silenceDoubtful(const std::vector<Wait>& waits);

  /// Takes ranks to wait in the oldest operation whose other end was not posted, where there is one: both ends of an older one were, and a
  /// recorder on the host learns that it is done only when the host waits for it. Returns whether that changed something.
  bool preferMissing();

  /// Takes ranks to wait in their last operation where that is a collective of Gloo, whose recorder calls one over whether it ended or
  /// failed, for members that left no dump or did not post it. Returns whether there was one.
  bool lastMayHaveFailed();

  [[nodiscard]] Spot spotOf(std::size_t dump, std::size_t op, JobRank on) const;
  [[nodiscard]] Spot spotOf(const Wait& wait) const;
  /// A place of the schedule at which the rank posted nothing.
  [[nodiscard]] bool knowsStep(JobRank rank) const;
  [[nodiscard]] Spot spotAt(JobRank rank, Rank row, const Place& place) const;
  /// The earliest of these: by the time posted where all are known, then by rank and operation. Nothing of none.
  [[nodiscard]] std::optional<Wait> earliest(const std::vector<Wait>& some) const;
  [[nodiscard]] SilentRank silentOf(JobRank rank) const;

 private:
  void addUnseen(SilentRank& silent) const;
};

/// `rank 1 waits in 1RECV_F3 (position 7) for rank 0`.
[[nodiscard]] std::string textOf(const Spot& spot);
/// `1RECV_F3 (position 7)`, or without an action the operation.
[[nodiscard]] std::string placeText(const Spot& spot);

}  // namespace pw::hang
