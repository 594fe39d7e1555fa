#include "simulator/hang/diagnose.h"

#include "simulator/hang/report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "schedules/csv.h"
#include "schedules/error.h"
#include "schedules/generate.h"
#include "schedules/lower.h"
#include "simulator/hang/report.h"
#include "simulator/hang/waits.h"
#include "tests/simulator/hang/stuck_job.h"

namespace pw::hang {
namespace {

using test::draw;
using test::StuckJob;
using Mode = StuckJob::Mode;

Schedule randomSchedule(std::mt19937_64& random, int mostRanks) {
  constexpr const char* kNames[] = {"gpipe", "1f1b", "interleaved-1f1b", "zb-h1", "zbv", "looped-bfs"};
  for (;;) {
    const std::string name = kNames[draw(random, 0, 5)];
    const int ranks = static_cast<int>(draw(random, 2, mostRanks));
    const int chunks = name == "zbv" ? 2 : name == "interleaved-1f1b" || name == "looped-bfs" ? static_cast<int>(draw(random, 1, 2)) : 1;
    const int microbatches = ranks * static_cast<int>(draw(random, 1, 2)) + static_cast<int>(name == "gpipe" ? draw(random, 0, 3) : 0);
    try {
      return lower(generate(name, {ranks, ranks * chunks, microbatches}), draw(random, 0, 1) == 0 ? Lowering::Torch : Lowering::Deferred);
    } catch (const UsageError&) {  // a combination that the schedule does not have
    }
  }
}

std::vector<int> messagesOf(const std::vector<Action>& row) {
  std::vector<int> positions;
  for (std::size_t i = 0; i < row.size(); ++i) {
    if (isSend(row[i].kind) || isReceive(row[i].kind)) positions.push_back(static_cast<int>(i));
  }
  return positions;
}

/// Of the ranks stuck on one: the operation posted first.
std::optional<std::pair<int, StuckJob::Op>> firstOn(const StuckJob& job, int rank) {
  std::optional<std::pair<int, StuckJob::Op>> first;
  for (int r = 0; r < static_cast<int>(job.schedule.rows.size()); ++r) {
    const std::optional<StuckJob::Op> op = job.stuckIn(r);
    if (op && op->peer == rank && (!first || op->posted < first->second.posted)) first = {r, *op};
  }
  return first;
}

struct Trial {
  StuckJob job;
  int rank = 0;
};

/// A job of which one rank ends at a random place, with another rank that waits for it.
Trial endedJob(std::mt19937_64& random, int mostRanks, Mode mode, bool atCompute) {
  for (;;) {
    Trial trial{{randomSchedule(random, mostRanks), mode}};
    StuckJob& job = trial.job;
    trial.rank = static_cast<int>(draw(random, 0, static_cast<std::int64_t>(job.schedule.rows.size()) - 1));
    const std::vector<Action>& row = job.schedule.rows[static_cast<std::size_t>(trial.rank)];
    job.endsRank = trial.rank;
    job.endsAt = static_cast<int>(draw(random, 0, static_cast<std::int64_t>(row.size()) - 1));
    if (atCompute && !isCompute(row[static_cast<std::size_t>(job.endsAt)].kind)) continue;
    static_cast<void>(job.run(random));
    const bool arrived = job.at[static_cast<std::size_t>(trial.rank)] == job.endsAt;
    if (arrived && firstOn(job, trial.rank)) return trial;
  }
}

void expectSilent(const Diagnosis& d, const StuckJob& job, int rank) {
  ASSERT_EQ(nameOf(d.verdict), "silent_rank") << d.sentence;
  ASSERT_EQ(d.silent.size(), 1U) << d.sentence;
  EXPECT_EQ(d.silent.front().rank.value, rank) << d.sentence;
  const auto first = firstOn(job, rank);
  ASSERT_TRUE(d.firstStuck);
  EXPECT_EQ(d.firstStuck->rank.value, first->first) << d.sentence;
  EXPECT_EQ(d.firstStuck->posted, first->second.posted) << d.sentence;
  if (!d.checkWouldCatch) return;
  EXPECT_FALSE(*d.checkWouldCatch);
  EXPECT_EQ(d.firstStuck->position, first->second.position) << d.sentence;
  EXPECT_EQ(d.firstStuck->action,
            job.schedule.rows[static_cast<std::size_t>(first->first)][static_cast<std::size_t>(first->second.position)]);
}

TEST(DiagnoseHang, AKilledRankIsNamedWithTheActionThatWaitsForItFirst) {
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    const Mode mode = seed % 2 == 0 ? Mode::Blocking : Mode::Buffered;
    const Trial trial = endedJob(random, 12, mode, false);
    const Dumps dumps = trial.job.dumps(trial.rank);
    const Diagnosis with = diagnose(dumps, &trial.job.schedule);
    expectSilent(with, trial.job, trial.rank);
    EXPECT_EQ(with.missing, std::vector{JobRank{trial.rank}});
    expectSilent(diagnose(dumps, nullptr), trial.job, trial.rank);
    if (mode != Mode::Blocking) continue;
    // Both ends of all its messages are done, so what it was in is what comes after the last.
    int next = 0;
    for (const StuckJob::Op& op : trial.job.ops[static_cast<std::size_t>(trial.rank)]) next = op.done ? op.position + 1 : next;
    ASSERT_TRUE(with.silent.front().next);
    EXPECT_EQ(with.silent.front().next->position, next);
    // Parameters that are gathered twice before all else move what comes after by four; a rank that did nothing may be in them.
    if (next == 0) continue;
    Schedule gathers = trial.job.schedule;
    const Stage stage = gathers.rows[static_cast<std::size_t>(trial.rank)].front().stage;
    for (int twice = 0; twice < 2; ++twice) {
      for (const ActionKind kind : {ActionKind::Reshard, ActionKind::Unshard}) {
        auto& row = gathers.rows[static_cast<std::size_t>(trial.rank)];
        row.insert(row.begin(), Action{stage, kind, Microbatch{-1}});
      }
    }
    const Diagnosis gathered = diagnose(dumps, &gathers);
    ASSERT_TRUE(gathered.silent.front().next);
    EXPECT_EQ(gathered.silent.front().next->position, next + 4);
    EXPECT_EQ(gathered.silent.front().next->action, with.silent.front().next->action);
  }
}

TEST(DiagnoseHang, AStoppedRankWithADumpIsNamed) {
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    const Trial trial = endedJob(random, 12, Mode::Blocking, true);
    const Dumps dumps = trial.job.dumps();
    const Diagnosis with = diagnose(dumps, &trial.job.schedule);
    expectSilent(with, trial.job, trial.rank);
    ASSERT_TRUE(with.silent.front().next);
    const std::vector<Action>& possible = with.silent.front().possible;
    const Action& in = trial.job.schedule.rows[static_cast<std::size_t>(trial.rank)][static_cast<std::size_t>(trial.job.endsAt)];
    EXPECT_NE(std::ranges::find(possible, in), possible.end());
    expectSilent(diagnose(dumps, nullptr), trial.job, trial.rank);
  }
}

/// 1F1B and GPipe have the same order between each two ranks and direction, but not the same of all messages of a rank.
TEST(DiagnoseHang, AScheduleOfAnotherOrderIsNotSaidToBeFollowed) {
  std::mt19937_64 random(7);
  StuckJob job{lower(generate("1f1b", {4, 4, 8}), Lowering::Torch), Mode::Buffered};
  job.endsRank = 2;
  job.endsAt = static_cast<int>(job.schedule.rows[2].size()) * 3 / 4;
  ASSERT_TRUE(job.run(random));
  const Schedule other = lower(generate("gpipe", {4, 4, 8}), Lowering::Torch);
  const Diagnosis own = diagnose(job.dumps(), &job.schedule), wrong = diagnose(job.dumps(), &other);
  EXPECT_TRUE(own.followed && own.inOrder);
  EXPECT_FALSE(wrong.followed && wrong.inOrder);
  EXPECT_NE(diagnosisJson(job.dumps(), own).find("\"schedule_followed\": true"), std::string::npos);
  EXPECT_EQ(diagnosisJson(job.dumps(), wrong).find("\"schedule_followed\": true"), std::string::npos);
}

TEST(DiagnoseHang, NoStepIsNamedWhereOlderOperationsWereDropped) {
  std::mt19937_64 random(7);
  StuckJob job{lower(generate("1f1b", {4, 4, 8}), Lowering::Torch), Mode::Blocking};
  job.endsRank = 2;
  job.endsAt = static_cast<int>(job.schedule.rows[2].size()) * 3 / 4;
  ASSERT_TRUE(job.run(random));
  Dumps dumps = job.dumps();
  ASSERT_TRUE(diagnose(dumps, &job.schedule).firstStuck);
  EXPECT_EQ(diagnose(dumps, &job.schedule).firstStuck->step, 0);
  for (RankDump& dump : dumps.dumps) {
    dump.ops.erase(dump.ops.begin(), dump.ops.begin() + 4);
    dump.complete = false;
  }
  const Diagnosis torn = diagnose(dumps, &job.schedule);
  ASSERT_TRUE(torn.firstStuck);
  EXPECT_EQ(torn.firstStuck->step, -1);
  ASSERT_EQ(torn.silent.size(), 1U);
  EXPECT_EQ(torn.silent.front().rank, JobRank{2});
  EXPECT_TRUE(!torn.silent.front().next || torn.silent.front().next->step == -1);
}

TEST(DiagnoseHang, WhereReceivesArePostedAheadThoseThatNoActionNeedsYetAreNoWaits) {
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    const Trial trial = endedJob(random, 12, Mode::Ahead, true);
    const bool left = seed % 2 == 0;
    expectSilent(diagnose(trial.job.dumps(left ? trial.rank : -1), &trial.job.schedule), trial.job, trial.rank);
  }
}

/// The dumps of a job whose hosts enqueue whole rows at once, and whose devices came as far as the ranks of this one.
Dumps enqueuedAtOnce(StuckJob job) {
  std::int64_t posted = 1'000'000;
  std::vector<std::size_t> reached;  // by rank: operations that its device came to
  for (std::size_t r = 0; r < job.schedule.rows.size(); ++r) {
    const std::vector<Action>& row = job.schedule.rows[r];
    std::vector<StuckJob::Op>& ops = job.ops[r];
    reached.push_back(ops.size());
    for (const int position : messagesOf(row)) {
      const Action& action = row[static_cast<std::size_t>(position)];
      if (ops.empty() || position > ops.back().position)
        ops.push_back({position, job.peerOf(action), isSend(action.kind), false, ++posted});
    }
  }
  Dumps dumps = job.dumps();
  for (std::size_t r = 0; r < dumps.dumps.size(); ++r) {
    std::vector<RecordedOp>& ops = dumps.dumps[r].ops;
    if (reached[r] > 0 && ops[reached[r] - 1].state != OpState::Done) ops[reached[r] - 1].state = OpState::Started;
  }
  return dumps;
}

TEST(DiagnoseHang, WhereHostsRunAheadARankHasComeAsFarAsItsDevice) {
  int tried = 0;
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    const Trial trial = endedJob(random, 8, Mode::Blocking, true);
    bool showsIt = false;  // a rank waits in a receive, and posted more after what needs it
    for (std::size_t r = 0; r < trial.job.schedule.rows.size(); ++r) {
      const std::optional<StuckJob::Op> op = trial.job.stuckIn(static_cast<int>(r));
      const std::vector<int> messages = messagesOf(trial.job.schedule.rows[r]);
      showsIt = showsIt || (op && !op->sends && messages.back() > op->position + 1);
    }
    if (!showsIt) continue;
    ++tried;
    const Diagnosis d = diagnose(enqueuedAtOnce(trial.job), &trial.job.schedule);
    ASSERT_EQ(nameOf(d.verdict), "silent_rank") << d.sentence;
    EXPECT_EQ(d.silent.front().rank.value, trial.rank) << d.sentence;
    const auto first = firstOn(trial.job, trial.rank);
    ASSERT_TRUE(d.firstStuck);
    EXPECT_EQ(d.firstStuck->rank.value, first->first) << d.sentence;
    EXPECT_EQ(d.firstStuck->position, first->second.position) << d.sentence;
  }
  EXPECT_GT(tried, 100);
}

/// Where a rank's messages first differ from those it was meant to post: a position of the row as meant; nothing where they do not.
std::optional<int> firstDifference(const StuckJob& job, const Schedule& meant, int rank) {
  const StuckJob as{meant};
  const std::vector<Action>& row = meant.rows[static_cast<std::size_t>(rank)];
  const std::vector<int> positions = messagesOf(row);
  const auto& ops = job.ops[static_cast<std::size_t>(rank)];
  for (std::size_t i = 0; i < ops.size() && i < positions.size(); ++i) {
    const Action& action = row[static_cast<std::size_t>(positions[i])];
    if (ops[i].sends != isSend(action.kind) || ops[i].peer != as.peerOf(action)) return positions[i];
  }
  return std::nullopt;
}

TEST(DiagnoseHang, AMessageThatWasLeftOutIsNamed) {
  int seen = 0;
  for (std::uint64_t seed = 0; seen < 300; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    const Schedule meant = randomSchedule(random, 12);
    StuckJob job{meant, seed % 2 == 0 ? Mode::Blocking : Mode::Buffered};
    const int rank = static_cast<int>(draw(random, 0, static_cast<std::int64_t>(meant.rows.size()) - 1));
    auto& row = job.schedule.rows[static_cast<std::size_t>(rank)];
    const std::vector<int> positions = messagesOf(row);
    if (positions.empty()) continue;
    row.erase(row.begin() + positions[static_cast<std::size_t>(draw(random, 0, static_cast<std::int64_t>(positions.size()) - 1))]);
    if (!job.run(random)) continue;
    const std::optional<int> difference = firstDifference(job, meant, rank);
    if (!difference) continue;  // nothing that was recorded differs
    ++seen;
    const Diagnosis d = diagnose(job.dumps(), &meant);
    ASSERT_EQ(nameOf(d.verdict), "missing_message") << d.sentence;
    EXPECT_EQ(d.cause->rank.value, rank) << d.sentence;
    EXPECT_EQ(d.cause->position, *difference) << d.sentence;
    EXPECT_EQ(d.checkWouldCatch, false);
    EXPECT_FALSE(d.followed);
    // The schedule as it was run is one that `check` refuses.
    const Diagnosis ran = diagnose(job.dumps(), &job.schedule);
    EXPECT_EQ(ran.checkWouldCatch, true) << ran.sentence << ran.problems.at(0).message;
  }
}

/// A schedule that `check` refuses only for blocking sends or shared channels: both of two ranks send before they receive.
Schedule sendsFirst() {
  return parseCsv(
      "0F0,0SEND_F0,0F1,0SEND_F1,0RECV_B0,0B0,0RECV_B1,0B1\n"
      "1RECV_F0,1F0,1B0,1SEND_B0,1RECV_F1,1F1,1B1,1SEND_B1\n",
      "sends_first", "sends_first.csv");
}

TEST(DiagnoseHang, CheckIsSaidToCatchOnlyWhatHangs) {
  std::mt19937_64 random(1);
  const Schedule meant = sendsFirst();
  ASSERT_EQ(check(meant).size(), 2U);
  {
    SCOPED_TRACE("with blocking sends");
    StuckJob job{meant, Mode::Blocking};
    ASSERT_TRUE(job.run(random));
    const Diagnosis d = diagnose(job.dumps(), &meant);
    EXPECT_EQ(nameOf(d.verdict), "cycle") << d.sentence;
    EXPECT_EQ(d.checkWouldCatch, true);
    EXPECT_THAT(diagnosisText(job.dumps(), d), testing::HasSubstr("would have caught it"));
  }
  {
    SCOPED_TRACE("nothing hangs");
    StuckJob job{meant, Mode::Buffered};
    ASSERT_FALSE(job.run(random));
    const Diagnosis d = diagnose(job.dumps(), &meant);
    EXPECT_EQ(d.checkWouldCatch, false);
    EXPECT_THAT(diagnosisText(job.dumps(), d), testing::Not(testing::HasSubstr("check")));
  }
  {
    SCOPED_TRACE("a rank ends");
    StuckJob job{meant, Mode::Buffered};
    job.endsRank = 1;
    job.endsAt = 5;
    ASSERT_TRUE(job.run(random));
    const Diagnosis d = diagnose(job.dumps(), &meant);
    EXPECT_EQ(nameOf(d.verdict), "silent_rank") << d.sentence;
    EXPECT_EQ(d.checkWouldCatch, false);
    EXPECT_THAT(diagnosisText(job.dumps(), d), testing::HasSubstr("`pipewright check` refuses this schedule for another reason: rank 0: "));
  }
  for (const bool wrongSize : {false, true}) {
    SCOPED_TRACE(wrongSize ? "another size" : "a send is left out");
    StuckJob job{meant, Mode::Buffered};
    if (!wrongSize) job.schedule.rows[1].pop_back();
    ASSERT_EQ(job.run(random), !wrongSize);
    Dumps dumps = job.dumps();
    if (wrongSize) {
      dumps.dumps[1].ops.back().bytes = 8;
      dumps.dumps[0].ops.back().state = OpState::Posted;
      dumps.dumps[1].ops.back().state = OpState::Posted;
    }
    const Diagnosis d = diagnose(dumps, &meant);
    EXPECT_NE(nameOf(d.verdict), "nothing");
    EXPECT_EQ(d.checkWouldCatch, false) << d.sentence;
  }
}

/// The ranks of the cycle that is reached from a stuck rank; empty where the way ends.
std::vector<int> cycleFrom(const StuckJob& job, int rank) {
  std::vector<int> way;
  for (;;) {
    const auto again = std::ranges::find(way, rank);
    if (again != way.end()) return {again, way.end()};
    way.push_back(rank);
    const std::optional<StuckJob::Op> op = job.stuckIn(rank);
    if (!op) return {};
    rank = op->peer;
  }
}

TEST(DiagnoseHang, RanksThatWaitForEachOtherAreNamedInTheOrderTheyWait) {
  int seen = 0;
  for (std::uint64_t seed = 0; seen < 300; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    StuckJob job{randomSchedule(random, 12), Mode::Blocking};
    auto& row = job.schedule.rows[static_cast<std::size_t>(draw(random, 0, static_cast<std::int64_t>(job.schedule.rows.size()) - 1))];
    const std::vector<int> positions = messagesOf(row);
    if (positions.size() < 2) continue;
    const auto i = static_cast<std::size_t>(draw(random, 0, static_cast<std::int64_t>(positions.size()) - 2));
    std::swap(row[static_cast<std::size_t>(positions[i])], row[static_cast<std::size_t>(positions[i + 1])]);
    if (!job.run(random)) continue;
    std::vector<std::vector<int>> cycles;
    for (int r = 0; r < static_cast<int>(job.schedule.rows.size()); ++r) {
      std::vector<int> cycle = job.stuckIn(r) ? cycleFrom(job, r) : std::vector<int>{};
      std::ranges::sort(cycle);
      if (!cycle.empty() && std::ranges::find(cycles, cycle) == cycles.end()) cycles.push_back(cycle);
    }
    if (cycles.size() != 1) continue;
    ++seen;
    for (const Schedule* const schedule : {static_cast<const Schedule*>(nullptr), static_cast<const Schedule*>(&job.schedule)}) {
      const Diagnosis d = diagnose(job.dumps(), schedule);
      ASSERT_EQ(nameOf(d.verdict), "cycle") << d.sentence;
      std::vector<int> ranks;
      Ns earliest = d.cycle.front().posted;
      for (std::size_t k = 0; k < d.cycle.size(); ++k) {
        ranks.push_back(d.cycle[k].rank.value);
        EXPECT_EQ(d.cycle[k].on, d.cycle[(k + 1) % d.cycle.size()].rank);
        EXPECT_EQ(d.cycle[k].posted, job.stuckIn(ranks.back())->posted);
        EXPECT_LE(earliest, d.cycle[k].posted);
      }
      EXPECT_EQ(d.firstStuck, d.cycle.front());
      std::ranges::sort(ranks);
      EXPECT_EQ(ranks, cycles.front());
      EXPECT_EQ(d.checkWouldCatch, schedule == nullptr ? std::nullopt : std::optional(true));
    }
  }
}

/// Rank 0 stops in its second forward and has posted the receive of the first gradient; rank 1 needs both forwards first. In another
/// schedule rank 0 waits for that gradient: the dumps are the same, so that without a schedule the cycle is said to be in doubt.
TEST(DiagnoseHang, WithoutAScheduleAReceiveThatMayBePostedAheadLeavesACycleInDoubt) {
  const auto op = [](OpKind kind, int peer, OpState state, std::size_t batch) {
    RecordedOp made;
    made.kind = kind, made.peer = JobRank{peer}, made.state = state, made.batch = batch;
    return made;
  };
  for (const std::size_t batch : {std::size_t{0}, std::size_t{1}}) {  // started with others, as torch does: then they are waited for
    Dumps dumps;
    dumps.ranks = 2;
    dumps.groups.push_back({"0", {}});
    dumps.dumps.push_back(
        {JobRank{0}, "rank0.json", {op(OpKind::Send, 1, OpState::Done, 0), op(OpKind::Receive, 1, OpState::Posted, batch)}});
    dumps.dumps.push_back(
        {JobRank{1}, "rank1.json", {op(OpKind::Receive, 0, OpState::Done, 0), op(OpKind::Receive, 0, OpState::Posted, batch)}});
    const Diagnosis unknown = diagnose(dumps, nullptr);
    EXPECT_EQ(unknown.verdict, Verdict::Cycle);
    EXPECT_EQ(std::ranges::any_of(unknown.notes, [](const std::string& n) { return n.find("the schedule tells") != std::string::npos; }),
              batch == 0);
  }
}

TEST(DiagnoseHang, OneOfFiveHundredRanksIsFound) {
  std::mt19937_64 random(512);
  StuckJob job{lower(generate("1f1b", {512, 512, 600}), Lowering::Torch), Mode::Blocking};
  job.endsRank = 300;
  job.endsAt = static_cast<int>(job.schedule.rows[300].size()) / 2;
  ASSERT_TRUE(job.run(random));
  expectSilent(diagnose(job.dumps(300), &job.schedule), job, 300);
}

TEST(DiagnoseHang, RowsAreThePlacesInAPipelinesGroup) {
  std::mt19937_64 random(3);
  StuckJob job{lower(generate("1f1b", {4, 4, 8}), Lowering::Torch), Mode::Blocking};
  job.endsRank = 2;
  job.endsAt = static_cast<int>(job.schedule.rows[2].size()) / 2;
  ASSERT_TRUE(job.run(random));
  Dumps dumps = job.dumps(2);
  const auto moved = [](JobRank rank) { return JobRank{2 * rank.value + 1}; };  // the pipeline of ranks 1, 3, 5, 7
  dumps.ranks = 8;
  for (JobRank& rank : dumps.groups[0].ranks) rank = moved(rank);
  for (RankDump& dump : dumps.dumps) {
    dump.rank = moved(dump.rank);
    for (RecordedOp& op : dump.ops) op.peer = moved(op.peer);
  }
  const Diagnosis d = diagnose(dumps, &job.schedule);
  ASSERT_EQ(d.silent.size(), 1U) << d.sentence;
  EXPECT_EQ(d.silent[0].rank, JobRank{5});
  EXPECT_EQ(d.silent[0].row, Rank{2});
  ASSERT_TRUE(d.firstStuck);
  EXPECT_EQ(d.firstStuck->rank, moved(JobRank{d.firstStuck->row.value}));
}

TEST(DiagnoseHang, NothingIsFoundWhereNothingIsOpen) {
  std::mt19937_64 random(1);
  StuckJob job{lower(generate("1f1b", {4, 4, 8}), Lowering::Torch), Mode::Blocking};
  ASSERT_FALSE(job.run(random));
  const Diagnosis d = diagnose(job.dumps(), &job.schedule);
  EXPECT_EQ(nameOf(d.verdict), "nothing") << d.sentence;
  EXPECT_FALSE(d.firstStuck);
}

}  // namespace
}  // namespace pw::hang
