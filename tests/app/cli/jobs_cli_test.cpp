// Other people's jobs on the command line: import, explain, simulate, search and compare on traces of other tools.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <tuple>

#include "simulator/job/job_costs.h"
#include "simulator/job/job_json.h"
#include "tests/app/cli/call.h"
#include "tests/support/folder.h"

namespace pw::test {
namespace {

using testing::AllOf, testing::HasSubstr, testing::Not;
using Json = nlohmann::json;

const std::string kPrimus = PW_SOURCE_DIR "/tests/data/primus/pp8";
const std::string kTorch = PW_SOURCE_DIR "/tests/data/torch_traces/1f1b";
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
  // A trace does as well as its job, and a plan made of it finds it again.
  const std::string fromTrace = folder.file("from_trace.json");
  EXPECT_EQ(jsonOf({"search", "--costs-from", kNdTimeline, "--ranks", "4", "--microbatches", "4", "--schedules", "1f1b,gpipe", "--out",
                    fromTrace, "--json"})
                .at("best"),
            found.at("best"));
  EXPECT_EQ(call({"export", fromTrace, "--to", "megatron", "--num-layers", "16"}).status, 0);
  EXPECT_THAT(call({"search", "--costs-from", folder.file("none.json"), "--ranks", "4"}).err, HasSubstr("none.json cannot be read"));
  // Parts of its stages are no layers.
  const std::string plan = folder.file("plan.json");
  ASSERT_EQ(call({"search", "--costs-from", job, "--ranks", "4", "--microbatches", "4", "--schedules", "1f1b", "--out", plan}).status, 0);
  EXPECT_THAT(call({"export", plan, "--to", "torch", "--out", folder.file("torch")}).err, HasSubstr("is a layer table or a job"));
  EXPECT_THAT(call({"search", "--costs-from", plan, "--ranks", "4"}).err, HasSubstr("is a plan; search its model"));
  for (const char* tool : {"megatron", "torchtitan"})
    EXPECT_THAT(call({"export", plan, "--to", tool, "--out", folder.file(tool)}).err,
                HasSubstr("or plan a table of the model's layers instead"));
  EXPECT_THAT(call({"export", job, "--to", "megatron"}).err, HasSubstr("is a job, not a plan; predict its step with `pipewright simulate"));
  EXPECT_THAT(call({"layout", "--check", "Ettt|ttt|ttt|tttL", "--layers", job}).err, HasSubstr("plan a table of the model's layers"));
}

TEST(JobsCli, MapsStagesToLayersWhereToldHowManyTheModelHas) {
  const Folder folder;
  const std::string plan = folder.file("plan.json"), out = folder.file("megatron.json");
  ASSERT_EQ(
      call({"search", "--costs-from", kNdTimeline, "--ranks", "4", "--microbatches", "8", "--schedules", "1f1b", "--out", plan}).status, 0);
  ASSERT_EQ(call({"export", plan, "--to", "megatron", "--num-layers", "32", "--out", out}).status, 0);
  const Json megatron = Json::parse(contentOf(out));
  EXPECT_THAT(megatron.at("flags").dump(), AllOf(HasSubstr("--num-layers 32"), Not(HasSubstr("optimizer")), Not(HasSubstr("batch-size"))));
  // The long last stage gets fewer of its layers than the eight of an even cut; the check of the layout predicts the same step.
  const std::string layout = megatron.at("layout").get<std::string>();
  const Json checked =
      jsonOf({"layout", "--check", layout, "--layers", kNdTimeline, "--num-layers", "32", "--microbatches", "8", "--json"});
  const Outcome said = call({"layout", "--check", layout, "--layers", kNdTimeline, "--num-layers", "32", "--microbatches", "8"});
  for (const char* unsaid : {"peak memory", "no layer for E"}) EXPECT_THAT(said.out, Not(HasSubstr(unsaid)));
  EXPECT_EQ(checked.at("transformer_layers"), 32);
  EXPECT_LT(std::ranges::count(checked.at("stages").at(3).at("layers").get<std::string>(), 't'), 8) << layout;
  EXPECT_EQ(checked.at("step_ns"), megatron.at("step_ns"));
  ASSERT_EQ(call({"export", plan, "--to", "torchtitan", "--num-layers", "32", "--out", folder.file("titan")}).status, 0);
  const std::string arguments = contentOf(folder.file("titan/arguments.txt"));
  EXPECT_THAT(arguments, HasSubstr("module_fqns_per_model_part tok_embeddings,layers.0,layers.1,"));
  EXPECT_THAT(arguments, AllOf(HasSubstr(",layers.31,norm,lm_head\n"), Not(HasSubstr("batch")), Not(HasSubstr("precision"))));
  for (const auto& [words, part] : std::vector<std::pair<std::vector<std::string>, std::string>>{
           {{plan, "--to", "megatron", "--num-layers", "30"}, "30 layers are not equally many in each of the 4 stages"},
           {{plan, "--to", "torchtitan", "--num-layers", "30", "--out", folder.file("titan")}, "30 layers are not equally many"},
           {{plan, "--to", "layers", "--num-layers", "32"}, "--num-layers maps a job's stages to layers"},
           {{plan, "--to", "megatron"}, "with --num-layers, if all stages of the job hold equally many"}}) {
    std::vector<std::string> exported{"export"};
    exported.insert(exported.end(), words.begin(), words.end());
    EXPECT_THAT(call(exported).err, HasSubstr(part));
  }
}

// Two ranks of 1F1B with four microbatches: rank 0 holds two at its peak, rank 1 one.
TEST(JobsCli, PlansWithTheMemoryThatTracesShow) {
  const Folder folder;
  Json events = Json::array();
  const auto add = [&](int rank, const std::string& name, int start, int duration) {
    events.push_back(
        {{"ph", "X"}, {"name", name}, {"pid", rank}, {"tid", 1}, {"ts", start}, {"dur", duration}, {"cat", "user_annotation"}});
  };
  const auto hold = [&](int rank, int time, int bytes) {
    events.push_back({{"ph", "i"},
                      {"name", "[memory]"},
                      {"cat", "cpu_instant_event"},
                      {"s", "t"},
                      {"pid", rank},
                      {"tid", 1},
                      {"ts", time},
                      {"args", {{"Total Allocated", bytes}, {"Device Type", 0}, {"Bytes", 1}}}});
  };
  for (int step = 0; step < 2; ++step) {
    const int at = 1000 * step;
    for (const auto& [rank, actions] : std::vector<std::pair<int, std::vector<std::pair<const char*, int>>>>{{0,
                                                                                                              {{"PP:0F0", 0},
                                                                                                               {"PP:0F1", 10},
                                                                                                               {"PP:0B0", 40},
                                                                                                               {"PP:0F2", 60},
                                                                                                               {"PP:0B1", 70},
                                                                                                               {"PP:0F3", 90},
                                                                                                               {"PP:0B2", 100},
                                                                                                               {"PP:0B3", 130}}},
                                                                                                             {1,
                                                                                                              {{"PP:1F0", 10},
                                                                                                               {"PP:1B0", 20},
                                                                                                               {"PP:1F1", 40},
                                                                                                               {"PP:1B1", 50},
                                                                                                               {"PP:1F2", 70},
                                                                                                               {"PP:1B2", 80},
                                                                                                               {"PP:1F3", 100},
                                                                                                               {"PP:1B3", 110}}}}) {
      for (const auto& [name, start] : actions) add(rank, name, at + start, name[4] == 'F' ? 10 : 20);
      hold(rank, at + 1 + 10 * rank, 1000);
      hold(rank, at + 25, rank == 0 ? 1600 : 1200);  // 300 and 200 for a microbatch
    }
  }
  const std::string trace = folder.with("t.json", Json{{"schemaVersion", 1}, {"traceEvents", events}}.dump());
  const std::string job = folder.file("job.json");
  const Outcome imported = call({"import", trace, "--out", job});
  ASSERT_EQ(imported.status, 0) << imported.err;
  const Json memory = Json::parse(contentOf(job)).at("memory");
  EXPECT_EQ(memory, Json::parse(R"([{"base_bytes": 1000, "peak_bytes": 1600}, {"base_bytes": 1000, "peak_bytes": 1200}])"));
  const auto peaksOf = [&](const std::vector<std::string>& more) {
    std::vector<std::string> words{"simulate", "--costs-from", job, "--json"};
    words.insert(words.end(), more.begin(), more.end());
    std::vector<int> peaks;
    const Json predicted = jsonOf(words);
    for (const Json& rank : predicted.at("ranks")) peaks.push_back(rank.at("peak_bytes").get<int>());
    return peaks;
  };
  EXPECT_EQ(peaksOf({}), (std::vector<int>{1600, 1200})) << "the job's own schedule needs what it needed";
  EXPECT_EQ(peaksOf({"--schedule", "gpipe"}), (std::vector<int>{1000 + 4 * 300, 1000 + 4 * 200}));
  EXPECT_EQ(call({"simulate", "--costs-from", job, "--schedule", "gpipe", "--memory-limit", "2000B"}).status, 1);
  // One number for each step, as Primus dumps it, does not say what of it stays.
  EXPECT_THAT(call({"search", "--costs-from", kPrimus, "--ranks", "8", "--microbatches", "16", "--schedules", "1f1b"}).out,
              testing::Not(HasSubstr("peak memory")));
  const Json found = jsonOf({"search", "--costs-from", job, "--ranks", "2", "--microbatches", "4", "--schedules", "1f1b,gpipe",
                             "--memory-limit", "2000B", "--json"});
  EXPECT_EQ(found.at("best").at(0).at("schedule"), "1f1b");
  EXPECT_THAT(call({"search", "--costs-from", job, "--ranks", "2", "--microbatches", "4", "--schedules", "gpipe"}).out,
              HasSubstr("peak memory"));
  const std::string plan = folder.file("plan.json"), layout = folder.file("megatron.json");
  EXPECT_EQ(call({"plan", job, "--ranks", "2", "--microbatches", "4", "--out", plan, "--memory-limit", "1MB"}).status, 0);
  EXPECT_EQ(call({"export", plan, "--to", "megatron", "--num-layers", "4", "--memory-limit", "1MB", "--out", layout}).status, 0);
}

TEST(JobsCli, RefusesALimitOfMemoryThatTracesDoNotShow) {
  const Folder folder;
  const std::string job = folder.file("job.json"), plan = folder.file("plan.json"), layout = folder.file("megatron.json");
  ASSERT_EQ(call({"import", kPrimus, "--out", job}).status, 0);
  ASSERT_EQ(call({"plan", job, "--ranks", "8", "--microbatches", "16", "--out", plan}).status, 0);
  for (const std::vector<std::string>& words : std::vector<std::vector<std::string>>{
           {"simulate", "--costs-from", kPrimus},
           {"simulate", "--costs-from", kPrimus, "--schedule", "gpipe"},
           {"search", "--costs-from", kPrimus, "--ranks", "8", "--microbatches", "16", "--schedules", "1f1b"},
           {"plan", job, "--ranks", "8", "--microbatches", "16", "--out", folder.file("refused.json")},
           {"export", plan, "--to", "megatron", "--num-layers", "32", "--out", layout}}) {
    std::vector<std::string> limited = words;
    limited.insert(limited.end(), {"--memory-limit", "1KB"});
    const Outcome outcome = call(limited);
    EXPECT_EQ(outcome.status, 2) << words.front();
    EXPECT_THAT(outcome.err, HasSubstr("he traces of pp8 say nothing of memory, so that no limit can be checked; omit --memory-limit"))
        << words.front();
  }
  const auto studied = [&](const std::string& limits) {
    return call({"search", "--study",
                 folder.with("study.json",
                             R"({"version": 1, "model": "job.json", "ranks": 8, "microbatches": 16, "memory_limit": )" + limits + "}"),
                 "--out", folder.file("study" + std::to_string(limits.size()) + ".db")});
  };
  const Outcome study = studied(R"([0, "1KB"])");
  EXPECT_EQ(study.status, 2);
  EXPECT_THAT(study.err, HasSubstr("he traces of pp8 say nothing of memory, so that no limit can be checked; omit memory_limit"));
  EXPECT_EQ(studied("0").status, 0);
}

// A folder of traces stands for a model as a file of them does, and one without traces for none.
TEST(JobsCli, PlansFromAFolderOfTraces) {
  const Folder folder;
  const std::string plan = folder.file("plan.json"), again = folder.file("again.json"), job = folder.file("job.json");
  const std::vector<std::string> shape{"--ranks", "4", "--microbatches", "8"};
  const auto with = [&](std::vector<std::string> words, const std::vector<std::string>& more) {
    words.insert(words.end(), more.begin(), more.end());
    return call(std::move(words));
  };
  const Outcome planned = with({"plan", kTorch, "--out", plan}, shape);
  EXPECT_EQ(planned.status, 0) << planned.err;
  EXPECT_THAT(planned.out, HasSubstr("predicted step"));
  EXPECT_EQ(call({"inspect", kTorch}).status, 0);
  ASSERT_EQ(call({"import", kTorch, "--out", job}).status, 0);
  ASSERT_EQ(with({"plan", job, "--out", again}, shape).status, 0);
  EXPECT_EQ(jsonOf({"simulate", plan, "--json"}).at("step_ns"), jsonOf({"simulate", again, "--json"}).at("step_ns"));
  EXPECT_EQ(call({"export", plan, "--to", "megatron", "--num-layers", "16"}).status, 0) << "the plan finds the folder again";
  // Of a single file, packed by gzip.
  EXPECT_EQ(with({"plan", kNdTimeline}, shape).status, 0);
  // A job is one by its content, whatever its name.
  std::filesystem::copy_file(job, folder.file("job"));
  EXPECT_EQ(with({"plan", folder.file("job")}, shape).status, 0);
  const std::string none = folder.file("none");
  std::filesystem::create_directory(none);
  std::filesystem::copy_file(sample("gpt_small"), none + "/model.pt2");
  for (const std::vector<std::string>& words : std::vector<std::vector<std::string>>{
           {"plan", none}, {"search", none, "--ranks", "4"}, {"inspect", none}, {"layout", "--check", "Ett|ttL", "--layers", none}}) {
    const Outcome outcome = call(words);
    EXPECT_EQ(outcome.status, 2);
    EXPECT_THAT(outcome.err, HasSubstr(none + " is a folder without traces (")) << words.front();
    EXPECT_THAT(outcome.err, HasSubstr("); give the archives of a model by their names, or the folder of a job's traces"));
  }
  EXPECT_THAT(with({"plan", kTorch + "/rank0.json.gz", kTorch + "/rank1.json.gz"}, shape).err,
              HasSubstr("rank0.json.gz is a trace, and several files are the archives of a model's stages; give the folder of all traces"));
}

TEST(JobsCli, SaysHowFarOffPredictionsFromAJobMayBe) {
  const Folder folder;
  const std::string calibrated = folder.file("calibrated.json"), other = folder.file("other.json");
  const Json report = jsonOf({"calibrate", kPrimus, "--out", calibrated, "--json"});
  EXPECT_EQ(report.at("steps"), 11);
  const double own = report.at("own_schedule_deviation").get<double>(), others = report.at("deviation").get<double>();
  EXPECT_THAT(own, AllOf(testing::Gt(0), testing::Lt(0.01))) << "the steps of this job are alike";
  EXPECT_NEAR(others, std::hypot(own, 0.04, stretchOf(parseJob(contentOf(calibrated), calibrated)) - 1), 1e-9);
  // From the trace and from the calibrated job, of its own schedule and of another.
  for (const std::string& from : {kPrimus, calibrated}) {
    const Json predicted = jsonOf({"simulate", "--costs-from", from, "--json"});
    EXPECT_NEAR(predicted.at("uncertainty").at("deviation").get<double>(), own, 1e-9);
    const double step = predicted.at("step_ns").get<double>();
    EXPECT_NEAR(predicted.at("uncertainty").at("step_high_ns").get<double>(), step * (1 + 1.2816 * own), 2);
    EXPECT_NEAR(jsonOf({"simulate", "--costs-from", from, "--schedule", "gpipe", "--json"}).at("uncertainty").at("deviation").get<double>(),
                others, 1e-9);
    EXPECT_FALSE(jsonOf({"simulate", "--costs-from", from, "--slow", "1=2", "--json"}).contains("uncertainty")) << "nothing shows that";
  }
  EXPECT_THAT(call({"simulate", "--costs-from", calibrated}).out,
              testing::ContainsRegex("step +3.24 s .* ± [0-9.]+ ms, by held-out steps of the job"));
  const std::vector<std::string> search{"search",         "--costs-from", calibrated,    "--ranks",   "8",
                                        "--microbatches", "16",           "--schedules", "1f1b,gpipe"};
  EXPECT_THAT(call(search).out, HasSubstr("Steps ± 5.2 % (held-out steps of the job): "));
  // Another part of the job as a further one, which is predicted well.
  ASSERT_EQ(call({"import", kPrimus, "--steps", "9-12", "--out", other}).status, 0);
  const Json two = jsonOf({"calibrate", kPrimus, other, "--out", calibrated, "--json"});
  EXPECT_EQ(two.at("runs"), 2);
  EXPECT_LT(std::abs(two.at("others").at(0).at("error").get<double>()), 0.01);
  EXPECT_LT(two.at("deviation").get<double>(), others) << "what was seen counts beside what is assumed";
  EXPECT_EQ(jsonOf({"simulate", "--costs-from", calibrated, "--schedule", "gpipe", "--json"}).at("uncertainty").at("runs"), 2);
  EXPECT_THAT(call({"simulate", "--costs-from", calibrated, "--schedule", "gpipe"}).out, HasSubstr("by steps of 2 jobs"));
  const std::string ofTwo = folder.file("of_two.json");
  EXPECT_THAT(call({"plan", calibrated, "--ranks", "4", "--microbatches", "8", "--out", ofTwo}).out, HasSubstr("(steps of 2 jobs)"));
  EXPECT_THAT(call({"simulate", ofTwo}).out, HasSubstr("by steps of 2 jobs"));
  // A plan keeps it.
  const std::string plan = folder.file("plan.json");
  EXPECT_THAT(call({"plan", other, "--ranks", "8", "--microbatches", "16", "--out", plan}).out, HasSubstr("(held-out steps of the job)"));
  EXPECT_THAT(call({"simulate", plan}).out, HasSubstr("by held-out steps of the job"));
  for (const auto& [arguments, part] : std::vector<std::pair<std::vector<std::string>, std::string>>{
           {{"calibrate", "--out", other}, "Calibrate takes --store F.db, or jobs"},
           {{"calibrate", kPrimus, "--store", "runs.db", "--out", other}, "only one of these"},
           {{"calibrate", kPrimus, "--run", "1", "--out", other}, "--run selects a run of a store"}})
    EXPECT_THAT(call(arguments).err, HasSubstr(part));
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

// Files that are something else, and traces that are not all of a job.
TEST(JobsCli, SaysWhatAFileIsAndWhatToGiveInstead) {
  const Folder folder;
  const std::string empty = folder.with("empty.json", ""), text = folder.with("text.txt", "hello"), two = folder.file("two");
  std::filesystem::create_directory(two);
  for (const char* file : {"rank0.json.gz", "rank1.json.gz"}) {
    std::filesystem::copy_file(kTorch + "/" + file, two + "/" + file);
    std::filesystem::copy_file(kTorch + "/../gpipe/" + file, two + "/other_" + file);
  }
  const std::string one = kTorch + "/rank0.json.gz", model = sample("gpt_small"), job = folder.file("job.json");
  ASSERT_EQ(call({"import", kTorch, "--out", job}).status, 0);
  for (const auto& [words, sentence] : std::vector<std::pair<std::vector<std::string>, std::string>>{
           {{"import", text}, "text.txt is none of what is imported; give a trace (.json "},
           {{"import", empty}, "empty.json is empty; give a trace (.json "},
           {{"import", model}, "gpt_small.pt2 is none of what is imported; give a trace (.json "},
           {{"import", two}, "rank0.json.gz is of a job of 2 ranks, and "},
           {{"explain", two}, "rank0.json.gz of one of 4; import each job by itself"},
           {{"plan", two}, "import each job by itself"},
           {{"layout", "--check", "Ett|ttL", "--layers", "none.json"},
            "annot read none.json (No such file or directory); give the path of a readable file"},
           {{"simulate", one}, "rank0.json.gz is a trace, not a plan; predict its step with "},
           {{"simulate", kTorch}, "1f1b is a trace, not a plan; predict its step with "},
           {{"explain", job, one}, "job.json is a job, which stands alone; give it by itself, or only traces of one job"},
           {{"export", one, "--to", "megatron"}, "rank0.json.gz is a trace, not a plan; predict its step with "},
           {{"export", kTorch, "--to", "megatron"}, "1f1b is a trace, not a plan; predict its step with "},
           {{"export", model, "--to", "megatron"}, "gpt_small.pt2 is a model, not a plan; plan it with `pipewright plan "},
           {{"plan", text}, "is not a torch.export archive: it is too small to be a zip file; give one"},
           {{"hang", empty},
            "empty.json is empty, no dump of torch's Flight Recorder, NCCL RAS or this program; give what one of these wrote"},
           {{"hang", one}, "rank0.json.gz is no dump of torch's Flight Recorder"}}) {
    const Outcome outcome = call(words);
    EXPECT_EQ(outcome.status, 2) << words.front();
    EXPECT_THAT(outcome.err, HasSubstr(sentence));
  }
  const std::string missing = "The job has 4 ranks, and the traces of ranks 1, 2, 3 are not here";
  for (const std::vector<std::string>& words :
       std::vector<std::vector<std::string>>{{"simulate", "--costs-from", one},
                                             {"search", "--costs-from", one, "--ranks", "2", "--microbatches", "4", "--schedules", "1f1b"},
                                             {"plan", one, "--ranks", "2", "--microbatches", "4"}})
    EXPECT_THAT(call(words).err, AllOf(HasSubstr("lacks the last part of its pipeline"), HasSubstr(missing))) << words.front();
  EXPECT_THAT(call({"compare", "--trace", one, "--with-trace", kTorch}).out, HasSubstr("note of the first: " + missing));
  // One rank that is never idle, whose microbatches differ: no order of its actions is shorter than what it did.
  Json events = Json::array();
  for (const auto& [name, begin, length] : {std::tuple("PP:0F0", 0, 3), {"PP:0B0", 3, 5}, {"PP:0F1", 8, 4}, {"PP:0B1", 12, 9}})
    events.push_back({{"ph", "X"}, {"name", name}, {"pid", 0}, {"tid", 0}, {"ts", begin}, {"dur", length}});
  const Json alone = jsonOf({"simulate", "--costs-from", folder.with("alone.json", Json{{"traceEvents", events}}.dump()), "--json"});
  EXPECT_EQ(alone.at("makespan_ns"), alone.at("ranks").at(0).at("busy_ns"));
  EXPECT_EQ(alone.at("lower_bound_ns"), alone.at("makespan_ns"));
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

/// More ranks than the model has operators that take time: actions of 0 ns, whose order no times tell.
TEST(JobsCli, ExplainsAPlanWithStagesThatTakeNoTime) {
  const Folder folder;
  const std::string plan = folder.file("plan.json");
  ASSERT_EQ(call({"plan", sample("hf_gpt2"), "--ranks", "64", "--cluster", "h100-nvlink", "--microbatches", "64", "--out", plan}).status,
            0);
  const Outcome explained = call({"explain", plan, "--json"});
  EXPECT_EQ(explained.status, 0) << explained.err;
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
