#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "simulator/hang/recording.h"

namespace pw::hang {

/// Where an operation of a dump stands in the schedule.
struct Place {
  int step = 0;       ///< from 0; of an incomplete dump counted from its first operation
  int position = -1;  ///< in the rank's row of `Rows::schedule`

  bool operator==(const Place&) const = default;
};

/// Where a rank posted something else than its row says.
struct Departure {
  std::size_t op = 0;  ///< the first operation that does not fit
  Place expected;      ///< what the row says instead
  /// What the rank posted is a message more than the row has in this step: the one after the row's last to or from that peer. Nothing where
  /// the row has it later, and the rank left out what comes before.
  std::optional<Action> extra{};
  /// It is in the row's order again after a few messages left out or added, or posted more than the row has in any order.
  bool certain = false;
};

/// A rank's operations in its row of the schedule.
struct RankRow {
  Rank row{-1};                                ///< −1: none; the rank is of no group of the schedule's size
  std::vector<std::optional<Place>> places{};  ///< by operation; none of what is no message of the row
  std::optional<Departure> departure{};
};

/// The schedule that a job ran, and what its ranks' operations are in it.
struct Rows {
  Schedule schedule;                       ///< with sends and receives
  std::vector<std::vector<int>> inFile{};  ///< by row and position: the position in the schedule as given, or −1
  bool atOnce = false;  ///< ranks wait for a message as soon as they post its receive, and post it when an action needs it
  bool exact = false;   ///< ranks follow the order of all messages of their rows; else only that of each rank pair and direction counts
  std::vector<RankRow> ranks{};  ///< as `Dumps::dumps`

  /// The action at a place of a rank's row.
  [[nodiscard]] const Action& at(Rank row, const Place& place) const {
    return schedule.rows[row.index()][static_cast<std::size_t>(place.position)];
  }
};

/// The row of a schedule of so many ranks that a rank of the job does: its place in the group, or where the group holds several pipelines
/// one after the other its place in that. −1: the group's size does not fit.
[[nodiscard]] Rank rowOf(const Dumps& dumps, std::size_t group, JobRank rank, int rows);
/// The row of a rank that need not have exchanged a message: by a group in which others do. −1: none.
[[nodiscard]] Rank rowOf(const Dumps& dumps, JobRank rank, int rows);
/// Finds what each rank's messages are in a schedule. Where the recorder names actions, they count. Else the k-th message to or from a peer
/// is the k-th of the row, which begins again with each step; and with a schedule that has sends and receives, the order of all messages is
/// the row's, but for operations that were started together. After a departure the row is entered again where the next messages fit. A
/// schedule without sends and receives gets those of the lowering that most ranks follow: of one stage a rank first those beside the
/// actions, as torch's schedules for that post them, else first those of torch's runtime. Where several ranks depart from each, or one may
/// only have another order, only the order of the messages of a rank pair counts. Messages of a runtime's set-up are no messages of the
/// row. A stage may give several tensors, each in a message of its own: where ranks depart, or both ends of a boundary of stages see sizes
/// that vary, up to eight forwards and as many or fewer backwards are tried, alike at all boundaries, and what leaves the fewest of both
/// counts. Where older operations were dropped, the row is entered where most operations fit. Cost: linear in operations, times the length
/// of a row for incomplete dumps, and times up to 36 where one tensor does not fit.
[[nodiscard]] Rows placeOps(const Dumps& dumps, const Schedule& schedule);

}  // namespace pw::hang
