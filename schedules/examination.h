#pragma once

// A schedule under `check`: its channels and executions; the static rules are in check.cpp. For use in this folder only.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "schedules/check.h"

namespace pw::examination {

inline constexpr std::int32_t kNowhere = -1;

/// The kinds that occur at most once per (stage, microbatch). They come first in ActionKind, so their values are indices.
inline constexpr std::size_t kKindsPerPair = 8;
static_assert(static_cast<std::size_t>(ActionKind::RecvBackward) + 1 == kKindsPerPair);

[[nodiscard]] constexpr bool isMessage(ActionKind kind) { return isSend(kind) || isReceive(kind); }

/// A schedule being checked: the position of each action in its rank's row, and the problems found so far.
struct Examination {
  const Schedule& schedule;
  std::vector<std::int32_t> places = {};  ///< by stage, microbatch, kind; kNowhere where there is none
  bool training = false;                  ///< holds a backward of any kind
  bool lowered = false;                   ///< holds a send or a receive
  std::vector<Problem> problems = {};

  [[nodiscard]] std::int32_t& place(const Action& a) { return places[entry(a)]; }
  [[nodiscard]] std::int32_t place(const Action& a) const { return places[entry(a)]; }
  /// Of all kinds of a stage and microbatch.
  [[nodiscard]] std::span<const std::int32_t, kKindsPerPair> placesOf(Stage stage, Microbatch microbatch) const {
    return std::span<const std::int32_t, kKindsPerPair>(places.data() + entry({stage, ActionKind::Forward, microbatch}), kKindsPerPair);
  }
  [[nodiscard]] Rank rankOf(const Action& a) const { return schedule.placement.rankOf(a.stage, a.microbatch); }
  [[nodiscard]] int stages() const { return static_cast<int>(schedule.placement.stages()); }
  [[nodiscard]] bool hasStage(Stage stage) const { return stage.value >= 0 && stage.value < stages(); }

  /// The action that computes the gradient of the stage's inputs: B, or I where the backward is split.
  [[nodiscard]] Action backwardOf(Stage stage, Microbatch microbatch) const {
    const Action split{stage, ActionKind::BackwardInput, microbatch};
    return place(split) != kNowhere ? split : Action{stage, ActionKind::Backward, microbatch};
  }

  void report(Rank rank, std::int32_t position, const Action& action, std::string message, Stops stops = Stops::Always) {
    problems.push_back({rank, position, action, std::move(message), stops});
  }
  /// A problem of an action that is in its rank's row, or is missing from it.
  void report(const Action& action, std::string message) {
    const Rank rank = rankOf(action);
    const std::int32_t position = place(action);
    const bool stands = position != kNowhere;
    report(rank, position, stands ? schedule.rows[rank.index()][static_cast<std::size_t>(position)] : action, std::move(message));
  }

 private:
  [[nodiscard]] std::size_t entry(const Action& a) const {
    const auto microbatches = static_cast<std::size_t>(schedule.microbatches);
    return (a.stage.index() * microbatches + a.microbatch.index()) * kKindsPerPair + static_cast<std::size_t>(a.kind);
  }
};

/// Executes a schedule without other problems under each transport and reports what stops it: a deadlock, messages
/// received out of order, and for lowered schedules what stops shared channels and blocking sends. Cost: linear.
void checkRuns(Examination& e);

}  // namespace pw::examination
