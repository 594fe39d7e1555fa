#include "schedules/check.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <tuple>
#include <utility>

#include <fmt/format.h>

namespace pw {
namespace {

constexpr std::int32_t kNowhere = -1;

/// The kinds that stand at most once per (stage, microbatch); they are the first of ActionKind, so their value indexes.
constexpr std::size_t kKindsPerPair = 8;
static_assert(static_cast<std::size_t>(ActionKind::RecvBackward) + 1 == kKindsPerPair);

constexpr std::array kMessages{ActionKind::SendForward, ActionKind::RecvForward, ActionKind::SendBackward,
                               ActionKind::RecvBackward};

bool ofMicrobatch(ActionKind kind) { return static_cast<std::size_t>(kind) < kKindsPerPair; }
bool isForward(ActionKind kind) {
  return kind == ActionKind::Forward || kind == ActionKind::SendForward || kind == ActionKind::RecvForward;
}

/// A schedule being checked: where each action stands in its stage's row, and the problems found so far.
struct Examination {
  const Schedule& schedule;
  std::vector<std::int32_t> places = {};  ///< by stage, microbatch, kind; kNowhere where there is none
  bool training = false;                  ///< holds a backward of any kind
  bool lowered = false;                   ///< holds a send or a receive
  std::vector<Problem> problems = {};

  [[nodiscard]] std::int32_t& place(const Action& a) {
    const auto microbatches = static_cast<std::size_t>(schedule.microbatches);
    const std::size_t pair = a.stage.index() * microbatches + a.microbatch.index();
    return places[pair * kKindsPerPair + static_cast<std::size_t>(a.kind)];
  }
  [[nodiscard]] Rank rankOf(Stage stage) const { return schedule.rankOfStage[stage.index()]; }
  [[nodiscard]] int stages() const { return static_cast<int>(schedule.rankOfStage.size()); }

  /// The action that makes the gradient of the stage's inputs: B, or I where the backward is split.
  [[nodiscard]] Action backwardOf(Stage stage, Microbatch microbatch) {
    const Action split{stage, ActionKind::BackwardInput, microbatch};
    return place(split) != kNowhere ? split : Action{stage, ActionKind::Backward, microbatch};
  }

  void report(Rank rank, std::int32_t position, const Action& action, std::string message) {
    problems.push_back({rank, position, action, std::move(message)});
  }
  /// A problem of an action that stands in its stage's row, or is missing there.
  void report(const Action& action, std::string message) {
    report(rankOf(action.stage), place(action), action, std::move(message));
  }
};

// ---- Shape -------------------------------------------------------------------------------------------------------

/// Refuses shapes whose table would be larger than the actions can fill. Such a schedule is far from complete, so one
/// problem that points at the largest microbatch, the likely slip, says more than a list of all that is missing.
void checkFill(Examination& e) {
  std::int64_t actions = 0;
  std::optional<std::tuple<Microbatch, Rank, std::int32_t>> largest;
  for (std::size_t rank = 0; rank < e.schedule.rows.size(); ++rank) {
    const auto& row = e.schedule.rows[rank];
    actions += static_cast<std::int64_t>(row.size());
    for (std::size_t i = 0; i < row.size(); ++i) {
      if (largest && std::get<0>(*largest) >= row[i].microbatch) continue;
      largest.emplace(row[i].microbatch, Rank{rank}, static_cast<std::int32_t>(i));
    }
  }
  const std::int64_t pairs = std::int64_t{e.stages()} * e.schedule.microbatches;
  if (pairs <= 4 * actions + 1024) return;  // 1024: small schedules get their missing actions listed
  const std::string message = fmt::format(
      "{} stages and {} microbatches need at least {} actions, but the schedule has {}; is the largest number a slip?",
      e.stages(), e.schedule.microbatches, pairs, actions);
  if (!largest) return e.report(Rank{0}, kNowhere, {}, message);
  const auto [microbatch, rank, position] = *largest;
  e.report(rank, position, e.schedule.rows[rank.index()][static_cast<std::size_t>(position)], message);
}

/// What must hold before a table by stage and microbatch can be made.
void checkShape(Examination& e) {
  const Schedule& s = e.schedule;
  if (s.rows.empty()) e.report(Rank{0}, kNowhere, {}, "the schedule has no rank");
  if (s.rankOfStage.empty()) e.report(Rank{0}, kNowhere, {}, "the schedule has no stage");
  if (s.microbatches < 1) e.report(Rank{0}, kNowhere, {}, "the schedule has no microbatch");
  const auto ranks = static_cast<std::int64_t>(s.rows.size());
  for (std::size_t stage = 0; stage < s.rankOfStage.size(); ++stage) {
    const Rank rank = s.rankOfStage[stage];
    if (rank.value >= 0 && rank.value < ranks) continue;
    e.report(Rank{0}, kNowhere, {Stage{stage}, ActionKind::Forward, Microbatch{0}},
             fmt::format("stage {} is placed on rank {}, but the ranks are 0 to {}", stage, rank.value, ranks - 1));
  }
  if (e.problems.empty()) checkFill(e);
}

// ---- Single actions ----------------------------------------------------------------------------------------------

/// The sentence that says why an action cannot stand on this rank, or nothing.
std::optional<std::string> misplacement(const Examination& e, Rank rank, const Action& a) {
  if (a.stage.value < 0 || a.stage.value >= e.stages()) {
    return fmt::format("{}: there is no stage {}; the stages are 0 to {}", toString(a), a.stage.value, e.stages() - 1);
  }
  const int last = e.schedule.microbatches - 1;
  if (ofMicrobatch(a.kind) && (a.microbatch.value < 0 || a.microbatch.value > last)) {
    return fmt::format("{}: there is no microbatch {}; the microbatches are 0 to {}", toString(a), a.microbatch.value,
                       last);
  }
  if (!ofMicrobatch(a.kind) && a.microbatch.value != -1) {
    return fmt::format("{} belongs to the whole stage, but carries microbatch {}", toString(a), a.microbatch.value);
  }
  if (e.rankOf(a.stage) == rank) return std::nullopt;
  return fmt::format("{} stands on rank {}, but stage {} is on rank {}", toString(a), rank.value, a.stage.value,
                     e.rankOf(a.stage).value);
}

/// Enters a rank's actions into the table; `reducedAt` is where each stage's REDUCE_GRAD was met.
void enterRow(Examination& e, Rank rank, std::vector<std::int32_t>& reducedAt) {
  const auto& row = e.schedule.rows[rank.index()];
  if (row.empty()) e.report(rank, kNowhere, {}, fmt::format("rank {} has nothing to do", rank.value));
  for (std::size_t i = 0; i < row.size(); ++i) {
    const Action& a = row[i];
    const auto position = static_cast<std::int32_t>(i);
    e.training = e.training || (isCompute(a.kind) && a.kind != ActionKind::Forward);
    e.lowered = e.lowered || isSend(a.kind) || isReceive(a.kind);
    if (auto why = misplacement(e, rank, a)) {
      e.report(rank, position, a, *std::move(why));
      continue;
    }
    std::int32_t& reduced = reducedAt[a.stage.index()];
    if (isCompute(a.kind) && a.kind != ActionKind::Forward && reduced != kNowhere) {
      e.report(rank, position, a, fmt::format("{} comes after {}REDUCE_GRAD (position {}), which would miss it",
                                              toString(a), a.stage.value, reduced));
    }
    if (a.kind == ActionKind::Unshard || a.kind == ActionKind::Reshard) continue;
    std::int32_t& place = ofMicrobatch(a.kind) ? e.place(a) : reduced;
    if (place == kNowhere) {
      place = position;
    } else {
      e.report(rank, position, a, fmt::format("{} is done twice; first at position {}", toString(a), place));
    }
  }
}

/// Reports `later` when both stand in a row and `earlier` does not come first.
void checkOrder(Examination& e, const Action& earlier, const Action& later) {
  const std::int32_t first = e.place(earlier);
  const std::int32_t second = e.place(later);
  if (first == kNowhere || second == kNowhere || first < second) return;
  e.report(later, fmt::format("{} comes before {} (position {}), which it needs", toString(later), toString(earlier),
                              first));
}

/// Completeness and local order of one stage's work on one microbatch.
void checkPair(Examination& e, Stage stage, Microbatch microbatch) {
  const Action f{stage, ActionKind::Forward, microbatch};
  const Action b{stage, ActionKind::Backward, microbatch};
  const Action i{stage, ActionKind::BackwardInput, microbatch};
  const Action w{stage, ActionKind::BackwardWeight, microbatch};
  const auto stands = [&](const Action& a) { return e.place(a) != kNowhere; };
  const auto missing = [&](const Action& a) {
    e.report(a, fmt::format("{} is missing: rank {}, which holds stage {}, never does it", toString(a),
                            e.rankOf(stage).value, stage.value));
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

/// Why a message must not be in the schedule; nothing where it must.
std::optional<std::string> needlessness(const Examination& e, const Action& message) {
  const Stage other = counterpart(message).stage;
  if (other.value < 0) return "the first stage has none before it";
  if (other.value >= e.stages()) return "the last stage has none after it";
  if (e.rankOf(other) == e.rankOf(message.stage)) {
    return fmt::format("stage {} is on the same rank {}", other.value, e.rankOf(other).value);
  }
  if (!e.training && !isForward(message.kind)) return "the schedule has no backward";
  return std::nullopt;
}

/// Presence and local order of one message of a lowered schedule.
void checkMessage(Examination& e, const Action& message) {
  const bool stands = e.place(message) != kNowhere;
  if (const auto why = needlessness(e, message)) {
    if (stands) e.report(message, fmt::format("{} is needless: {}", toString(message), *why));
    return;
  }
  const Action other = counterpart(message);
  if (!stands) {
    e.report(message, fmt::format("{} is missing on rank {}: it is the other end of {} of rank {}", toString(message),
                                  e.rankOf(message.stage).value, toString(other), e.rankOf(other.stage).value));
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

// ---- Execution ---------------------------------------------------------------------------------------------------

/// The result of executing: how many actions each rank got done.
using Progress = std::vector<std::int32_t>;

/// What an action waits for beyond what is certain from its own row: a neighbour stage's compute action, or the other
/// end of a message. With buffered sends a send waits for nothing.
std::optional<Action> awaited(Examination& e, const Action& a, bool blockingSends) {
  const int hop = isForward(a.kind) ? -1 : +1;
  const Stage before{a.stage.value + hop};
  switch (a.kind) {
    case ActionKind::Forward:
    case ActionKind::Backward:
    case ActionKind::BackwardInput:
      if (before.value < 0 || before.value >= e.stages()) return std::nullopt;
      if (e.lowered && e.rankOf(before) != e.rankOf(a.stage)) return std::nullopt;
      return a.kind == ActionKind::Forward ? Action{before, a.kind, a.microbatch} : e.backwardOf(before, a.microbatch);
    case ActionKind::RecvForward:
    case ActionKind::RecvBackward: return counterpart(a);
    case ActionKind::SendForward:
    case ActionKind::SendBackward: return blockingSends ? std::optional{counterpart(a)} : std::nullopt;
    case ActionKind::BackwardWeight:
    case ActionKind::ReduceGrad:
    case ActionKind::Unshard:
    case ActionKind::Reshard: return std::nullopt;
  }
  return std::nullopt;
}

/// Executes once. A rank runs until it waits for an action that another has not done, and leaves its number there; the
/// other wakes it. An action is awaited by at most one rank, and each is visited once and once per wake: linear.
/// With blocking sends a message is done when both ranks are at it; whoever comes second moves both on.
Progress execute(Examination& e, bool blockingSends) {
  const auto& rows = e.schedule.rows;
  Progress done(rows.size(), 0);
  std::vector<std::vector<std::int32_t>> waiter;  // by rank and position: the rank that waits, or kNowhere
  waiter.reserve(rows.size());
  for (const auto& row : rows) waiter.emplace_back(row.size(), kNowhere);
  std::vector<Rank> ready;
  for (std::size_t rank = rows.size(); rank > 0; --rank) ready.emplace_back(rank - 1);
  const auto finish = [&](Rank rank) {
    auto& cursor = done[rank.index()];
    const std::int32_t woken = waiter[rank.index()][static_cast<std::size_t>(cursor)];
    if (woken != kNowhere) ready.emplace_back(woken);
    ++cursor;
  };
  while (!ready.empty()) {
    const Rank rank = ready.back();
    ready.pop_back();
    const auto& row = rows[rank.index()];
    const auto& cursor = done[rank.index()];
    while (static_cast<std::size_t>(cursor) < row.size()) {
      const Action& action = row[static_cast<std::size_t>(cursor)];
      const auto needed = awaited(e, action, blockingSends);
      if (needed) {
        const Rank peer = e.rankOf(needed->stage);
        const std::int32_t place = e.place(*needed);
        if (blockingSends && !isCompute(action.kind)) {
          if (done[peer.index()] != place) break;  // the peer will find this rank here
          finish(peer);
          ready.push_back(peer);
        } else if (done[peer.index()] <= place) {
          waiter[peer.index()][static_cast<std::size_t>(place)] = rank.value;
          break;
        }
      }
      finish(rank);
    }
  }
  return done;
}

/// The cycle of ranks that wait for each other, from its lowest rank on; empty when every rank got to its end.
/// Of several cycles, the one the lowest waiting rank leads to.
std::vector<Rank> waitingCycle(Examination& e, const Progress& done, bool blockingSends) {
  const auto& rows = e.schedule.rows;
  std::size_t first = 0;
  while (first < rows.size() && static_cast<std::size_t>(done[first]) == rows[first].size()) ++first;
  if (first == rows.size()) return {};
  const auto next = [&](Rank rank) {
    const Action& action = rows[rank.index()][static_cast<std::size_t>(done[rank.index()])];
    return e.rankOf(awaited(e, action, blockingSends)->stage);
  };
  std::vector<bool> met(rows.size(), false);
  Rank rank{first};
  for (; !met[rank.index()]; rank = next(rank)) met[rank.index()] = true;
  std::vector<Rank> cycle{rank};
  for (Rank r = next(rank); r != rank; r = next(r)) cycle.push_back(r);
  std::ranges::rotate(cycle, std::ranges::min_element(cycle));
  return cycle;
}

/// Executes and reports a deadlock.
void checkExecution(Examination& e, bool blockingSends) {
  const Progress done = execute(e, blockingSends);
  const std::vector<Rank> cycle = waitingCycle(e, done, blockingSends);
  if (cycle.empty()) return;
  std::string message = blockingSends ? "deadlock only under blocking sends (buffered sends avoid it): " : "deadlock: ";
  for (const Rank rank : cycle) {
    const std::int32_t position = done[rank.index()];
    const Action& action = e.schedule.rows[rank.index()][static_cast<std::size_t>(position)];
    const Action needed = *awaited(e, action, blockingSends);
    message += fmt::format("{}rank {} at position {} ({}) waits for {} of rank {}", rank == cycle.front() ? "" : "; ",
                           rank.value, position, toString(action), toString(needed), e.rankOf(needed.stage).value);
  }
  const std::int32_t position = done[cycle.front().index()];
  e.report(cycle.front(), position, e.schedule.rows[cycle.front().index()][static_cast<std::size_t>(position)],
           std::move(message));
  e.problems.back().blockingOnly = blockingSends;
}

}  // namespace

std::vector<Problem> check(const Schedule& schedule) {
  Examination e{.schedule = schedule};
  checkShape(e);
  if (!e.problems.empty()) return std::move(e.problems);
  const std::size_t pairs = schedule.rankOfStage.size() * static_cast<std::size_t>(schedule.microbatches);
  e.places.assign(pairs * kKindsPerPair, kNowhere);
  std::vector<std::int32_t> reducedAt(schedule.rankOfStage.size(), kNowhere);
  for (std::size_t rank = 0; rank < schedule.rows.size(); ++rank) enterRow(e, Rank{rank}, reducedAt);
  checkPairs(e);
  if (e.problems.empty()) checkExecution(e, false);
  if (e.problems.empty() && e.lowered) checkExecution(e, true);
  std::ranges::stable_sort(e.problems, {}, [](const Problem& p) { return std::tuple(p.rank, p.position); });
  return std::move(e.problems);
}

}  // namespace pw
