// Other people's jobs on the command line: import, explain, simulate, search and compare on traces of other tools.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <string>
#include <tuple>

#include "tests/app/cli/call.h"
#include "tests/support/folder.h"

namespace pw::test {
namespace {

using testing::HasSubstr;
using Json = nlohmann::json;

const std::string kPrimus = PW_SOURCE_DIR "/tests/data/primus/pp8";
const std::string kNdTimeline = PW_SOURCE_DIR "/tests/data/straggler_analysis/timeline-ST.json.gz";

Json jsonOf(const std::vector<std::string>& arguments) {
  const Outcome outcome = call(arguments);
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_EQ(outcome.err, "");
  return Json::parse(outcome.out);
}

TEST(JobsCli, ReplaysEveryIterationOfPrimusWithinATenthOfAPercent) {
  const Json explained = jsonOf({"explain", kPrimus, "--json"});
  ASSERT_EQ(explained.at("steps").size(), 12U);
  for (const Json& step : explained.at("steps")) {
    EXPECT_LE(std::abs(step.at("makespan_error").get<double>()), 0.001) << step.at("step");
    EXPECT_LE(step.at("start_error").get<double>(), 0.001) << step.at("step");
  }
  EXPECT_EQ(explained.at("by_worker").size(), 8U);
  EXPECT_EQ(explained.at("critical_path").at("by_kind").at(0).at("kind"), "B");
  EXPECT_EQ(explained.at("steps").at(0).at("step"), "iteration 1 (warm-up)");  // kept, and in no mean
  EXPECT_NE(explained.at("worst_steps").at(0).at("step"), "iteration 1 (warm-up)");
  double sum = 0;
  for (std::size_t k = 1; k < 12; ++k) sum += explained.at("steps").at(k).at("step_ns").get<double>() / 11;
  EXPECT_NEAR(explained.at("step_ns").get<double>(), sum, 1);
}

TEST(JobsCli, UsualTimesOfSomeStepsPredictTheNext) {
  const Folder folder;
  const std::string job = folder.file("job.json");
  const Outcome imported = call({"import", kPrimus, "--steps", "5-8", "--out", job});
  EXPECT_EQ(imported.status, 0) << imported.err;
  EXPECT_THAT(imported.out, HasSubstr("pp8: 1f1b, 8 ranks, 8 stages, 16 microbatches, 4 measured steps"));
  const auto predicted = jsonOf({"simulate", "--costs-from", job, "--json"}).at("makespan_ns").get<double>();
  const Json measured = jsonOf({"explain", kPrimus, "--steps", "9-12", "--json"});
  for (const Json& step : measured.at("steps")) EXPECT_NEAR(predicted / step.at("makespan_ns").get<double>(), 1, 0.012);
  // The same job from its file and from its trace, in all that is known of it.
  EXPECT_EQ(jsonOf({"explain", job, "--json"}), jsonOf({"explain", kPrimus, "--steps", "5-8", "--json"}));
}

TEST(JobsCli, ExplainsAJobWithReplicasInWords) {
  const Outcome outcome = call({"explain", kNdTimeline});
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  for (const char* part :
       {"1f1b, 4 ranks, 4 stages, 4 microbatches, 2 replicas, 16 measured steps", "With only that as it was, all else ideal: rank 3",
        "critical path", "idle of rank", "worst steps", "at most 0.0 % off its pipeline's time"})
    EXPECT_THAT(outcome.out, HasSubstr(part));
}

TEST(JobsCli, SimulatesOtherSchedulesAndShapesWithAJobsCosts) {
  const Json own = jsonOf({"simulate", "--costs-from", kNdTimeline, "--json"});
  EXPECT_EQ(own.at("schedule"), "1f1b");
  EXPECT_EQ(own.at("rank_count"), 4);
  const Json slow = jsonOf({"simulate", "--costs-from", kNdTimeline, "--slow", "3=2", "--json"});
  EXPECT_GT(slow.at("makespan_ns").get<double>(), 1.3 * own.at("makespan_ns").get<double>());
  const Json zbv = jsonOf({"simulate", "--costs-from", kNdTimeline, "--schedule", "zbv", "--json"});
  EXPECT_EQ(zbv.at("stage_count"), 8);
  EXPECT_LT(zbv.at("makespan_ns").get<double>(), own.at("makespan_ns").get<double>());
  const Json two = jsonOf({"simulate", "--costs-from", kNdTimeline, "--ranks", "2", "--microbatches", "8", "--json"});
  EXPECT_EQ(two.at("stage_count"), 2);
  EXPECT_EQ(jsonOf({"simulate", "--costs-from", kNdTimeline, "--schedule", "auto", "--seconds", "0.1", "--json"}).at("schedule"), "auto");
}

TEST(JobsCli, SearchesWithAJobsStagesCutAnew) {
  const Folder folder;
  const std::string job = folder.file("job.json");
  ASSERT_EQ(call({"import", kNdTimeline, "--out", job}).status, 0);
  const Json found = jsonOf({"search", "--costs-from", job, "--ranks", "4", "--microbatches", "4", "--schedules", "1f1b,gpipe", "--json"});
  // The long last stage is balanced: faster than as it was cut.
  EXPECT_LT(found.at("best").at(0).at("makespan_ns").get<double>(),
            jsonOf({"simulate", "--costs-from", job, "--json"}).at("makespan_ns").get<double>());
  // A trace has times alone.
  const std::string text = call({"search", "--costs-from", job, "--ranks", "4", "--microbatches", "4", "--schedules", "1f1b,gpipe"}).out;
  EXPECT_THAT(text, HasSubstr("predicted with costs of the job"));
  EXPECT_THAT(text, testing::Not(HasSubstr("memory")));
  EXPECT_THAT(text, testing::Not(HasSubstr("0 B")));
  EXPECT_THAT(call({"search", "--costs-from", kNdTimeline, "--ranks", "4"}).err, HasSubstr("is not a job; make one of a trace"));
  // Parts of its stages are no layers.
  const std::string plan = folder.file("plan.json");
  ASSERT_EQ(call({"search", "--costs-from", job, "--ranks", "4", "--microbatches", "4", "--schedules", "1f1b", "--out", plan}).status, 0);
  for (const char* tool : {"megatron", "torchtitan"})
    EXPECT_THAT(call({"export", plan, "--to", tool, "--out", folder.file(tool)}).err,
                HasSubstr("plan a table of the model's layers instead"));
  EXPECT_THAT(call({"layout", "--check", "Ettt|ttt|ttt|tttL", "--layers", job}).err, HasSubstr("plan a table of the model's layers"));
}

TEST(JobsCli, ComparesTwoTracesTaskByTask) {
  const Folder folder;
  const std::string slow = folder.file("slow.json"), quick = folder.file("quick.json");
  for (const auto& [file, last] : {std::pair{slow, "1ms,2ms"}, {quick, "1ms,1ms"}})
    ASSERT_EQ(call({"simulate", "--schedule", "gpipe", "--ranks", "2", "--microbatches", "4", "--forward", last, "--backward", "2ms",
                    "--trace", file})
                  .status,
              0);
  const Json compared = jsonOf({"compare", "--trace", quick, "--with-trace", slow, "--json"});
  // Filling 1, four F of 1 or 2, then four B of 2 and draining 2.
  EXPECT_NEAR(compared.at("makespan_error").get<double>(), 19.0 / 15 - 1, 1e-9);
  EXPECT_EQ(compared.at("by_stage").size(), 2U);
  for (const char* key : {"action_error", "by_kind", "by_rank"}) EXPECT_TRUE(compared.contains(key)) << key;
  EXPECT_NEAR(jsonOf({"compare", "--trace", slow, "--with-trace", slow, "--json"}).at("makespan_error").get<double>(), 0, 1e-12);
}

TEST(JobsCli, ComparesWholeBackwardsWithSplitOnes) {
  const Folder folder;
  const std::string whole = folder.file("1f1b.json"), split = folder.file("zb.json");
  for (const auto& [file, schedule, backward] : {std::tuple{whole, "1f1b", "--backward"}, {split, "zb-h1", "--input"}}) {
    std::vector<std::string> words{"simulate", "--schedule", schedule, "--ranks", "2", "--microbatches", "4", "--forward",
                                   "1ms",      backward,     "2ms",    "--trace", file};
    if (schedule == std::string("zb-h1")) words.insert(words.end(), {"--weight", "1ms"});
    ASSERT_EQ(call(words).status, 0);
  }
  const Json compared = jsonOf({"compare", "--trace", whole, "--with-trace", split, "--json"});
  EXPECT_EQ(compared.at("matched"), 2 * 2 * 4) << "F and backward of four microbatches on two ranks";
  EXPECT_EQ(compared.at("matched_split"), 2 * 4);
  EXPECT_EQ(compared.at("unmatched"), 0);
  const Json& row = compared.at("by_kind").at(1);
  EXPECT_EQ(row.at("group"), "B (I + W)");
  EXPECT_EQ(row.at("predicted_ns"), 8 * 2'000'000);
  EXPECT_EQ(row.at("measured_ns"), 8 * (2'000'000 + 1'000'000));
  const std::string text = call({"compare", "--trace", whole, "--with-trace", split}).out;
  EXPECT_THAT(text, HasSubstr("The second is ")) << "neither has happened";
  EXPECT_THAT(text, HasSubstr("(16 actions matched, of them 8 B with I)"));
}

TEST(JobsCli, GivesTheChangeOfMessagesBetweenTwoPredictions) {
  const Folder folder;
  const std::string quick = folder.file("quick.json"), slow = folder.file("slow.json");
  for (const auto& [file, transfer] : {std::pair(quick, "10us"), std::pair(slow, "20us")}) {
    ASSERT_EQ(call({"simulate", "--schedule", "1f1b", "--ranks", "2", "--microbatches", "4", "--forward", "1ms", "--backward", "2ms",
                    "--transfer", transfer, "--trace", file})
                  .status,
              0);
  }
  const std::string text = call({"compare", "--trace", quick, "--with-trace", slow}).out;
  const std::size_t send = text.find("\nSEND_F");
  ASSERT_NE(send, std::string::npos) << text;
  EXPECT_THAT(text.substr(send + 1, text.find('\n', send + 1) - send), HasSubstr("+100.0 %"));
}

TEST(JobsCli, TakesNamesOfAUsersOwnByPatterns) {
  // GPipe of one microbatch: F of 5, B of 9, one after the other.
  const Folder folder;
  Json events = Json::array();
  for (int step = 0; step < 2; ++step) {
    for (int rank = 0; rank < 2; ++rank) {
      events.push_back({{"ph", "X"}, {"name", "mb0 fwd"}, {"pid", rank}, {"tid", 1}, {"ts", 100 * step + 5 * rank}, {"dur", 5}});
      events.push_back({{"ph", "X"}, {"name", "mb0 bwd"}, {"pid", rank}, {"tid", 1}, {"ts", 100 * step + 19 - 9 * rank}, {"dur", 9}});
    }
  }
  const std::string trace = folder.with("t.json", events.dump());
  const std::string patterns = folder.with("p.json", R"p({"patterns":[{"regex":"mb(?<microbatch>\\d+) (?<kind>fwd|bwd)"}]})p");
  const Json explained = jsonOf({"explain", trace, "--patterns", patterns, "--json"});
  EXPECT_EQ(explained.at("step_ns").get<double>(), 28'000);
  EXPECT_THAT(call({"explain", trace}).err, HasSubstr("no pipeline labels"));
  const Outcome imported = call({"import", trace, "--patterns", patterns, "--out", folder.file("job.json")});
  EXPECT_EQ(imported.status, 0) << imported.err;
  EXPECT_EQ(jsonOf({"explain", folder.file("job.json"), "--json"}).at("step_ns"), explained.at("step_ns"));
  const Json same = jsonOf({"compare", "--trace", trace, "--with-trace", trace, "--patterns", patterns, "--json"});
  EXPECT_EQ(same.at("matched"), 4) << "F and B of one microbatch on two ranks";
  EXPECT_THAT(call({"compare", "--trace", trace, "--with-trace", trace}).err, HasSubstr("no pipeline labels"));
  EXPECT_THAT(call({"compare", "--store", "runs.db", "--patterns", patterns}).err, HasSubstr("add --trace and --with-trace"));
  for (const char* command : {"import", "explain"}) {
    const Outcome outcome = call({command, folder.file("job.json"), "--patterns", patterns});
    EXPECT_EQ(outcome.status, 2);
    EXPECT_THAT(outcome.err, HasSubstr("names in traces"));
  }
}

TEST(JobsCli, RefusesWhatIsUnusableInOneSentence) {
  const Folder folder;
  const std::string newer = folder.with("newer.json", R"({"format": "pipewright job", "version": 2})");
  for (const auto& [arguments, part] : std::vector<std::pair<std::vector<std::string>, std::string>>{
           {{"explain"}, "name a trace, a job or a plan"},
           {{"explain", newer}, "it has version 2, this program reads 1"},
           {{"explain", kPrimus, "--steps", "40"}, "has no step from 40 to 40"},
           {{"explain", kPrimus, "--steps", "x"}, "is not a range of steps"},
           {{"import", kPrimus, "--out", "job.csv"}, "a job is written as JSON"},
           {{"simulate", "--costs-from", kPrimus, "--forward", "1ms"}, "--costs-from has all times"},
           {{"simulate", "--costs-from", kPrimus, "--memory-limit", "1KB"}, "say nothing of memory"},
           {{"simulate", "--steps", "3", "--schedule", "1f1b", "--ranks", "2", "--microbatches", "2"}, "--steps are of a job"},
           {{"compare"}, "compare needs --store"},
           {{"compare", "--trace", kPrimus}, "go together"}}) {
    const Outcome outcome = call(arguments);
    EXPECT_EQ(outcome.status, 2) << part;
    EXPECT_EQ(outcome.out, "") << part;
    EXPECT_THAT(outcome.err,
                testing::AnyOf(HasSubstr(part), HasSubstr(std::string(1, static_cast<char>(std::toupper(part[0]))) + part.substr(1))));
  }
}

}  // namespace
}  // namespace pw::test
