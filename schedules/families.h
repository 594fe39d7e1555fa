#pragma once

// The schedule families listed in generate.cpp, by the source that has them. For use in this folder only.

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "schedules/schedule.h"

namespace pw::families {

/// One rank's row being written: hands out the microbatches of each (stage, kind) in order. For placements with equally many stages per
/// rank and one replica of each stage.
class Row {
 public:
  Row(const Shape& shape, std::vector<Action>& actions);

  /// Appends the stage's next forward, backward, input-backward or weight-backward.
  void f(Stage stage) { add(stage, ActionKind::Forward); }
  void b(Stage stage);
  void i(Stage stage) { add(stage, ActionKind::BackwardInput); }
  void w(Stage stage) { add(stage, ActionKind::BackwardWeight); }
  /// Appends one slot: the next forward of a stage with the next full backward of another.
  void fb(Stage forward, Stage backward);
  void idle(int cells);
  /// Microbatches of this kind done so far; a B counts as I and as W.
  [[nodiscard]] int done(Stage stage, ActionKind kind);

 private:
  void add(Stage stage, ActionKind kind);
  [[nodiscard]] int& next(Stage stage, ActionKind kind);

  std::vector<Action>& actions_;
  int ranks_;
  std::vector<int> next_;  ///< by chunk (stage div R) and kind F, I, W
};

/// A schedule without actions.
[[nodiscard]] Schedule empty(std::string_view name, const Shape& shape, Placement placement);

/// Why no family can generate this: a count is zero or absurdly large. Nothing when it is neither.
[[nodiscard]] std::optional<std::string> absurdity(const Shape& shape);
/// Why the family cannot generate this, if it needs: one stage per rank;
[[nodiscard]] std::optional<std::string> needOneChunk(const Shape& shape);
/// two stages per rank;
[[nodiscard]] std::optional<std::string> needTwoChunks(const Shape& shape);
/// equally many stages on every rank.
[[nodiscard]] std::optional<std::string> needWholeChunks(const Shape& shape);

// simple.cpp
[[nodiscard]] Schedule forwardOnly(const Shape& shape);
[[nodiscard]] Schedule gpipe(const Shape& shape);
[[nodiscard]] Schedule oneForwardOneBackward(const Shape& shape);
[[nodiscard]] Schedule loopedBfs(const Shape& shape);
[[nodiscard]] std::optional<std::string> torchRefuses1f1b(const Shape& shape);

// lockstep.cpp
[[nodiscard]] Schedule lockstep(const Shape& shape);

// interleaved.cpp
[[nodiscard]] Schedule interleaved(const Shape& shape);
[[nodiscard]] Schedule interleavedZeroBubble(const Shape& shape);
[[nodiscard]] std::optional<std::string> refusalOfInterleaved(const Shape& shape);
[[nodiscard]] std::optional<std::string> torchRefusesInterleaved(const Shape& shape);

// zero_bubble.cpp
[[nodiscard]] Schedule zbH1(const Shape& shape);
[[nodiscard]] Schedule zbH2(const Shape& shape);
[[nodiscard]] std::optional<std::string> refusalOfZbH2(const Shape& shape);

// zbv.cpp
[[nodiscard]] Schedule zbV(const Shape& shape);
[[nodiscard]] std::optional<std::string> refusalOfZbV(const Shape& shape);

// controllable.cpp
[[nodiscard]] Schedule vHalf(const Shape& shape);
[[nodiscard]] Schedule vMin(const Shape& shape);

// dualpipe.cpp
[[nodiscard]] Schedule dualPipe(const Shape& shape);
[[nodiscard]] std::optional<std::string> refusalOfDualPipe(const Shape& shape);

// dualpipe_v.cpp
[[nodiscard]] Schedule dualPipeV(const Shape& shape);
[[nodiscard]] std::optional<std::string> refusalOfDualPipeV(const Shape& shape);

// merged.cpp
[[nodiscard]] Schedule chimera(const Shape& shape);
[[nodiscard]] Schedule hanayo(const Shape& shape);
[[nodiscard]] std::optional<std::string> refusalOfChimera(const Shape& shape);
[[nodiscard]] std::optional<std::string> refusalOfHanayo(const Shape& shape);

}  // namespace pw::families
