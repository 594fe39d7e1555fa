#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "schedules/generate.h"
#include "simulator/step/cost_table.h"
#include "simulator/step/simulate.h"
#include "simulator/timeline/chrome.h"
#include "simulator/trace/trace.h"
#include "tests/support/random_costs.h"

namespace pw {
namespace {

using Json = nlohmann::json;

Json eventsOf(const std::vector<const Trace*>& traces, const std::vector<std::string>& names) {
  return Json::parse(toChromeJson(traces, names)).at("traceEvents");
}

std::vector<Json> withPhase(const Json& events, const std::string& phase) {
  std::vector<Json> result;
  std::copy_if(events.begin(), events.end(), std::back_inserter(result), [&](const Json& e) { return e.at("ph") == phase; });
  return result;
}

Trace example() {
  SyntheticCosts costs;
  costs.forward = {1000};
  costs.backward = {2001};
  costs.latency = 5000;
  costs.transfer = 10;
  CostTable table = syntheticTable(costs, 3);
  table.stages[1].activationBytes = 77;
  return simulate(generate("1f1b", {3, 3, 5}), table);
}

TEST(ChromeTrace, HasEverySpanWithItsTimesInMicroseconds) {
  const Trace trace = example();
  const std::vector<Json> slices = withPhase(eventsOf({&trace}, {"predicted"}), "X");
  EXPECT_EQ(slices.size(), trace.spans.size());
  const auto first = std::find_if(slices.begin(), slices.end(), [](const Json& e) { return e.at("name") == "1B0"; });
  ASSERT_NE(first, slices.end());
  const auto span = std::find_if(trace.spans.begin(), trace.spans.end(), [](const Span& s) {
    return s.kind == SpanKind::Backward && s.stage == Stage(1) && s.microbatch == Microbatch(0);
  });
  EXPECT_DOUBLE_EQ(first->at("ts").get<double>(), static_cast<double>(span->start) / 1000.0);
  EXPECT_DOUBLE_EQ(first->at("dur").get<double>(), 2.001);
  EXPECT_EQ(first->at("tid"), 1);
}

TEST(ChromeTrace, EachTraceIsANamedProcessWithNamedThreads) {
  const Trace trace = example();
  const Json events = eventsOf({&trace, &trace}, {"predicted", "measured \"quick\" run"});
  std::map<std::string, std::vector<std::string>> names;
  for (const Json& e : withPhase(events, "M")) {
    if (e.at("name") != "thread_sort_index") names[e.at("name")].push_back(e.at("args").at("name"));
  }
  EXPECT_EQ(names["process_name"], (std::vector<std::string>{"predicted", "measured \"quick\" run"}));
  EXPECT_EQ(std::count(names["thread_name"].begin(), names["thread_name"].end(), "rank 2"), 2);
  EXPECT_GE(std::count(names["thread_name"].begin(), names["thread_name"].end(), "rank 1 → 0"), 2);
}

TEST(ChromeTrace, SlicesOfAThreadNeverOverlap) {
  for (std::uint64_t seed = 1; seed <= 50; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937_64 random(seed);
    const Schedule schedule = test::randomSchedule(random);
    const Trace trace = simulate(schedule, test::randomCosts(random, schedule));
    std::map<int, std::vector<std::pair<double, double>>> threads;
    for (const Json& e : withPhase(eventsOf({&trace}, {"t"}), "X")) {
      const double start = e.at("ts").get<double>();
      threads[e.at("tid").get<int>()].emplace_back(start, start + e.at("dur").get<double>());
    }
    for (auto& [thread, slices] : threads) {
      std::sort(slices.begin(), slices.end());
      for (std::size_t i = 1; i < slices.size(); ++i) EXPECT_LE(slices[i - 1].second, slices[i].first + 1e-6) << "thread " << thread;
    }
  }
}

TEST(ChromeTrace, EveryMessageHasAnArrowFromItsProducerToItsUser) {
  const Trace trace = example();
  const Json events = eventsOf({&trace}, {"predicted"});
  const std::size_t messages = 2 * 2 * 5;
  std::map<int, std::vector<Json>> flows;
  for (const char* phase : {"s", "t", "f"}) {
    for (const Json& e : withPhase(events, phase)) flows[e.at("id").get<int>()].push_back(e);
  }
  EXPECT_EQ(flows.size(), messages);
  const auto sliceAt = [&](const Json& flow) {
    for (const Json& e : withPhase(events, "X")) {
      if (e.at("tid") == flow.at("tid") && e.at("ts") == flow.at("ts")) return e.at("name").get<std::string>();
    }
    return std::string();
  };
  for (const auto& [id, flow] : flows) {
    ASSERT_EQ(flow.size(), 3u);
    const std::string from = sliceAt(flow[0]), message = sliceAt(flow[1]), to = sliceAt(flow[2]);
    const int stage = from.at(0) - '0';
    const std::string letter(1, from.at(1)), microbatch(1, from.at(2));
    EXPECT_EQ(message, std::to_string(stage) + "SEND_" + letter + microbatch);
    EXPECT_EQ(to, std::to_string(letter == "F" ? stage + 1 : stage - 1) + letter + microbatch);
  }
}

TEST(ChromeTrace, MemoryIsACounterOfEachRank) {
  const Trace trace = example();
  const std::vector<Json> counters = withPhase(eventsOf({&trace}, {"predicted"}), "C");
  ASSERT_EQ(counters.size(), trace.memory.size());
  EXPECT_EQ(counters.at(1).at("name"), "memory of rank 1");
  EXPECT_EQ(counters.at(2).at("args").at("bytes"), 77);
}

TEST(ChromeTrace, OfNothingIsStillADocument) { EXPECT_TRUE(eventsOf({}, {}).empty()); }

TEST(Normalize, OrdersSpansAndMovesTheFirstToZero) {
  Trace trace = example();
  Trace shuffled = trace;
  std::reverse(shuffled.spans.begin(), shuffled.spans.end());
  std::reverse(shuffled.memory.begin(), shuffled.memory.end());
  for (Span& span : shuffled.spans) {
    span.start += 99;
    span.end += 99;
  }
  for (MemorySample& sample : shuffled.memory) sample.time += 99;
  normalize(shuffled);
  EXPECT_EQ(shuffled, trace);
}

}  // namespace
}  // namespace pw
