#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "schedules/check.h"
#include "schedules/csv.h"
#include "schedules/lower.h"
#include "tests/schedules/blocking_executor.h"
#include "tests/schedules/random_schedules.h"

namespace pw {
namespace {

using namespace test;

// ---- What a run cannot find by blocking --------------------------------------------------------------------------

/// How often each action stands on each rank, without its flag.
using Counts = std::map<std::pair<std::size_t, Action>, int>;

Counts countActions(const Schedule& s) {
  Counts counts;
  for (std::size_t rank = 0; rank < s.rows.size(); ++rank) {
    for (const Action& a : s.rows[rank]) {
      if (a.kind == ActionKind::Idle || a.kind == ActionKind::Unshard || a.kind == ActionKind::Reshard) continue;
      ++counts[{rank, {a.stage, a.kind, a.microbatch}}];
    }
  }
  return counts;
}

/// Every action that the schedule must hold, given that its stages split the backwards that have an I or a W.
Counts countNeeded(const Schedule& s, const Counts& counts, bool training, bool lowered) {
  Counts needed;
  const int stages = static_cast<int>(s.placement.stages());
  for (int stage = 0; stage < stages; ++stage) {
    for (int micro = 0; micro < s.microbatches; ++micro) {
      const Microbatch m{micro};
      const std::size_t rank = s.placement.rankOf(Stage{stage}, m).index();
      const auto need = [&](ActionKind kind) { needed[{rank, {Stage{stage}, kind, m}}] = 1; };
      const auto stands = [&](ActionKind kind) { return counts.contains({rank, {Stage{stage}, kind, m}}); };
      const auto elsewhere = [&](int other) { return other >= 0 && other < stages && s.placement.rankOf(Stage{other}, m).index() != rank; };
      need(ActionKind::Forward);
      if (training && (stands(ActionKind::BackwardInput) || stands(ActionKind::BackwardWeight))) {
        need(ActionKind::BackwardInput);
        need(ActionKind::BackwardWeight);
      } else if (training) {
        need(ActionKind::Backward);
      }
      if (!lowered) continue;
      if (elsewhere(stage + 1)) need(ActionKind::SendForward);
      if (elsewhere(stage - 1)) need(ActionKind::RecvForward);
      if (training && elsewhere(stage - 1)) need(ActionKind::SendBackward);
      if (training && elsewhere(stage + 1)) need(ActionKind::RecvBackward);
    }
  }
  return needed;
}

bool hasBadSlotOrReduction(const std::vector<Action>& row) {
  std::set<Stage> reduced;
  for (std::size_t i = 0; i < row.size(); ++i) {
    const Action& a = row[i];
    if (a.kind == ActionKind::ReduceGrad) reduced.insert(a.stage);
    if ((a.kind == ActionKind::Backward || a.kind == ActionKind::BackwardWeight) && reduced.contains(a.stage)) return true;
    if (!a.overlapsNext) continue;
    if (a.kind != ActionKind::Forward || i + 1 == row.size() || row[i + 1].kind != ActionKind::Backward) return true;
    if (a.stage == row[i + 1].stage && a.microbatch == row[i + 1].microbatch) return true;
  }
  return false;
}

/// Whether something is missing, too much, or on a wrong rank; or a slot or a reduction is wrong.
bool isFlawed(const Schedule& s, bool lowered) {
  Counts counts = countActions(s);
  const bool training = std::any_of(counts.begin(), counts.end(), [](const auto& entry) {
    const ActionKind kind = entry.first.second.kind;
    return isCompute(kind) && kind != ActionKind::Forward;
  });
  Counts needed = countNeeded(s, counts, training, lowered);
  for (std::size_t rank = 0; rank < s.rows.size(); ++rank) {
    bool works = false;
    for (const Action& a : s.rows[rank]) {
      if (a.kind == ActionKind::Idle) continue;
      works = true;
      if (isCompute(a.kind) || isSend(a.kind) || isReceive(a.kind)) continue;
      const bool known = a.stage.value >= 0 && a.stage.index() < s.placement.stages();
      if (!known || a.microbatch != Microbatch{-1} || !s.placement.holds(Rank{rank}, a.stage)) return true;
      if (a.kind == ActionKind::ReduceGrad) needed[{rank, {a.stage, a.kind, a.microbatch}}] = 1;
    }
    if (!works || hasBadSlotOrReduction(s.rows[rank])) return true;
  }
  return counts != needed;
}

// ---- The comparison ----------------------------------------------------------------------------------------------

/// A schedule, what `check` says of it and what running it does.
struct Case {
  Schedule schedule;
  Wish wish;
  bool damaged = false;
  bool lowered = false;
  bool flawed = false;
  std::vector<Problem> problems = {};
  std::map<Transport, BlockingRun*> runs = {};

  [[nodiscard]] bool stops(Stops stops) const {
    return std::any_of(problems.begin(), problems.end(), [&](const Problem& p) { return p.stops == stops; });
  }
  [[nodiscard]] bool finished(Transport t) const { return runs.at(t)->finished(); }
};

Case randomCase(Random& random) {
  Case c;
  c.wish.lowered = !oneOf(random, 3);
  c.wish.soundUnder = static_cast<Transport>(below(random, 3));
  c.schedule = Grower(random, c.wish).grow();
  c.damaged = oneOf(random, 2);
  for (int damages = c.damaged ? 1 + below(random, 2) : 0; damages > 0; --damages) damage(random, c.schedule);
  for (const auto& row : c.schedule.rows) {
    for (const Action& a : row) c.lowered = c.lowered || isSend(a.kind) || isReceive(a.kind);
  }
  c.flawed = isFlawed(c.schedule, c.lowered);
  c.problems = check(c.schedule);
  return c;
}

/// Starts the runs that mean something for each case, and ends them all.
void runCases(std::vector<Case>& cases, std::vector<std::unique_ptr<BlockingRun>>& runs) {
  for (Case& c : cases) {
    if (c.flawed) continue;
    for (const Transport t : {Transport::Buffered, Transport::OneChannel, Transport::Rendezvous}) {
      if (t != Transport::Buffered && !c.lowered) continue;
      c.runs[t] = runs.emplace_back(std::make_unique<BlockingRun>(c.schedule, t)).get();
    }
  }
  runAll(runs);
}

/// What `check` says is what the runs do.
void compare(const Case& c) {
  for (const Problem& p : c.problems) {
    ASSERT_FALSE(p.message.empty());
    if (p.position == -1) continue;
    ASSERT_EQ(c.schedule.rows[p.rank.index()][static_cast<std::size_t>(p.position)], p.action) << p.message;
  }
  if (!c.damaged) {
    ASSERT_FALSE(c.flawed);
    ASSERT_FALSE(c.stops(Stops::Always)) << c.problems[0].message;
    const bool oneChannelSound = c.wish.soundUnder != Transport::Buffered;
    ASSERT_FALSE(oneChannelSound && c.stops(Stops::OneChannel)) << c.problems[0].message;
    ASSERT_FALSE(c.wish.soundUnder == Transport::Rendezvous && c.stops(Stops::Blocking)) << c.problems[0].message;
  }
  if (c.flawed) {
    ASSERT_TRUE(c.stops(Stops::Always)) << "check does not see the flaw";
    return;
  }
  const std::string said = c.problems.empty() ? "no problem" : c.problems[0].message;
  ASSERT_EQ(c.finished(Transport::Buffered), !c.stops(Stops::Always)) << said;
  if (!c.lowered) return;
  const bool rendezvous = c.finished(Transport::Rendezvous);
  const bool oneChannel = c.finished(Transport::OneChannel);
  ASSERT_EQ(oneChannel, !c.stops(Stops::Always) && !c.stops(Stops::OneChannel)) << said;
  ASSERT_EQ(rendezvous, c.problems.empty()) << said;
  ASSERT_TRUE(!rendezvous || oneChannel) << "what passes with rendezvous sends passes with one channel";
  ASSERT_TRUE(!oneChannel || c.finished(Transport::Buffered)) << "what passes with one channel passes with two";
}

class CheckAgainstThreads : public testing::TestWithParam<unsigned> {};

TEST_P(CheckAgainstThreads, AgreesWithThreadsThatReallyBlockOn25000Schedules) {
  SCOPED_TRACE("seed " + std::to_string(GetParam()));
  Random random(GetParam());
  int flawed = 0, always = 0, oneChannel = 0, blocking = 0, sound = 0;
  for (int batch = 0; batch < 25; ++batch) {
    std::vector<Case> cases;
    std::vector<std::unique_ptr<BlockingRun>> runs;
    for (int i = 0; i < 1'000; ++i) cases.push_back(randomCase(random));
    runCases(cases, runs);
    for (std::size_t i = 0; i < cases.size(); ++i) {
      SCOPED_TRACE("batch " + std::to_string(batch) + " case " + std::to_string(i));
      const Case& c = cases[i];
      compare(c);
      if (HasFatalFailure()) FAIL() << toCsv(c.schedule);
      flawed += c.flawed ? 1 : 0;
      always += !c.flawed && c.stops(Stops::Always) ? 1 : 0;
      oneChannel += c.stops(Stops::OneChannel) ? 1 : 0;
      blocking += c.stops(Stops::Blocking) && !c.stops(Stops::OneChannel) ? 1 : 0;
      sound += c.problems.empty() ? 1 : 0;
    }
  }
  RecordProperty("flawed", flawed);
  RecordProperty("always", always);
  RecordProperty("oneChannel", oneChannel);
  RecordProperty("blocking", blocking);
  RecordProperty("sound", sound);
  EXPECT_GT(flawed, 2'500);
  EXPECT_GT(always, 2'500);
  EXPECT_GT(oneChannel, 1'500);
  EXPECT_GT(blocking, 250);
  EXPECT_GT(sound, 2'500);
}

INSTANTIATE_TEST_SUITE_P(Seeds, CheckAgainstThreads, testing::Values(1U, 2U, 3U, 4U));

TEST(CheckRandom, WhatIsLoweredHasNoProblemWhateverThePolicyAndTheTransport) {
  constexpr unsigned kSeed = 5;
  SCOPED_TRACE("seed " + std::to_string(kSeed));
  Random random(kSeed);
  for (int i = 0; i < 10'000; ++i) {
    const Schedule compute = computeOnly(Grower(random, {}).grow());
    for (const Lowering policy : {Lowering::Deferred, Lowering::Torch, Lowering::TorchRuntime}) {
      const Schedule lowered = lower(compute, policy);
      const auto problems = check(lowered);
      ASSERT_TRUE(problems.empty()) << "case " << i << ", policy " << static_cast<int>(policy) << ": " << problems[0].message << "\n"
                                    << toCsv(compute) << "\nlowered\n"
                                    << toCsv(lowered);
    }
  }
}

}  // namespace
}  // namespace pw
