// Hangs in collectives, of hand-made dumps.
#include "simulator/hang/diagnose.h"

#include <gtest/gtest.h>

#include "simulator/hang/inquiry.h"
#include "simulator/hang/report.h"
#include "simulator/hang/waits.h"

namespace pw::hang {
namespace {

/// Rank 0 in so many collectives of all ranks, of which it alone left a dump.
Dumps aloneInCollectives(int ranks, int operations) {
  Dumps dumps;
  dumps.ranks = ranks;
  dumps.groups.push_back({"0", {}});
  dumps.dumps.push_back({JobRank{0}, "rank0.json", {}});
  for (int i = 0; i < operations; ++i) {
    RecordedOp op;
    op.kind = OpKind::Collective;
    op.name = "nccl:all_reduce";
    op.sequence = i;
    dumps.dumps[0].ops.push_back(op);
  }
  return dumps;
}

TEST(DiagnoseCollectives, SilentRanksAreCountedBeyondThoseThatAreDescribed) {
  const Dumps dumps = aloneInCollectives(128, 1);
  const Diagnosis d = diagnose(dumps, nullptr);
  EXPECT_EQ(d.sentence,
            "ranks 1, 2, 3, 4, 5, 6, 7, 8 and 119 more are silent (rank 1: it left no dump); "
            "rank 0 waits in nccl:all_reduce (operation 0) for rank 1");
  EXPECT_EQ(d.silentRanks, 127U);
  EXPECT_EQ(d.silent.size(), 64U);
  EXPECT_NE(diagnosisText(dumps, d).find("  rank 16: it left no dump\n  and 111 ranks more\n"), std::string::npos);
}

TEST(DiagnoseCollectives, OneSilentRankIsNamedWithItsReason) {
  EXPECT_EQ(diagnose(aloneInCollectives(2, 1), nullptr).sentence,
            "rank 1 is silent: it left no dump; rank 0 waits in nccl:all_reduce (operation 0) for rank 1");
}

/// A recorder on the host notes the end of a collective some time after it. Where one rank has noted it, all have taken part.
TEST(DiagnoseCollectives, ACollectiveThatAnotherRankHasEndedIsNotWaitedFor) {
  Dumps dumps = aloneInCollectives(2, 3);
  dumps.dumps.push_back(dumps.dumps[0]);
  dumps.dumps[1].rank = JobRank{1};
  for (RankDump& dump : dumps.dumps) {
    for (RecordedOp& op : dump.ops) op.state = OpState::Done;
  }
  RecordedOp& last = dumps.dumps[0].ops[2];
  last.state = OpState::Posted;
  EXPECT_TRUE(waitsOf(dumps, nullptr).open[0].empty());
  last.state = OpState::Started;  // a device that never came to its end
  EXPECT_EQ(waitsOf(dumps, nullptr).open[0].size(), 1U);
  last.state = OpState::Posted;
  for (RankDump& dump : dumps.dumps) dump.ops[2].name = "nccl:broadcast";  // whose root ends alone
  EXPECT_EQ(waitsOf(dumps, nullptr).open[0].size(), 1U);
}

/// One rank against all others is the cause, whichever it is; of two it cannot be told.
TEST(DiagnoseCollectives, TheOneRankWithAnotherSizeIsTheCause) {
  for (const int ranks : {3, 5}) {
    for (int odd = 0; odd < ranks; ++odd) {
      Dumps dumps = aloneInCollectives(ranks, 1);
      dumps.dumps[0].ops[0].bytes = Bytes{16};
      for (int r = 1; r < ranks; ++r) {
        dumps.dumps.push_back(dumps.dumps[0]);
        dumps.dumps.back().rank = JobRank{r};
      }
      Dumps named = dumps;
      dumps.dumps[static_cast<std::size_t>(odd)].ops[0].bytes = Bytes{20};
      const Diagnosis sizes = diagnose(dumps, nullptr);
      EXPECT_EQ(sizes.verdict, Verdict::SizeMismatch);
      ASSERT_TRUE(sizes.cause);
      EXPECT_EQ(sizes.cause->rank, JobRank{odd}) << sizes.sentence;
      named.dumps[static_cast<std::size_t>(odd)].ops[0].name = "nccl:all_gather";
      const Diagnosis names = diagnose(named, nullptr);
      EXPECT_EQ(names.verdict, Verdict::CollectiveMismatch);
      ASSERT_TRUE(names.cause);
      EXPECT_EQ(names.cause->rank, JobRank{odd}) << names.sentence;
    }
  }
}

TEST(DiagnoseCollectives, OnlyTheOldestCollectiveHasAWaitForEachMember) {
  const Dumps dumps = aloneInCollectives(128, 200);
  const Waits waits = waitsOf(dumps, nullptr);
  ASSERT_EQ(waits.open.size(), 1U);
  EXPECT_EQ(waits.open[0].size(), 127U + 199U);
  EXPECT_EQ(waits.open[0][126].op, 0U);
  EXPECT_EQ(waits.open[0][127].op, 1U);
  Dumps awaited = dumps;
  awaited.dumps[0].ops[7].awaited = true;
  EXPECT_EQ(waitsOf(awaited, nullptr).open[0][126].op, 7U);
}

/// As torch 2.11's dumps of processes on Gloo are: also a collective that failed counts as done. The rank that was killed or stopped before
/// the third one left no dump, or one of two collectives; one of the others went on to a fourth before it failed.
TEST(DiagnoseCollectives, OnGlooTheLastThatARankPostedMayHaveFailed) {
  for (const bool leftDump : {false, true}) {
    for (int ranks = 2; ranks <= 4; ++ranks) {
      for (int victim = 0; victim < ranks; ++victim) {
        SCOPED_TRACE(testing::Message() << ranks << " ranks, " << victim << (leftDump ? " with dump" : ""));
        Dumps dumps = aloneInCollectives(ranks, 3);
        const RankDump made = dumps.dumps[0];
        dumps.dumps.clear();
        const int ahead = ranks == 4 ? (victim + 1) % ranks : -1;
        for (int r = 0; r < ranks; ++r) {
          if (r == victim && !leftDump) continue;
          RankDump& dump = dumps.dumps.emplace_back(made);
          dump.rank = JobRank{r};
          if (r == victim) dump.ops.pop_back();
          if (r == ahead) dump.ops.push_back(dump.ops.back());
          for (std::size_t i = 0; i < dump.ops.size(); ++i) {
            dump.ops[i].name = "gloo:all_reduce";
            dump.ops[i].sequence = static_cast<std::int64_t>(i) + 1;
            dump.ops[i].posted = Ns(1000 * (static_cast<std::int64_t>(i) + 1));
            dump.ops[i].state = OpState::Done;
          }
        }
        const Diagnosis d = diagnose(dumps, nullptr);
        EXPECT_EQ(d.verdict, Verdict::SilentRank) << d.sentence;
        ASSERT_EQ(d.silent.size(), 1U) << d.sentence;
        EXPECT_EQ(d.silent[0].rank, JobRank{victim});
        ASSERT_TRUE(d.firstStuck);
        EXPECT_EQ(d.firstStuck->position, 2) << d.sentence;
        EXPECT_EQ(d.firstStuck->on, JobRank{victim});
      }
    }
  }
}

TEST(DiagnoseCollectives, OnGlooWhereAllPostedAsManyNothingIsKnownToWait) {
  Dumps dumps = aloneInCollectives(2, 2);
  for (RecordedOp& op : dumps.dumps[0].ops) op.name = "gloo:all_reduce", op.state = OpState::Done;
  dumps.dumps.push_back(dumps.dumps[0]);
  dumps.dumps[1].rank = JobRank{1};
  EXPECT_EQ(diagnose(dumps, nullptr).verdict, Verdict::CannotTell);
}

/// 300 dumps of a job of 65,536 ranks, whose one group lists none: every dump waits for all ranks that left none.
TEST(DiagnoseCollectives, OnGlooWaitsOfTheLastAreBounded) {
  Dumps dumps = aloneInCollectives(65536, 1);
  dumps.dumps[0].ops[0].name = "gloo:all_reduce", dumps.dumps[0].ops[0].state = OpState::Done;
  for (int r = 1; r < 300; ++r) {
    dumps.dumps.push_back(dumps.dumps[0]);
    dumps.dumps.back().rank = JobRank{r};
  }
  Inquiry inquiry(dumps, nullptr);
  EXPECT_TRUE(inquiry.lastMayHaveFailed());
  std::size_t waits = 0;
  for (const std::vector<Wait>& open : inquiry.waits.open) {
    EXPECT_FALSE(open.empty());
    waits += open.size();
  }
  EXPECT_LT(waits, kMostWaits + 65536 + 300);
  EXPECT_GE(waits, kMostWaits);
}

/// Rank 0 sums before it sends to rank 2, which receives before it sums; rank 1 is in the sum, too.
TEST(DiagnoseCollectives, AMessageThatAMemberWaitsForBeforeItIsTheCycle) {
  Dumps dumps = aloneInCollectives(3, 1);
  const RecordedOp sum = dumps.dumps[0].ops[0];
  for (const int r : {1, 2}) {
    dumps.dumps.push_back(dumps.dumps[0]);
    dumps.dumps.back().rank = JobRank{r};
  }
  RecordedOp send, receive;
  send.kind = OpKind::Send, send.name = "nccl:send 2<-0", send.peer = JobRank{2};
  receive.kind = OpKind::Receive, receive.name = "nccl:recv 2<-0", receive.peer = JobRank{0};
  dumps.dumps[0].ops = {sum, send};
  dumps.dumps[2].ops = {receive, sum};
  const Diagnosis d = diagnose(dumps, nullptr);
  EXPECT_EQ(d.verdict, Verdict::Cycle) << d.sentence;
  EXPECT_EQ(d.cycle.size(), 2U);
}

}  // namespace
}  // namespace pw::hang
