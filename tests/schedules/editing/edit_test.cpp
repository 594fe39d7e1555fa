#include "schedules/editing/edit.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "schedules/check.h"
#include "schedules/csv.h"
#include "schedules/editing/adapt.h"
#include "schedules/generate.h"
#include "schedules/lower.h"
#include "tests/schedules/random_schedules.h"
#include "tests/support/split_backward.h"

namespace pw {
namespace {

using test::below;
using test::Random;
using testing::HasSubstr;

Schedule rowsOf(std::string_view csv) { return parseCsv(csv, "drawn", "the test"); }

Schedule accepted(const Schedule& schedule, const Edit& edit) {
  const auto result = edited(schedule, edit);
  if (const auto* refusal = std::get_if<Refusal>(&result)) {
    ADD_FAILURE() << refusal->reason;
    return schedule;
  }
  return std::get<Schedule>(result);
}

Refusal refused(const Schedule& schedule, const Edit& edit) {
  const auto result = edited(schedule, edit);
  if (const auto* refusal = std::get_if<Refusal>(&result)) return *refusal;
  ADD_FAILURE() << "accepted: " << toCsv(std::get<Schedule>(result));
  return {};
}

/// The place of an action in `2F0`'s notation.
Cell cellOf(const Schedule& schedule, std::string_view name) {
  for (std::size_t r = 0; r < schedule.rows.size(); ++r) {
    for (std::size_t i = 0; i < schedule.rows[r].size(); ++i) {
      if (toString(schedule.rows[r][i]) == name) return {Rank{r}, static_cast<std::int32_t>(i)};
    }
  }
  ADD_FAILURE() << "no " << name;
  return {};
}

/// The rules of compute actions, written a second time: what makes what an action needs.
std::vector<Action> makersOf(const Schedule& s, const Action& a) {
  std::vector<Action> makers;
  const auto gradient = [&](int stage) {
    makers.push_back({Stage{stage}, ActionKind::Backward, a.microbatch});
    makers.push_back({Stage{stage}, ActionKind::BackwardInput, a.microbatch});
  };
  if (a.kind == ActionKind::Forward && a.stage.value > 0) makers.push_back({Stage{a.stage.value - 1}, ActionKind::Forward, a.microbatch});
  if (a.kind == ActionKind::Backward || a.kind == ActionKind::BackwardInput) {
    makers.push_back({a.stage, ActionKind::Forward, a.microbatch});
    if (a.stage.value + 1 < static_cast<int>(s.placement.stages())) gradient(a.stage.value + 1);
  }
  if (a.kind == ActionKind::BackwardWeight) makers.push_back({a.stage, ActionKind::BackwardInput, a.microbatch});
  return makers;
}

/// Whether the rows run to their end, by rounds over all ranks until none goes on.
bool runs(const Schedule& s) {
  std::set<std::tuple<int, ActionKind, int>> all, done;
  for (const auto& row : s.rows) {
    for (const Action& a : row) all.insert({a.stage.value, a.kind, a.microbatch.value});
  }
  const auto key = [](const Action& a) { return std::tuple(a.stage.value, a.kind, a.microbatch.value); };
  const auto isReady = [&](const Action& a) {
    return std::ranges::all_of(makersOf(s, a), [&](const Action& m) { return !all.contains(key(m)) || done.contains(key(m)); });
  };
  std::vector<std::size_t> at(s.rows.size(), 0);
  for (bool moved = true; moved;) {
    moved = false;
    for (std::size_t r = 0; r < s.rows.size(); ++r) {
      while (at[r] < s.rows[r].size()) {
        const Action& a = s.rows[r][at[r]];
        const bool pair = a.overlapsNext;
        if (!isReady(a) || (pair && !isReady(s.rows[r][at[r] + 1]))) break;
        done.insert(key(a));
        if (pair) done.insert(key(s.rows[r][at[r] + 1]));
        at[r] += pair ? 2 : 1;
        moved = true;
      }
    }
  }
  for (std::size_t r = 0; r < s.rows.size(); ++r) {
    if (at[r] < s.rows[r].size()) return false;
  }
  return true;
}

/// Each action of the cycle waits for the next: it needs what that makes, or comes after it in its row (of `tried`).
void expectCycle(const Schedule& tried, const std::vector<Action>& cycle) {
  ASSERT_GE(cycle.size(), 2U);
  for (std::size_t i = 0; i < cycle.size(); ++i) {
    const Action& a = cycle[i];
    const Action& b = cycle[(i + 1) % cycle.size()];
    const auto makers = makersOf(tried, a);
    if (std::ranges::find(makers, b) != makers.end()) continue;
    const Cell ca = cellOf(tried, toString(a)), cb = cellOf(tried, toString(b));
    EXPECT_TRUE(ca.rank == cb.rank && cb.position < ca.position) << describe(a) << " does not wait for " << describe(b);
  }
}

TEST(Edit, MovesAnActionAlongItsRow) {
  const Schedule s = rowsOf("0F0,0F1,0B0,0B1\r\n1F0,1B0,1F1,1B1\r\n");
  EXPECT_EQ(toCsv(accepted(s, MoveCells{{cellOf(s, "1F1")}, {Rank{1}, 1}})), "0F0,0F1,0B0,0B1\r\n1F0,1F1,1B0,1B1\r\n");
  EXPECT_EQ(toCsv(accepted(s, MoveCells{{cellOf(s, "1F1"), cellOf(s, "1B1")}, {Rank{1}, 0}})), "0F0,0F1,0B0,0B1\r\n1F1,1B1,1F0,1B0\r\n");
}

TEST(Edit, IsRefusedWithTheCycleThatItWouldMake) {
  const Schedule s = rowsOf("0F0,0F1,0B0,0B1\r\n1F0,1B0,1F1,1B1\r\n");
  const Refusal early = refused(s, MoveCells{{cellOf(s, "1B0")}, {Rank{1}, 0}});
  EXPECT_EQ(early.reason, "1B0 needs 1F0, which comes after it");
  EXPECT_EQ(early.cycle.size(), 2U);
  const Refusal wide = refused(s, MoveCells{{cellOf(s, "0B0")}, {Rank{0}, 0}});
  EXPECT_EQ(wide.reason, "0B0 needs 0F0, which comes after it");
  const Schedule three = rowsOf("0F0,0F1,0B0,0B1\r\n1F0,1F1,1B0,1B1\r\n");
  const Refusal crossed = refused(three, MoveCells{{cellOf(three, "0F1")}, {Rank{0}, 3}});
  EXPECT_EQ(crossed.reason, "0B0 needs 1B0, which comes after 1F1, which needs 0F1, which comes after it");
  expectCycle(rowsOf("0F0,0B0,0F1,0B1\r\n1F0,1F1,1B0,1B1\r\n"), crossed.cycle);
}

TEST(Edit, SplitsMergesPairsPausesAndSwaps) {
  const Schedule s = rowsOf("0F0,0F1,0B0,0B1\r\n1F0,1B0,1F1,1B1\r\n");
  const Schedule split = accepted(s, SplitCells{{cellOf(s, "0B0"), cellOf(s, "0B1")}});
  EXPECT_EQ(toCsv(split), "0F0,0F1,0I0,0W0,0I1,0W1\r\n1F0,1B0,1F1,1B1\r\n");
  EXPECT_EQ(accepted(split, MergeCells{{cellOf(split, "0I0"), cellOf(split, "0W1")}}), s);
  EXPECT_EQ(toCsv(accepted(split, SwapCells{cellOf(split, "0W0"), cellOf(split, "0I1")})),
            "0F0,0F1,0I0,0I1,0W0,0W1\r\n1F0,1B0,1F1,1B1\r\n");
  const Schedule paused = accepted(s, AddIdle{cellOf(s, "0B0"), 2});
  EXPECT_EQ(toCsv(paused), "0F0,0F1,,,0B0,0B1\r\n1F0,1B0,1F1,1B1\r\n");
  EXPECT_EQ(accepted(paused, RemoveIdle{{{Rank{0}, 2}, {Rank{0}, 3}, {Rank{0}, 4}}}), s);
  const Schedule pair = accepted(s, PairCells{cellOf(s, "1B0"), cellOf(s, "1F1")});
  EXPECT_EQ(toCsv(pair), "0F0,0F1,0B0,0B1\r\n1F0,(1F1;1B0)OVERLAP_F_B,1B1\r\n");
  EXPECT_EQ(toCsv(accepted(pair, UnpairCells{{cellOf(pair, "1F1")}})), "0F0,0F1,0B0,0B1\r\n1F0,1F1,1B0,1B1\r\n");
  EXPECT_EQ(refused(s, PairCells{cellOf(s, "0F0"), cellOf(s, "0F1")}).reason, "an overlapped pair is one F and one B");
  EXPECT_THAT(refused(s, SplitCells{{cellOf(s, "0F0")}}).reason, HasSubstr("no B is selected"));
  EXPECT_THAT(refused(s, RemoveIdle{{cellOf(s, "0F0")}}).reason, "no pause is selected");
}

TEST(Edit, RepeatsAPatternOverMicrobatches) {
  // The steady pair F2 B0 of rank 0, over what GPipe had left in another order.
  const Schedule s = rowsOf("0F0,0F1,0B0,0F2,0F3,0F4,0B1,0B2,0B3,0B4\r\n1F0,1B0,1F1,1B1,1F2,1B2,1F3,1B3,1F4,1B4\r\n");
  const Schedule repeated = accepted(s, RepeatCells{{cellOf(s, "0B0"), cellOf(s, "0F2")}});
  EXPECT_EQ(toCsv(repeated), "0F0,0F1,0B0,0F2,0B1,0F3,0B2,0F4,0B3,0B4\r\n1F0,1B0,1F1,1B1,1F2,1B2,1F3,1B3,1F4,1B4\r\n");
  EXPECT_THAT(refused(s, RepeatCells{{cellOf(s, "0B4")}}).reason, HasSubstr("does not have all actions"));
}

TEST(Edit, MovesAStageToAnotherRank) {
  const Schedule s = rowsOf("0F0,2F0,2B0,0B0\r\n1F0,3F0,3B0,1B0\r\n");
  const Schedule moved = accepted(s, MoveStage{Stage{2}, Rank{1}});
  EXPECT_EQ(toCsv(moved), "0F0,0B0\r\n1F0,2F0,3F0,3B0,2B0,1B0\r\n");
  EXPECT_EQ(moved.placement.rankOfStage[2], Rank{1});
  EXPECT_THAT(refused(s, MoveStage{Stage{2}, Rank{0}}).reason, HasSubstr("already"));
  EXPECT_THAT(refused(generate("dualpipe", {4, 4, 8}), MoveStage{Stage{2}, Rank{0}}).reason, HasSubstr("mirrored"));
  const Schedule oneEach = rowsOf("0F0,0B0\r\n1F0,1B0\r\n");
  EXPECT_EQ(
      refused(oneEach, MoveStage{Stage{1}, Rank{0}}).reason,
      "moving stage 1 to rank 0 would leave rank 1 without work; every rank keeps a stage, so use 2 or more chunks per rank to move one");
}

TEST(Edit, TurnsOneFOneBIntoZbH1ByItsMoves) {
  // Zero-bubble H1 of 4 ranks: the weights' parts are put off, so that the gradients of inputs reach the ranks before earlier.
  const Shape shape{4, 4, 6};
  Schedule s = test::splitBackward(generate("1f1b", shape));
  const Schedule target = generate("zb-h1", shape);
  int moves = 0;
  for (std::size_t r = 0; r < s.rows.size(); ++r) {
    for (std::size_t i = 0; i < s.rows[r].size(); ++i) {
      if (s.rows[r][i] == target.rows[r][i]) continue;
      // The action that belongs here is dragged here; what depends on others' rows may have to wait for another pass.
      s = accepted(s, MoveCells{{cellOf(s, toString(target.rows[r][i]))}, {Rank{r}, static_cast<std::int32_t>(i)}});
      ++moves;
    }
  }
  EXPECT_GT(moves, 4);
  EXPECT_EQ(s.rows, target.rows);
}

/// What the edit does to the rows, whether legal or not, where it is one of these kinds; written a second time.
struct Tried {
  Schedule schedule;
  Edit edit;
};

Tried someEdit(Random& random, const Schedule& s) {
  const auto rank = Rank{static_cast<int>(random() % s.rows.size())};
  const auto& row = s.rows[rank.index()];
  const auto size = static_cast<int>(row.size());
  const auto at = below(random, size);
  Tried tried{s, AddIdle{{rank, at}, 1}};
  auto& out = tried.schedule.rows[rank.index()];
  switch (below(random, 4)) {
    case 0: {
      const int to = std::clamp(at + below(random, 9) - 4, 0, size);
      tried.edit = MoveCells{{{rank, at}}, {rank, to}};
      const Action a = out[static_cast<std::size_t>(at)];
      out.erase(out.begin() + at);
      out.insert(out.begin() + (to > at ? to - 1 : to), a);
      break;
    }
    case 1: {
      const int other = std::clamp(at + below(random, 7) - 3, 0, size - 1);
      tried.edit = SwapCells{{rank, at}, {rank, other}};
      if (other == at) return someEdit(random, s);
      std::swap(out[static_cast<std::size_t>(at)], out[static_cast<std::size_t>(other)]);
      break;
    }
    case 2: {
      const int by = below(random, 7) - 3;
      tried.edit = ShiftCells{{{rank, at}}, by};
      const Action a = out[static_cast<std::size_t>(at)];
      out.erase(out.begin() + at);
      out.insert(out.begin() + std::clamp(at + by, 0, size - 1), a);
      break;
    }
    default: out.insert(out.begin() + at, kIdle); break;
  }
  return tried;
}

TEST(Edit, OfAHundredThousandIsAcceptedExactlyWhereItsRowsRun) {
  constexpr std::uint64_t kSeed = 20261125;
  SCOPED_TRACE(testing::Message() << "seed " << kSeed);
  Random random(kSeed);
  int done = 0, taken = 0, cycles = 0;
  while (done < 100'000) {
    Schedule s = computeOnly(test::Grower(random, {}).grow());
    for (auto& row : s.rows) {
      for (Action& a : row) a.overlapsNext = false;
    }
    if (!runs(s)) continue;  // a pair's order alone
    const Schedule first = s;
    std::vector<Schedule> undo;
    for (int i = 0; i < 60; ++i, ++done) {
      const Tried tried = someEdit(random, s);
      const auto result = edited(s, tried.edit);
      const bool legal = runs(tried.schedule);
      ASSERT_EQ(std::holds_alternative<Schedule>(result), legal) << toCsv(s) << "\n" << toCsv(tried.schedule);
      if (!legal) {
        const auto& refusal = std::get<Refusal>(result);
        EXPECT_FALSE(refusal.reason.empty());
        expectCycle(tried.schedule, refusal.cycle);
        ++cycles;
        continue;
      }
      ASSERT_EQ(std::get<Schedule>(result).rows, tried.schedule.rows);
      undo.push_back(std::move(s));
      s = std::get<Schedule>(result);
      ++taken;
    }
    while (!undo.empty()) {
      s = std::move(undo.back());
      undo.pop_back();
    }
    ASSERT_EQ(s, first);
  }
  EXPECT_GT(taken, 30'000);
  EXPECT_GT(cycles, 10'000);
}

TEST(Edit, OfAnyKindLeavesASoundScheduleWithAllItsWork) {
  constexpr std::uint64_t kSeed = 7;
  Random random(kSeed);
  std::map<std::size_t, int> kinds;
  for (int i = 0; i < 4'000; ++i) {
    const Schedule s = computeOnly(test::Grower(random, {}).grow());
    ASSERT_TRUE(runs(s));
    const auto someCell = [&] {
      const auto rank = Rank{static_cast<int>(random() % s.rows.size())};
      return Cell{rank, below(random, static_cast<int>(s.rows[rank.index()].size()))};
    };
    const auto someCells = [&] {
      std::vector<Cell> cells{someCell()};
      for (int more = below(random, 4); more > 0; --more) {
        const Cell cell = someCell();
        if (test::oneOf(random, 3) || cell.rank == cells.front().rank) cells.push_back(cell);
      }
      return cells;
    };
    const auto someStage = Stage{static_cast<int>(random() % s.placement.stages())};
    const std::vector<Edit> edits{MoveCells{someCells(), someCell()},
                                  ShiftCells{someCells(), below(random, 9) - 4},
                                  SwapCells{someCell(), someCell()},
                                  SplitCells{someCells()},
                                  MergeCells{someCells()},
                                  AddIdle{someCell(), 1 + below(random, 3)},
                                  RemoveIdle{someCells()},
                                  PairCells{someCell(), someCell()},
                                  UnpairCells{someCells()},
                                  RepeatCells{someCells()},
                                  MoveStage{someStage, someCell().rank}};
    for (const Edit& edit : edits) {
      const auto result = edited(s, edit);
      if (const auto* refusal = std::get_if<Refusal>(&result)) {
        EXPECT_FALSE(refusal->reason.empty());
        continue;
      }
      const Schedule& made = std::get<Schedule>(result);
      ASSERT_TRUE(runs(made)) << toCsv(s) << "\n" << toCsv(made);
      ASSERT_TRUE(check(made).empty());
      const auto work = [](const Schedule& schedule) {
        std::multiset<Action> actions;
        Schedule whole = schedule;
        for (auto& row : whole.rows) {
          for (Action a : row) {
            a.overlapsNext = false;
            if (a.kind == ActionKind::Idle || a.kind == ActionKind::BackwardWeight) continue;
            if (a.kind == ActionKind::BackwardInput) a.kind = ActionKind::Backward;
            actions.insert(a);
          }
        }
        return actions;
      };
      ASSERT_EQ(work(made), work(s));
      ++kinds[edit.index()];
    }
  }
  for (std::size_t kind = 0; kind < std::variant_size_v<Edit>; ++kind) EXPECT_GT(kinds[kind], 20) << "edit " << kind;
}

TEST(LegalPlaces, AreExactlyThoseThatAMoveIsAcceptedAt) {
  constexpr std::uint64_t kSeed = 11;
  Random random(kSeed);
  int cells = 0;
  for (int i = 0; i < 600; ++i) {
    const Schedule s = computeOnly(test::Grower(random, {}).grow());
    const auto rank = Rank{static_cast<int>(random() % s.rows.size())};
    const auto& row = s.rows[rank.index()];
    const Cell cell{rank, below(random, static_cast<int>(row.size()))};
    const LegalPlaces legal = legalPlaces(s, cell);
    EXPECT_EQ(legal.after.has_value(), legal.first > 0);
    EXPECT_EQ(legal.before.has_value(), legal.last < static_cast<int>(row.size()));
    for (int to = 0; to <= static_cast<int>(row.size()); ++to) {
      if (to > 0 && to < static_cast<int>(row.size()) && row[static_cast<std::size_t>(to) - 1].overlapsNext) continue;  // within a pair
      const auto result = edited(s, MoveCells{{cell}, {rank, to}});
      const auto* accepted = std::get_if<Schedule>(&result);
      ASSERT_EQ(accepted != nullptr, to >= legal.first && to <= legal.last)
          << toCsv(s) << toString(row[static_cast<std::size_t>(cell.position)]) << " to " << to;
      if (accepted != nullptr) {
        ASSERT_EQ(moved(s, cell, to), *accepted) << toCsv(s);
      }
      ++cells;
    }
  }
  EXPECT_GT(cells, 3'000);
}

TEST(Adapted, FamiliesGoOnAsTheirGeneratorsDo) {
  for (const char* name : {"1f1b", "gpipe", "zb-h1", "interleaved-1f1b"}) {
    const int chunks = std::string_view(name) == "interleaved-1f1b" ? 2 : 1;
    const Schedule drawn = generate(name, {4, 4 * chunks, 12});
    for (const int microbatches : {4, 8, 16, 32}) {
      const auto result = adapted(drawn, {4, 4 * chunks, microbatches});
      if (std::string_view(name) == "gpipe" && microbatches > 12) {
        EXPECT_THAT(std::get<std::string>(result), HasSubstr("repeats itself"));  // all its forwards come first
        continue;
      }
      ASSERT_TRUE(std::holds_alternative<Schedule>(result)) << name << " " << std::get<std::string>(result);
      const Schedule& made = std::get<Schedule>(result);
      EXPECT_TRUE(check(made).empty());
      EXPECT_EQ(made.microbatches, microbatches);
      if (microbatches > 12) {
        EXPECT_EQ(made.rows, generate(name, {4, 4 * chunks, microbatches}).rows) << name << " " << microbatches;
      }
    }
    EXPECT_THAT(std::get<std::string>(adapted(drawn, {2, 4 * chunks, 12})), HasSubstr("was drawn for 4 ranks"));
  }
}

}  // namespace
}  // namespace pw
