#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "schedules/families.h"

namespace pw::families {
namespace {

/// The two directions as a rank sees them: near microbatches enter the pipeline at its own half of the ranks, far ones at the other half.
enum Direction : std::uint8_t { Near, Far };

/// One rank's row being written: hands out the microbatches of each direction in order. Weight gradients are done in the order of
/// the input gradients, of both directions together.
class DualRow {
 public:
  DualRow(const Shape& shape, int rank, std::vector<Action>& actions) : actions_(actions) {
    const int depth = std::min(rank, shape.ranks - 1 - rank);
    const bool down = 2 * rank < shape.ranks;
    const int half = shape.microbatches / 2;
    stages_ = {Stage{depth}, Stage{shape.ranks - 1 - depth}};
    forward_ = backward_ = down ? std::array{0, half} : std::array{half, 0};
  }

  void f(Direction d) { actions_.push_back({stages_[d], ActionKind::Forward, Microbatch{forward_[d]++}}); }
  void b(Direction d) { actions_.push_back({stages_[d], ActionKind::Backward, Microbatch{backward_[d]++}}); }
  void fb(Direction forward, Direction backward) {
    f(forward);
    actions_.back().overlapsNext = true;
    b(backward);
  }
  void i(Direction d) {
    actions_.push_back({stages_[d], ActionKind::BackwardInput, Microbatch{backward_[d]++}});
    delayed_.push_back(actions_.back());
  }
  void w() {
    const Action& input = delayed_[weights_++];
    actions_.push_back({input.stage, ActionKind::BackwardWeight, input.microbatch});
  }

 private:
  std::vector<Action>& actions_;
  std::array<Stage, 2> stages_;
  std::array<int, 2> forward_;
  std::array<int, 2> backward_;
  std::vector<Action> delayed_;  ///< every I so far
  std::size_t weights_ = 0;      ///< how many of them have had their W
};

/// `depth`: ranks between this one and the nearer end; `toMiddle`: between this one and the middle.
void writeRow(const Shape& shape, int rank, std::vector<Action>& actions) {
  DualRow row(shape, rank, actions);
  const int depth = std::min(rank, shape.ranks - 1 - rank);
  const int toMiddle = shape.ranks / 2 - 1 - depth;
  // 1, 2: fill with near microbatches until the first far one arrives, then take turns.
  for (int k = 0; k < 2 * toMiddle; ++k) row.f(Near);
  for (int k = 0; k <= depth; ++k) {
    row.f(Near);
    row.f(Far);
  }
  // 3: the first far gradients; their W fills the wait for the next far forward.
  for (int k = 0; k < toMiddle; ++k) {
    row.i(Far);
    row.w();
    row.f(Far);
  }
  // 4: the steady part. The first pair of a middle rank is not overlapped, as its neighbour waits for that forward.
  for (int k = 0; k < shape.microbatches / 2 - shape.ranks + depth + 1; ++k) {
    if (k == 0 && toMiddle == 0) {
      row.f(Near);
      row.b(Far);
    } else {
      row.fb(Near, Far);
    }
    row.fb(Far, Near);
  }
  // 5: no near forwards are left.
  for (int k = 0; k < toMiddle; ++k) {
    row.b(Far);
    row.fb(Far, Near);
  }
  // 6: only backwards are left; the second half of them keeps its W for the gaps of the drain.
  for (int k = 0; k < 2 * (depth + 1); ++k) {
    const Direction d = k % 2 == 0 ? Far : Near;
    k <= depth ? row.b(d) : row.i(d);
  }
  // 7, 8: drain.
  for (int k = 0; k < toMiddle; ++k) {
    row.w();
    row.i(Near);
  }
  for (int k = 0; k <= depth; ++k) row.w();
}

}  // namespace

/// DualPipe (DeepSeek-V3 technical report, 2412.19437, section 3.2.1 and table 2; the steps are those of the authors' repository
/// deepseek-ai/DualPipe): half of the microbatches enter at each end, and in the steady part every forward shares a slot with a
/// backward of the other direction. At most R + 1 microbatches are live on each rank.
Schedule dualPipe(const Shape& shape) {
  Schedule schedule = empty("dualpipe", shape, bidirectionalPlacement(shape));
  for (int rank = 0; rank < shape.ranks; ++rank) {
    auto& actions = schedule.rows[static_cast<std::size_t>(rank)];
    actions.reserve(3 * static_cast<std::size_t>(shape.microbatches));
    writeRow(shape, rank, actions);
  }
  return schedule;
}

std::optional<std::string> refusalOfDualPipe(const Shape& shape) {
  if (auto refusal = needOneChunk(shape)) return refusal;
  if (shape.ranks % 2 != 0) {
    return fmt::format("it needs an even number of ranks (you have {})", shape.ranks);
  }
  if (shape.microbatches % 2 != 0 || shape.microbatches < 2 * shape.ranks) {
    return fmt::format("it needs an even number of microbatches, at least two per rank, but there are {} on {} ranks; use {}",
                       shape.microbatches, shape.ranks, std::max(shape.microbatches + shape.microbatches % 2, 2 * shape.ranks));
  }
  return std::nullopt;
}

}  // namespace pw::families
