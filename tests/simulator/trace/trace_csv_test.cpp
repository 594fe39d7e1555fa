#include "simulator/trace/trace_csv.h"

#include <gtest/gtest.h>

#include <random>
#include <string>

#include "schedules/error.h"
#include "schedules/generate.h"
#include "simulator/step/cost_table.h"
#include "simulator/step/simulate.h"
#include "tests/support/mutate.h"

namespace pw {
namespace {

const std::string kHead = std::string(kSpanCsvHead) + "\n";

std::string refusal(const std::string& text) {
  try {
    (void)parseSpanCsv(text, "spans.csv");
  } catch (const UsageError& error) {
    return error.what();
  }
  return "";
}

TEST(SpanCsv, WritesALineForEachSpan) {
  const Trace trace{2,
                    {{Rank(0), SpanKind::Forward, Stage(0), Microbatch(0), Rank(0), 0, 0, 10},
                     {Rank(0), SpanKind::SendForward, Stage(0), Microbatch(0), Rank(1), 64, 10, 12},
                     {Rank(1), SpanKind::Optimizer, Stage(-1), Microbatch(-1), Rank(1), 0, 20, 25}},
                    {}};
  EXPECT_EQ(toSpanCsv(trace), kHead + "0,F,0,0,0,0,0,10\n0,SEND_F,0,0,1,64,10,12\n1,OPTIMIZER,-1,-1,1,0,20,25\n");
}

TEST(SpanCsv, ReadsBackWhatItWrote) {
  SyntheticCosts costs;
  costs.forward = {3};
  costs.backwardInput = {2};
  costs.backwardWeight = {1};
  costs.transfer = 1;
  costs.latency = 2;
  for (const char* name : {"1f1b", "zb-h1", "gpipe"}) {
    Trace trace = simulate(generate(name, {4, 4, 8}), syntheticTable(costs, 4));
    normalize(trace);
    trace.memory.clear();
    EXPECT_EQ(parseSpanCsv(toSpanCsv(trace), "spans.csv"), trace) << name;
  }
}

TEST(SpanCsv, NamesLineAndProblem) {
  EXPECT_NE(refusal("").find("its first line is not rank,kind"), std::string::npos);
  EXPECT_NE(refusal(kHead).find("contains no span"), std::string::npos);
  EXPECT_NE(refusal(kHead + "0,F,0,0,0,0,0,1\n0,F,0,0,0,0,1\n").find("line 3: it does not have 8 cells"), std::string::npos);
  EXPECT_NE(refusal(kHead + "0,Q,0,0,0,0,0,1\n").find("\"Q\" is not a kind"), std::string::npos);
  EXPECT_NE(refusal(kHead + "4096,F,0,0,0,0,0,1\n").find("from 0 to 4095"), std::string::npos);
  EXPECT_NE(refusal(kHead + "0,F,0,0,0,0,5,4\n").find("ends before it starts"), std::string::npos);
  EXPECT_NE(refusal(kHead + "0,F,-1,0,0,0,0,1\n").find("needs its stage"), std::string::npos);
}

TEST(SpanCsv, TakesBlankLinesAndWindowsLineEnds) {
  const Trace trace = parseSpanCsv(std::string(kSpanCsvHead) + "\r\n0,F,0,0,0,0,5,9\r\n\r\n", "spans.csv");
  ASSERT_EQ(trace.spans.size(), 1U);
  EXPECT_EQ(trace.spans[0].end, 4) << "times count from the first span";
}

TEST(SpanCsv, SurvivesDamagedText) {
  std::mt19937_64 random(7);
  const std::string text = kHead + "0,F,0,0,0,0,0,10\n1,SEND_B,1,0,0,64,10,12\n1,REDUCE_GRAD,1,-1,1,5,20,25\n";
  int read = 0, refused = 0;
  for (int i = 0; i < 20'000; ++i) {
    const std::string damaged = test::mutate(text, random);
    try {
      const Trace trace = parseSpanCsv(damaged, "spans.csv");
      for (const Span& span : trace.spans)
        ASSERT_TRUE(span.start >= 0 && span.end >= span.start && span.rank.value < trace.ranks) << damaged;
      ++read;
    } catch (const UsageError&) {
      ++refused;
    }
  }
  EXPECT_GT(read, 1000);
  EXPECT_GT(refused, 1000);
}

}  // namespace
}  // namespace pw
