// Pipelines that Primus dumped: the measured run in tests/data, and dumps made of simulated schedules.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <string>

#include "backends/traces/import.h"
#include "schedules/error.h"
#include "schedules/generate.h"
#include "simulator/report/metrics.h"
#include "simulator/step/cost_table.h"
#include "simulator/step/simulate.h"
#include "tests/support/folder.h"
#include "tests/support/trace_rules.h"

namespace pw {
namespace {

using testing::HasSubstr;

const std::string kMeasured = PW_SOURCE_DIR "/tests/data/primus/pp8";

ImportedTrace imported(const std::string& path) {
  ImportedTrace result = importTrace({path}).value();
  for (const ImportedStep& step : result.steps) test::expectKeepsRules(step.trace);
  return result;
}

std::string refusal(const std::string& path) {
  try {
    (void)importTrace({path});
  } catch (const UsageError& error) {
    return error.what();
  }
  return "";
}

TEST(PrimusImport, ReadsTheMeasuredRunTimeByTime) {
  const ImportedTrace result = imported(kMeasured);
  EXPECT_EQ(result.title, "pp8");
  ASSERT_EQ(result.steps.size(), 12U);
  EXPECT_EQ(result.steps[0].name, "iteration 1 (warm-up)");
  EXPECT_EQ(result.steps[11].name, "iteration 12");
  // Rank 0's first forward starts the iteration, so times count from it.
  const auto fileOf = [](int rank) {
    return nlohmann::json::parse(test::contentOf(kMeasured + "/pp_rank_" + std::to_string(rank) + ".json")).at("7");
  };
  const auto ns = [](const nlohmann::json& ms) { return Ns(std::llround(ms.get<double>() * 1e6)); };
  const Ns origin = ns(fileOf(0).at("fwd_start").at(0));
  const Trace& trace = result.steps[6].trace;
  EXPECT_EQ(trace.ranks, 8);
  ASSERT_EQ(trace.spans.size(), 8U * 2U * 16U);
  for (int rank = 0; rank < 8; ++rank) {
    const nlohmann::json file = fileOf(rank);
    std::map<SpanKind, int> seen;
    for (const Span& span : trace.spans) {
      if (span.rank != Rank(rank)) continue;
      const char* name = span.kind == SpanKind::Forward ? "fwd" : "bwd";
      const int k = seen[span.kind]++;
      EXPECT_EQ(span.stage, Stage(rank));
      EXPECT_EQ(span.microbatch, Microbatch(k));
      EXPECT_EQ(span.start, ns(file.at(std::string(name) + "_start").at(static_cast<std::size_t>(k))) - origin);
      EXPECT_EQ(span.end, ns(file.at(std::string(name) + "_end").at(static_cast<std::size_t>(k))) - origin);
    }
    EXPECT_EQ(seen[SpanKind::Forward], 16);
    EXPECT_EQ(trace.memory[static_cast<std::size_t>(rank)].bytes, std::llround(file.at("memory").get<double>() * 1073741824.0));
  }
}

TEST(PrimusImport, FindsTheFolderFromAnyOfItsFiles) {
  EXPECT_EQ(imported(kMeasured + "/pp_rank_3.json"), imported(kMeasured));
  EXPECT_EQ(imported(kMeasured + "/config.json"), imported(kMeasured + "/"));
}

/// Writes a trace as Primus would. Names chunks and microbatches where `named`; chunks of a V count up on the way back.
class Dump {
 public:
  Dump(const Trace& trace, const Schedule& schedule, bool named, int firstMicrobatch = 0) {
    const int ranks = trace.ranks, chunks = static_cast<int>(schedule.placement.stages()) / ranks;
    write("config.json", {{"pp_size", ranks}, {"vp_size", chunks}, {"num_mbs", schedule.microbatches}});
    for (int rank = 0; rank < ranks; ++rank) {
      nlohmann::json iteration{{"total", 1.0}, {"memory", 2.0}};
      for (const char* name : {"fwd", "bwd", "wgrad"}) {
        for (const char* field : {"_start", "_end", "_minibatch", "_chunk"}) iteration[std::string(name) + field] = nlohmann::json::array();
      }
      for (const Span& span : trace.spans) {
        if (span.rank != Rank(rank) || !isCompute(span.kind)) continue;
        const std::string name = span.kind == SpanKind::Forward ? "fwd" : span.kind == SpanKind::BackwardWeight ? "wgrad" : "bwd";
        iteration[name + "_start"].push_back(static_cast<double>(span.start) / 1e6);
        iteration[name + "_end"].push_back(static_cast<double>(span.end) / 1e6);
        if (!named) continue;
        iteration[name + "_minibatch"].push_back(span.microbatch.value + firstMicrobatch);
        iteration[name + "_chunk"].push_back(span.stage.value / ranks);
      }
      write("pp_rank_" + std::to_string(rank) + ".json", {{"1", iteration}});
    }
  }
  void write(const std::string& name, const nlohmann::json& content) { (void)folder_.with(name, content.dump(2)); }
  [[nodiscard]] std::string path() const { return folder_.file(""); }

 private:
  test::Folder folder_;
};

Trace computed(const Schedule& schedule) {
  SyntheticCosts costs;
  costs.forward = {1'000'000};
  costs.backward = {2'000'000};
  costs.backwardInput = {1'100'000};
  costs.backwardWeight = {900'000};
  Trace trace = simulate(schedule, syntheticTable(costs, static_cast<int>(schedule.placement.stages())));
  std::erase_if(trace.spans, [](const Span& s) { return !isCompute(s.kind); });
  for (Span& span : trace.spans) span.peer = span.rank;
  normalize(trace);
  trace.memory.clear();
  for (int r = 0; r < trace.ranks; ++r) trace.memory.push_back({Rank(r), 0, Bytes{2} << 30});
  return trace;
}

TEST(PrimusImport, GivesTheOperationsOfAnInterleavedRunTheirStages) {
  for (const auto& [ranks, chunks, microbatches] : {std::tuple{4, 2, 8}, {2, 4, 8}, {8, 2, 16}, {3, 3, 9}}) {
    const Schedule schedule = interleavedWithGroups({ranks, ranks * chunks, microbatches}, ranks);
    const Trace trace = computed(schedule);
    for (const bool named : {false, true}) {
      const ImportedTrace result = imported(Dump(trace, schedule, named).path());
      ASSERT_EQ(result.steps.size(), 1U);
      EXPECT_EQ(result.steps[0].trace, trace) << ranks << " ranks, " << chunks << " chunks" << (named ? ", named" : "");
      EXPECT_EQ(result.notes.size(), named ? 1U : 2U) << "says which order it took";
    }
  }
}

TEST(PrimusImport, FindsTheGroupsThatChunksTakeTurnsIn) {
  for (const auto& [ranks, chunks, microbatches, group] : {std::tuple{4, 2, 12, 6}, {2, 2, 12, 4}, {4, 3, 16, 8}}) {
    const Schedule schedule = interleavedWithGroups({ranks, ranks * chunks, microbatches}, group);
    const ImportedTrace result = imported(Dump(computed(schedule), schedule, false).path());
    EXPECT_EQ(result.steps.at(0).trace, computed(schedule)) << ranks << " ranks, groups of " << group;
    EXPECT_THAT(result.notes, testing::Contains(HasSubstr("in groups of " + std::to_string(group) + " microbatches")));
  }
}

TEST(PrimusImport, ReadsSplitBackwardsAndTellsAVByItsTimes) {
  const Schedule schedule = generate("zbv", {4, 8, 10});
  const Trace trace = computed(schedule);
  for (const int first : {0, 1}) EXPECT_EQ(imported(Dump(trace, schedule, true, first).path()).steps.at(0).trace, trace);
  const Schedule line = generate("zb-h1", {4, 4, 8});
  EXPECT_EQ(imported(Dump(computed(line), line, false).path()).steps.at(0).trace, computed(line));
}

TEST(PrimusImport, TakesShapeFromTheFilesWhereThereIsNoConfig) {
  const Schedule schedule = generate("1f1b", {3, 3, 6});
  Dump dump(computed(schedule), schedule, false);
  std::filesystem::remove(dump.path() + "config.json");
  EXPECT_EQ(imported(dump.path()).steps.at(0).trace, computed(schedule));
}

TEST(PrimusImport, LeavesOutIterationsThatAreNotWhole) {
  const Schedule schedule = generate("1f1b", {2, 2, 2});
  Dump dump(computed(schedule), schedule, false);
  nlohmann::json rank = nlohmann::json::parse(test::contentOf(dump.path() + "pp_rank_0.json"));
  rank["2"] = rank["1"];
  rank["3"] = rank["1"];
  dump.write("pp_rank_0.json", rank);
  nlohmann::json other = nlohmann::json::parse(test::contentOf(dump.path() + "pp_rank_1.json"));
  other["2"] = other["1"];
  other["2"]["bwd_start"].erase(1);
  other["2"]["bwd_end"].erase(1);
  dump.write("pp_rank_1.json", other);
  const ImportedTrace result = imported(dump.path());
  EXPECT_EQ(result.steps.size(), 1U);
  EXPECT_THAT(result.notes, testing::IsSupersetOf({testing::StrEq("Iteration 2 was left out: rank 1 has 1 backwards of 2."),
                                                   testing::StrEq("Iteration 3 was left out: rank 1 does not have it.")}));
}

TEST(PrimusImport, SaysWhichFileAndWhatIsWrong) {
  const Schedule schedule = generate("1f1b", {2, 2, 2});
  Dump dump(computed(schedule), schedule, false);
  const std::string sound = test::contentOf(dump.path() + "pp_rank_1.json");
  dump.write("config.json", {{"pp_size", 3}, {"vp_size", 1}, {"num_mbs", 2}});
  EXPECT_THAT(refusal(dump.path()), HasSubstr("pp_rank_2.json is missing, but the pipeline has 3 ranks"));
  dump.write("config.json", {{"pp_size", 2}, {"vp_size", 1}, {"num_mbs", 3}});
  EXPECT_THAT(refusal(dump.path()), HasSubstr("has 2 forwards, not 3 microbatches times 1 chunks"));
  dump.write("config.json", {{"pp_size", 99999}});
  EXPECT_THAT(refusal(dump.path()), HasSubstr("pp_size is 99999"));
  dump.write("config.json", {{"pp_size", 2}, {"vp_size", 1}, {"num_mbs", 2}});
  nlohmann::json damaged = nlohmann::json::parse(sound);
  damaged["1"]["fwd_end"][0] = -1e308;
  dump.write("pp_rank_1.json", damaged);
  EXPECT_THAT(refusal(dump.path()), HasSubstr("a time of fwd_end is not a number of milliseconds"));
  dump.write("pp_rank_1.json", nlohmann::json::array());
  EXPECT_THAT(refusal(dump.path()), HasSubstr("not a JSON object of iterations"));
}

}  // namespace
}  // namespace pw
