#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "engine/ops.h"
#include "simulator/plan/plan.h"

namespace pw {

/// Which of a row's actions a rank may run next when it takes whichever is ready first. The actions of a part (F; B or I; W) keep their
/// order within a stage, and a stage never has more microbatches in flight (F to B, or W; I to W) than in the row itself. The row satisfies
/// both constraints, so no rank can deadlock, whatever becomes ready first.
class ReadyOrder {
 public:
  /// One step of the rank's row; `plan` must outlive it.
  ReadyOrder(const Plan& plan, Rank rank, const std::vector<Op>& ops);

  /// From now on the action may run; call it in the order of the row.
  void open(const Action& action) { open_.push_back(action); }
  [[nodiscard]] bool hasOpen() const { return !open_.empty(); }
  /// Takes the first open action, in the order of the row, that may run and whose values are there: those of this rank's stages, and those
  /// of others according to `hasArrived`, which is called for each candidate that takes values until one has them. Nothing if there is
  /// none.
  [[nodiscard]] std::optional<Action> take(const std::function<bool(const Action&)>& hasArrived);
  /// What was taken has run. Returns whether it was the last action of its stage.
  bool finish(const Action& action);

 private:
  static constexpr std::size_t kParts = 3;
  /// What has been done of a stage, and how much may be in flight at once.
  struct StageCounts {
    std::array<int, kParts> done{};  ///< by part
    std::array<int, kParts> total{};
    int live = 0, mostLive = 0;        ///< F not yet answered by B (or W)
    int waiting = 0, mostWaiting = 0;  ///< I not yet followed by W

    void add(ActionKind kind);
  };
  [[nodiscard]] bool isNextOfItsPart(std::size_t at) const;
  [[nodiscard]] bool mayRun(const Action& action) const;
  [[nodiscard]] bool hasLocalValues(const Action& action) const;

  const Plan& plan_;
  Rank rank_;
  std::map<Stage, StageCounts> stages_;
  std::vector<Action> open_;
  std::set<Action> finished_;
};

/// Whether an action waits for values or gradients of other stages, and makes some.
[[nodiscard]] constexpr bool takesValues(ActionKind kind) { return kind != ActionKind::BackwardWeight; }

}  // namespace pw
