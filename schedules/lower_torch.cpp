#include "schedules/lower_torch.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "schedules/error.h"
#include "schedules/lower.h"

namespace pw {
namespace {

/// What torch's passes treat as one step: an action, or the two of a slot.
using Step = std::span<const Action>;

Step stepFrom(const std::vector<Action>& row, std::size_t begin) { return {&row[begin], beginsSlot(row, begin) ? 2U : 1U}; }
Step stepBefore(const std::vector<Action>& row, std::size_t end) {
  const std::size_t size = end >= 2 && beginsSlot(row, end - 2) ? 2 : 1;
  return {&row[end - size], size};
}

/// Which outputs and input gradients have been made, and who takes them.
class Handovers {
 public:
  explicit Handovers(const Schedule& schedule) : schedule_(schedule) {
    for (auto& made : made_) made.assign(schedule.placement.stages() * static_cast<std::size_t>(schedule.microbatches), false);
  }

  /// Whether the input from the neighbour is available: it was made on this rank, or its receive has been placed.
  [[nodiscard]] bool ready(const Action& a) const {
    const int towards = direction(a.kind);
    return towards == 0 || !exists(a.stage.value - towards) || made_[towards > 0][at(Stage{a.stage.value - towards}, a.microbatch)];
  }

  /// Records what the action has made. Returns its send if the consumer is on another rank.
  std::optional<Action> make(const Action& a) {
    const int towards = direction(a.kind);
    if (towards == 0) return std::nullopt;
    made_[towards > 0][at(a.stage, a.microbatch)] = true;
    if (!exists(a.stage.value + towards)) return std::nullopt;
    if (rankOf(a) == rankOf({Stage{a.stage.value + towards}, a.kind, a.microbatch})) return std::nullopt;
    return Action{a.stage, towards > 0 ? ActionKind::SendForward : ActionKind::SendBackward, a.microbatch};
  }

  [[nodiscard]] Rank rankOf(const Action& a) const { return schedule_.placement.rankOf(a.stage, a.microbatch); }

 private:
  /// +1 when the result goes to the stage after, −1 to the stage before, 0 to nobody.
  static int direction(ActionKind kind) { return kind == ActionKind::Forward ? 1 : makesGradient(kind) ? -1 : 0; }
  [[nodiscard]] bool exists(std::int32_t stage) const {
    return stage >= 0 && stage < static_cast<std::int32_t>(schedule_.placement.stages());
  }
  [[nodiscard]] std::size_t at(Stage stage, Microbatch m) const {
    return stage.index() * static_cast<std::size_t>(schedule_.microbatches) + m.index();
  }

  const Schedule& schedule_;
  std::array<std::vector<bool>, 2> made_;  ///< backward, forward; by stage × microbatch
};

/// The stages that a rank's next steps work on, each with the step that comes to it first: as many steps as it takes to
/// see torch's `max_active_stages`, of which a last slot can add one more.
struct Soon {
  static constexpr std::size_t kActive = 3;
  struct Use {
    Stage stage;
    std::size_t step;
  };
  std::array<Use, kActive + 1> uses{};
  std::size_t size = 0;

  [[nodiscard]] bool has(Stage stage) const {
    return std::any_of(uses.begin(), uses.begin() + size, [&](const Use& use) { return use.stage == stage; });
  }
  [[nodiscard]] bool full(std::size_t step) const { return size >= kActive && uses[size - 1].step != step; }
  void add(Stage stage, std::size_t step) {
    if (!full(step) && !has(stage)) uses[size++] = {stage, step};
  }
};

/// This step's stages, then those of the steps after it.
Soon soonest(Step step, std::size_t position, const Soon& after) {
  Soon soon;
  for (const Action& a : step) soon.add(a.stage, position);
  for (std::size_t i = 0; i < after.size; ++i) soon.add(after.uses[i].stage, after.uses[i].step);
  return soon;
}

Action ofStage(Stage stage, ActionKind kind) { return {stage, kind, Microbatch{-1}}; }

/// What is inserted where the active stages change, last first: RESHARD of those no longer needed, then UNSHARD of new ones.
void changeReversed(const Soon& before, const Soon& after, std::vector<Action>& reversed) {
  for (std::size_t i = after.size; i-- > 0;) {
    if (!before.has(after.uses[i].stage)) reversed.push_back(ofStage(after.uses[i].stage, ActionKind::Unshard));
  }
  const auto first = static_cast<std::ptrdiff_t>(reversed.size());
  for (std::size_t i = 0; i < before.size; ++i) {
    if (!after.has(before.uses[i].stage)) reversed.push_back(ofStage(before.uses[i].stage, ActionKind::Reshard));
  }
  std::sort(reversed.begin() + first, reversed.end(), std::greater<>{});
}

/// A row with UNSHARD before the first of the next stages, RESHARD when three others come sooner, and REDUCE_GRAD after the last gradient
/// of each stage. Runs from the end to the start, so that "next" and "last" are what was just seen. `reducedOn` is by stage: the last rank
/// that has its REDUCE_GRAD.
std::vector<Action> withSharding(const std::vector<Action>& row, Rank rank, std::vector<Rank>& reducedOn) {
  std::vector<Action> reversed;
  reversed.reserve(row.size() + row.size() / 4);
  Soon after;
  for (std::size_t end = row.size(); end > 0;) {
    const Step step = stepBefore(row, end);
    const Soon now = soonest(step, end, after);
    changeReversed(now, after, reversed);
    for (const Action& a : step) {
      if (a.kind != ActionKind::Backward && a.kind != ActionKind::BackwardWeight) continue;
      if (std::exchange(reducedOn[a.stage.index()], rank) != rank) reversed.push_back(ofStage(a.stage, ActionKind::ReduceGrad));
    }
    reversed.insert(reversed.end(), step.rbegin(), step.rend());
    after = now;
    end -= step.size();
  }
  changeReversed({}, after, reversed);
  std::reverse(reversed.begin(), reversed.end());
  return reversed;
}

}  // namespace

/// In each round every rank takes one step of its row, if its inputs are available; its sends and the matching receives are written
/// immediately.
Schedule lowerAsTorch(const Schedule& compute) {
  Handovers handovers(compute);
  Schedule lowered = compute;
  for (auto& row : lowered.rows) row.clear();
  std::vector<std::size_t> next(compute.rows.size(), 0);
  std::vector<std::size_t> unfinished;
  for (std::size_t rank = 0; rank < compute.rows.size(); ++rank) {
    if (!compute.rows[rank].empty()) unfinished.push_back(rank);
  }
  while (!unfinished.empty()) {
    bool progress = false;
    for (const std::size_t rank : unfinished) {
      const Step step = stepFrom(compute.rows[rank], next[rank]);
      if (!std::ranges::all_of(step, [&](const Action& a) { return handovers.ready(a); })) continue;
      lowered.rows[rank].insert(lowered.rows[rank].end(), step.begin(), step.end());
      for (const Action& a : step) {
        const auto send = handovers.make(a);
        if (!send) continue;
        lowered.rows[rank].push_back(*send);
        lowered.rows[handovers.rankOf(counterpart(*send)).index()].push_back(counterpart(*send));
      }
      next[rank] += step.size();
      progress = true;
    }
    if (!progress) {
      const std::size_t rank = unfinished.front();
      throw UsageError(
          fmt::format("schedule {} cannot be lowered: rank {} waits at {} for something that never happens; `pipewright check` says why",
                      compute.name, rank, toString(compute.rows[rank][next[rank]])));
    }
    std::erase_if(unfinished, [&](std::size_t rank) { return next[rank] == compute.rows[rank].size(); });
  }
  return lowered;
}

Schedule lowerAsTorchRuntime(const Schedule& compute) {
  Schedule sharded = computeOnly(compute);
  std::vector<Rank> reducedOn(sharded.placement.stages(), Rank{-1});
  for (std::size_t rank = 0; rank < sharded.rows.size(); ++rank) {
    sharded.rows[rank] = withSharding(sharded.rows[rank], Rank{rank}, reducedOn);
  }
  return lowerAsTorch(sharded);
}

}  // namespace pw
