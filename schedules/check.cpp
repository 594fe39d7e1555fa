#include "schedules/check.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <tuple>
#include <utility>

#include <fmt/format.h>

#include "schedules/error.h"
#include "schedules/examination.h"

namespace pw {
namespace {

using namespace examination;

constexpr std::array kMessages{ActionKind::SendForward, ActionKind::RecvForward, ActionKind::SendBackward, ActionKind::RecvBackward};

// ---- Shape -------------------------------------------------------------------------------------------------------

/// Refuses stage and microbatch counts that the actions cannot fill. Such a schedule is far from complete, so one problem that points at
/// the largest microbatch, the likely typing error, says more than a list of everything that is missing.
void checkFill(Examination& e) {
  std::int64_t actions = 0;
  std::optional<std::tuple<Microbatch, Rank, std::int32_t>> largest;
  for (std::size_t rank = 0; rank < e.schedule.rows.size(); ++rank) {
    const auto& row = e.schedule.rows[rank];
    for (std::size_t i = 0; i < row.size(); ++i) {
      if (row[i].kind == ActionKind::Idle) continue;
      ++actions;
      if (largest && std::get<0>(*largest) >= row[i].microbatch) continue;
      largest.emplace(row[i].microbatch, Rank{rank}, static_cast<std::int32_t>(i));
    }
  }
  const std::int64_t pairs = std::int64_t{e.stages()} * e.schedule.microbatches;
  if (pairs <= 4 * actions + 1024) return;  // 1024: for small schedules the missing actions are listed
  const std::string message =
      fmt::format("{} stages and {} microbatches need at least {} actions, but the schedule has {}; is the largest number a typing error?",
                  e.stages(), e.schedule.microbatches, pairs, actions);
  if (!largest) return e.report(Rank{0}, kNowhere, {}, message);
  const auto [microbatch, rank, position] = *largest;
  e.report(rank, position, e.schedule.rows[rank.index()][static_cast<std::size_t>(position)], message);
}

/// The stages placed on ranks that do not exist; `mirrored`: their second replicas.
void checkPlacedRanks(Examination& e, const std::vector<Rank>& rankOfStage, bool mirrored) {
  const auto ranks = static_cast<std::int64_t>(e.schedule.rows.size());
  for (std::size_t stage = 0; stage < rankOfStage.size(); ++stage) {
    const Rank rank = rankOfStage[stage];
    if (rank.value >= 0 && rank.value < ranks) continue;
    e.report(Rank{0}, kNowhere, {Stage{stage}, ActionKind::Forward, Microbatch{0}},
             fmt::format("{}stage {} is placed on rank {}, but the ranks are 0 to {}", mirrored ? "the second replica of " : "", stage,
                         rank.value, ranks - 1));
  }
}

/// What must hold before a table indexed by stage and microbatch can be built.
void checkShape(Examination& e) {
  const Schedule& s = e.schedule;
  if (s.rows.empty()) e.report(Rank{0}, kNowhere, {}, "the schedule has no rank");
  if (s.placement.rankOfStage.empty()) e.report(Rank{0}, kNowhere, {}, "the schedule has no stage");
  if (s.microbatches < 1) e.report(Rank{0}, kNowhere, {}, "the schedule has no microbatch");
  if (s.placement.bidirectional() && s.placement.mirrorOfStage.size() != s.placement.stages()) {
    e.report(Rank{0}, kNowhere, {},
             fmt::format("the placement has {} stages, but second replicas of {}", s.placement.stages(), s.placement.mirrorOfStage.size()));
  }
  checkPlacedRanks(e, s.placement.rankOfStage, false);
  checkPlacedRanks(e, s.placement.mirrorOfStage, true);
  if (e.problems.empty()) checkFill(e);
}

// ---- Single actions ----------------------------------------------------------------------------------------------

/// Why an action cannot be on this rank, as a sentence; nothing when it can.
std::optional<std::string> misplacement(const Examination& e, Rank rank, const Action& a) {
  if (!e.hasStage(a.stage)) {
    return fmt::format("{}: stage {} does not exist; the stages are 0 to {}", toString(a), a.stage.value, e.stages() - 1);
  }
  const Placement& placement = e.schedule.placement;
  if (!hasMicrobatch(a.kind)) {
    if (a.microbatch.value != -1) {
      return fmt::format("{} applies to the whole stage, but has microbatch {}", toString(a), a.microbatch.value);
    }
    if (placement.holds(rank, a.stage)) return std::nullopt;
    const int first = placement.rankOfStage[a.stage.index()].value;
    return fmt::format("{} is on rank {}, but stage {} is on rank {}", toString(a), rank.value, a.stage.value,
                       placement.bidirectional() ? fmt::format("{} and rank {}", first, placement.mirrorOfStage[a.stage.index()].value)
                                                 : fmt::to_string(first));
  }
  const int last = e.schedule.microbatches - 1;
  if (a.microbatch.value < 0 || a.microbatch.value > last) {
    return fmt::format("{}: microbatch {} does not exist; the microbatches are 0 to {}", toString(a), a.microbatch.value, last);
  }
  if (e.rankOf(a) == rank) return std::nullopt;
  return fmt::format("{} is on rank {}, but stage {} {}is on rank {}", toString(a), rank.value, a.stage.value,
                     placement.bidirectional() ? fmt::format("of microbatch {} ", a.microbatch.value) : "", e.rankOf(a).value);
}

/// A flagged action must be an F right before a B of another (stage, microbatch).
void checkSlot(Examination& e, Rank rank, std::size_t at) {
  const auto& row = e.schedule.rows[rank.index()];
  const Action& f = row[at];
  const bool atEnd = at + 1 == row.size();
  if (f.kind == ActionKind::Forward && !atEnd && row[at + 1].kind == ActionKind::Backward) {
    const Action& b = row[at + 1];
    if (f.stage != b.stage || f.microbatch != b.microbatch) return;
    return e.report(
        rank, static_cast<std::int32_t>(at), f,
        fmt::format("{} overlaps {}, which needs it; a slot takes a B of another stage or microbatch", toString(f), toString(b)));
  }
  const auto shown = [](const Action& a) { return a.kind == ActionKind::Idle ? "an idle cell" : toString(a); };
  e.report(rank, static_cast<std::int32_t>(at), f,
           fmt::format("{} is marked to overlap the next action, which is {}; a slot is an F right before a B", shown(f),
                       atEnd ? "nothing" : shown(row[at + 1])));
}

/// Where each stage's REDUCE_GRAD was found, by stage and replica.
using Reductions = std::vector<std::int32_t>;

std::int32_t& reductionAt(const Examination& e, Reductions& reductions, Rank rank, Stage stage) {
  const bool first = e.schedule.placement.rankOfStage[stage.index()] == rank;
  return reductions[2 * stage.index() + (first ? 0 : 1)];
}

/// Enters one action into the table, if it is allowed there.
void enterAction(Examination& e, Rank rank, std::int32_t position, Reductions& reductions) {
  const Action& a = e.schedule.rows[rank.index()][static_cast<std::size_t>(position)];
  if (auto why = misplacement(e, rank, a)) return e.report(rank, position, a, *std::move(why));
  if (a.kind == ActionKind::Unshard || a.kind == ActionKind::Reshard) return;
  std::int32_t& reduced = reductionAt(e, reductions, rank, a.stage);
  if ((a.kind == ActionKind::Backward || a.kind == ActionKind::BackwardWeight) && reduced != kNowhere) {
    e.report(rank, position, a,
             fmt::format("{} comes after {}REDUCE_GRAD (position {}), which would miss it", toString(a), a.stage.value, reduced));
  }
  std::int32_t& place = hasMicrobatch(a.kind) ? e.place(a) : reduced;
  if (place == kNowhere) {
    place = position;
  } else {
    e.report(rank, position, a, fmt::format("{} is done twice; first at position {}", toString(a), place));
  }
}

void enterRow(Examination& e, Rank rank, Reductions& reductions) {
  const auto& row = e.schedule.rows[rank.index()];
  bool works = false;
  for (std::size_t i = 0; i < row.size(); ++i) {
    const ActionKind kind = row[i].kind;
    if (row[i].overlapsNext) checkSlot(e, rank, i);
    if (kind == ActionKind::Idle) continue;
    works = true;
    e.training = e.training || (isCompute(kind) && isBackward(kind));
    e.lowered = e.lowered || isMessage(kind);
    enterAction(e, rank, static_cast<std::int32_t>(i), reductions);
  }
  if (!works)
    e.report(rank, kNowhere, kIdle, fmt::format("there is nothing to do: row {} is empty; give it a stage or remove it", rank.value + 1));
}

/// Reports `later` when both are in the row and `earlier` does not come first.
void checkOrder(Examination& e, const Action& earlier, const Action& later) {
  const std::int32_t first = e.place(earlier);
  const std::int32_t second = e.place(later);
  if (first == kNowhere || second == kNowhere || first < second) return;
  e.report(later, fmt::format("{} comes before {} (position {}), which it needs", toString(later), toString(earlier), first));
}

/// Whether a stage's work on one microbatch is complete and in order, as nearly always.
bool isWhole(const Examination& e, Stage stage, Microbatch microbatch) {
  const auto at = e.placesOf(stage, microbatch);
  const std::int32_t f = at[0], b = at[1], i = at[2], w = at[3];
  if (f == kNowhere) return false;
  if (i == kNowhere && w == kNowhere) return b > f || (b == kNowhere && !e.training);
  return b == kNowhere && f < i && i < w;
}

/// Completeness and local order of one stage's work on one microbatch.
void checkPair(Examination& e, Stage stage, Microbatch microbatch) {
  if (isWhole(e, stage, microbatch)) return;
  const Action f{stage, ActionKind::Forward, microbatch};
  const Action b{stage, ActionKind::Backward, microbatch};
  const Action i{stage, ActionKind::BackwardInput, microbatch};
  const Action w{stage, ActionKind::BackwardWeight, microbatch};
  const auto stands = [&](const Action& a) { return e.place(a) != kNowhere; };
  const auto missing = [&](const Action& a) {
    e.report(a, fmt::format("{} is missing: rank {}, which holds stage {}, never does it", toString(a), e.rankOf(a).value, stage.value));
  };
  if (!stands(f)) missing(f);
  for (const Action& half : {i, w}) {
    if (stands(half) && stands(b)) {
      e.report(half, fmt::format("{} repeats half of {} (position {})", toString(half), toString(b), e.place(b)));
    }
  }
  if (e.training && !stands(b)) {
    if (!stands(i) && !stands(w)) missing(b);
    if (stands(i) && !stands(w)) missing(w);
    if (!stands(i) && stands(w)) missing(i);
  }
  checkOrder(e, f, b);
  checkOrder(e, f, i);
  checkOrder(e, i, w);
}

// ---- Messages ----------------------------------------------------------------------------------------------------

/// Whether a message must be in the schedule.
bool isNeeded(const Examination& e, const Action& message) {
  const Action other = counterpart(message);
  return e.hasStage(other.stage) && e.rankOf(other) != e.rankOf(message) && (e.training || isForward(message.kind));
}

/// Why a message is not needed.
std::string needlessness(const Examination& e, const Action& message) {
  const Action other = counterpart(message);
  if (other.stage.value < 0) return "there is no stage before the first";
  if (other.stage.value >= e.stages()) return "there is no stage after the last";
  if (e.rankOf(other) != e.rankOf(message)) return "the schedule has no backward";
  return fmt::format("stage {} is on the same rank {}", other.stage.value, e.rankOf(other).value);
}

/// Presence and local order of one message of a lowered schedule.
void checkMessage(Examination& e, const Action& message) {
  const bool stands = e.place(message) != kNowhere;
  if (!isNeeded(e, message)) {
    if (stands) e.report(message, fmt::format("{} is not needed: {}", toString(message), needlessness(e, message)));
    return;
  }
  if (!stands) {
    const Action other = counterpart(message);
    e.report(message, fmt::format("{} is missing on rank {}: it is the other end of {} of rank {}", toString(message),
                                  e.rankOf(message).value, toString(other), e.rankOf(other).value));
    return;
  }
  const Action compute = isForward(message.kind) ? Action{message.stage, ActionKind::Forward, message.microbatch}
                                                 : e.backwardOf(message.stage, message.microbatch);
  if (isSend(message.kind)) {
    checkOrder(e, compute, message);
  } else {
    checkOrder(e, message, compute);
  }
}

void checkPairs(Examination& e) {
  for (int s = 0; s < e.stages(); ++s) {
    for (int m = 0; m < e.schedule.microbatches; ++m) {
      const Stage stage{s};
      const Microbatch microbatch{m};
      checkPair(e, stage, microbatch);
      if (!e.lowered) continue;
      for (const ActionKind kind : kMessages) checkMessage(e, {stage, kind, microbatch});
    }
  }
}

// ---- Sizes -------------------------------------------------------------------------------------------------------

/// Refuses lists that do not have one valid size per stage.
void requireSizes(const Schedule& schedule, const MessageSizes& sizes) {
  const std::size_t stages = schedule.placement.stages();
  for (const auto& [list, what] : {std::pair{&sizes.sends, "sent"}, std::pair{&sizes.receives, "received"}}) {
    if (list->size() != stages) {
      throw UsageError(
          fmt::format("there are {} {} message sizes for the {} stages of schedule {}; give one for each stage, "
                      "0 where it has no message",
                      list->size(), what, stages, schedule.name));
    }
    const auto negative = std::ranges::find_if(*list, [](Bytes bytes) { return bytes < 0; });
    if (negative == list->end()) continue;
    throw UsageError(fmt::format("the {} message size of stage {} is {} bytes; sizes cannot be negative", what, negative - list->begin(),
                                 negative->value));
  }
}

struct Place {
  Rank rank;
  std::int32_t position;
};

/// By stage: its first forward receive; in compute-only schedules its first F whose input comes from another rank.
std::vector<std::optional<Place>> firstReceives(const Schedule& schedule) {
  const Placement& placement = schedule.placement;
  std::vector<std::optional<Place>> first(placement.stages());
  if (placement.bidirectional() && placement.mirrorOfStage.size() != placement.stages()) return first;  // reported by `check`
  const bool lowered = std::ranges::any_of(
      schedule.rows, [](const auto& row) { return std::ranges::any_of(row, [](const Action& a) { return isMessage(a.kind); }); });
  for (std::size_t rank = 0; rank < schedule.rows.size(); ++rank) {
    const auto& row = schedule.rows[rank];
    for (std::size_t i = 0; i < row.size(); ++i) {
      const Action& a = row[i];
      if (a.kind != (lowered ? ActionKind::RecvForward : ActionKind::Forward)) continue;
      if (a.stage.value < 1 || a.stage.index() >= placement.stages() || first[a.stage.index()]) continue;
      if (placement.rankOf(Stage{a.stage.value - 1}, a.microbatch) == Rank{rank}) continue;
      first[a.stage.index()] = Place{Rank{rank}, static_cast<std::int32_t>(i)};
    }
  }
  return first;
}

}  // namespace

std::string_view nameOf(Stops stops) {
  switch (stops) {
    case Stops::Always: return "always";
    case Stops::OneChannel: return "one_channel";
    case Stops::Blocking: return "blocking_sends";
    case Stops::Nothing: return "nothing";
  }
  return "?";
}

std::vector<Problem> check(const Schedule& schedule) {
  Examination e{.schedule = schedule};
  checkShape(e);
  if (!e.problems.empty()) return std::move(e.problems);
  e.places.assign(schedule.placement.stages() * static_cast<std::size_t>(schedule.microbatches) * kKindsPerPair, kNowhere);
  Reductions reductions(2 * schedule.placement.stages(), kNowhere);
  for (std::size_t rank = 0; rank < schedule.rows.size(); ++rank) enterRow(e, Rank{rank}, reductions);
  checkPairs(e);
  if (e.problems.empty()) checkRuns(e);
  std::ranges::stable_sort(e.problems, {}, [](const Problem& p) { return std::tuple(p.rank, p.position); });
  return std::move(e.problems);
}

std::string refusalOf(std::string_view name, const Problem& problem) {
  return fmt::format("{} cannot be run: rank {}: {}", name, problem.rank.value, problem.message);
}

void requireRunnable(std::string_view name, const Schedule& schedule) {
  const auto problems = check(schedule);
  const auto first = std::ranges::find(problems, Stops::Always, &Problem::stops);
  if (first != problems.end()) throw UsageError(refusalOf(name, *first) + "; `pipewright check` lists all problems.");
}

std::vector<Problem> checkSizes(const Schedule& schedule, const MessageSizes& sizes) {
  requireSizes(schedule, sizes);
  const auto receives = firstReceives(schedule);
  std::vector<Problem> problems;
  for (std::size_t stage = 1; stage < receives.size(); ++stage) {
    if (!receives[stage] || sizes.receives[stage] == sizes.sends[stage - 1]) continue;
    const auto [rank, position] = *receives[stage];
    const Action& receive = schedule.rows[rank.index()][static_cast<std::size_t>(position)];
    problems.push_back({rank, position, receive,
                        fmt::format("stage {} sends {} bytes to stage {}, which expects {} bytes ({}): the receive hangs or reads wrong "
                                    "values, and so does that of the gradient",
                                    stage - 1, sizes.sends[stage - 1].value, stage, sizes.receives[stage].value, toString(receive))});
  }
  std::ranges::stable_sort(problems, {}, [](const Problem& p) { return std::tuple(p.rank, p.position); });
  return problems;
}

std::vector<Problem> checkPlacement(const Schedule& schedule, PlacementKind wantedKind) {
  const Shape shape = shapeOf(schedule);
  const auto misfit = [&](std::string_view needs) {
    return std::vector<Problem>{{Rank{0}, -1, kIdle,
                                 fmt::format("a {} placement has {}, this schedule has {} stages on {} ranks", nameOf(wantedKind), needs,
                                             shape.stages, shape.ranks),
                                 Stops::Nothing}};
  };
  Placement wanted;
  switch (wantedKind) {
    case PlacementKind::Custom: return {};
    case PlacementKind::Loop: wanted = loopPlacement(shape); break;
    case PlacementKind::V:
      if (shape.stages != 2 * shape.ranks) return misfit("two stages per rank");
      wanted = wavePlacement(shape);
      break;
    case PlacementKind::Wave:
      if (shape.stages % (2 * shape.ranks) != 0) return misfit("an even number of stages per rank");
      wanted = wavePlacement(shape);
      break;
    case PlacementKind::Bidirectional:
      if (shape.stages != shape.ranks) return misfit("as many stages as ranks");
      wanted = bidirectionalPlacement(shape);
      break;
  }
  const Microbatch last{schedule.microbatches - 1};
  std::vector<std::array<int, 2>> forwards(schedule.placement.stages(), {-1, -1});  // where F of the first and the last microbatch stand
  for (std::size_t r = 0; r < schedule.rows.size(); ++r) {
    const auto& row = schedule.rows[r];
    for (std::size_t i = 0; i < row.size(); ++i) {
      const Action& a = row[i];
      if (a.kind != ActionKind::Forward || a.stage.index() >= forwards.size()) continue;
      if (schedule.placement.rankOf(a.stage, a.microbatch) != Rank(r)) continue;
      if (a.microbatch == Microbatch{0}) forwards[a.stage.index()][0] = static_cast<int>(i);
      if (a.microbatch == last) forwards[a.stage.index()][1] = static_cast<int>(i);
    }
  }
  std::vector<Problem> problems;
  for (std::size_t s = 0; s < schedule.placement.stages(); ++s) {
    for (const Microbatch m : {Microbatch{0}, last}) {
      const Rank home = schedule.placement.rankOf(Stage{s}, m);
      if (home == wanted.rankOf(Stage{s}, m) || (m.value > 0 && !wanted.bidirectional() && !schedule.placement.bidirectional())) continue;
      problems.push_back({home,
                          forwards[s][m.value > 0 ? 1 : 0],
                          {Stage{s}, ActionKind::Forward, m},
                          fmt::format("stage {} is on rank {} for microbatch {}; a {} placement has it on rank {}", s, home.value, m.value,
                                      nameOf(wantedKind), wanted.rankOf(Stage{s}, m).value),
                          Stops::Nothing});
    }
  }
  return problems;
}

}  // namespace pw
