#pragma once

#include <string>
#include <variant>
#include <vector>

#include "schedules/editing/waiting.h"

namespace pw {

// ---- Edits of a compute-only schedule by hand. Cells are those before the edit; of an overlapped pair both actions go together. ----

/// Actions of one rank go, together and in their order, to the place before `to` of that rank's row, or to the row's end.
struct MoveCells {
  std::vector<Cell> cells;
  Cell to;
};
/// Each action goes so many places later in its own row, earlier where negative, as far as the row goes; those moved keep their order.
struct ShiftCells {
  std::vector<Cell> cells;
  int by = 1;
};
/// Two actions of one rank change places.
struct SwapCells {
  Cell first, second;
};
/// Each B becomes an I and the W right after it.
struct SplitCells {
  std::vector<Cell> cells;
};
/// Each I becomes a B, and its W goes; the W may be given in its place.
struct MergeCells {
  std::vector<Cell> cells;
};
/// So many idle cells go before `to`, or to the end of its row. They show a pause and have no effect on a run.
struct AddIdle {
  Cell to;
  int count = 1;
};
/// Of these cells the idle ones go.
struct RemoveIdle {
  std::vector<Cell> cells;
};
/// An F and a B of one rank become an overlapped pair, where the earlier of them is.
struct PairCells {
  Cell first, second;
};
/// Overlapped pairs become two actions again, one after the other.
struct UnpairCells {
  std::vector<Cell> cells;
};
/// The order of these actions of one rank is repeated after the last of them for later microbatches, as long as the rest of the row has all
/// that it needs: each time as many microbatches later as the most frequent of their kinds and stages has actions. What is left follows.
struct RepeatCells {
  std::vector<Cell> cells;
};
/// A stage moves to another rank: its actions take the places there that they have by time, in units of F = I = W = 1 and B = 2. Idle
/// cells of both rows go.
struct MoveStage {
  Stage stage;
  Rank rank;
};
using Edit = std::variant<MoveCells, ShiftCells, SwapCells, SplitCells, MergeCells, AddIdle, RemoveIdle, PairCells, UnpairCells,
                          RepeatCells, MoveStage>;

/// Why an edit is not possible: one sentence, and the actions that would wait for each other, each for the one that follows and the last
/// for the first; empty where there is another reason.
struct Refusal {
  std::string reason;
  std::vector<Action> cycle;

  bool operator==(const Refusal&) const = default;
};

/// The schedule after an edit that leaves it without problems (`check`), else why not: it would have some, or the edit does not apply, as
/// where B is split that is none. Takes compute-only schedules without problems, and cells that are there. Cost: linear.
[[nodiscard]] std::variant<Schedule, Refusal> edited(const Schedule& schedule, const Edit& edit);
/// The same of moving an action, or the pair that it is in, to a place of its row that `legalPlaces` names, so that nothing is checked.
[[nodiscard]] Schedule moved(const Schedule& schedule, Cell cell, std::int32_t place);

}  // namespace pw
