// Plans run without their model, and what is said where there is no GPU to run them on.
#include <algorithm>
#include <filesystem>

#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include "backends/host/gpu_inventory.h"
#include "backends/store/run_store.h"
#include "tests/app/cli/job.h"
#include "tests/support/whole_run.h"

namespace pw::test {
namespace {

using Json = nlohmann::json;

TEST(Synthetic, RunsAPlanWhoseModelIsGone) {
  for (const std::string transport : {"ucx", "gloo"}) {
    SCOPED_TRACE(transport);
    const Folder folder;
    const std::string model = folder.file("gpt.pt2"), plan = folder.file("plan.json"), store = folder.file("runs.db");
    std::filesystem::copy_file(std::string(PW_SOURCE_DIR) + "/resources/models/gpt_small.pt2", model);
    ASSERT_EQ(call({"plan", model, "--ranks", "2", "--microbatches", "4", "--out", plan}).status, 0);
    std::filesystem::remove(model);
    const Outcome outcome = finish({"run", plan, "--synthetic", "--steps", "3", "--store", store, "--json", "--backend", transport});
    ASSERT_EQ(outcome.status, 0) << outcome.err;
    EXPECT_EQ(Json::parse(outcome.out).at("times"), "rehearsed");
    // Nowhere are its times called measured.
    for (const std::string command : {"compare", "explain"}) {
      const Outcome said = call({command, "--store", store});
      EXPECT_NE(said.out.find("rehears"), std::string::npos) << said.out;
      EXPECT_EQ(said.out.find("easured"), std::string::npos) << said.out;
      EXPECT_EQ(Json::parse(call({command, "--store", store, "--json"}).out).at("times"), "rehearsed");
    }
    EXPECT_NE(call({"runs", "--store", store}).out.find(" rehearsed"), std::string::npos);
    // Its trace has the prediction beside the step, which is not of the job.
    const std::string trace = folder.file("trace.json");
    ASSERT_EQ(call({"export", "--store", store, "--to", "chrome", "--out", trace}).status, 0);
    const std::string figure = folder.file("step.svg");
    ASSERT_EQ(call({"export", "--store", store, "--both", "--to", "svg", "--out", figure}).status, 0);
    EXPECT_NE(contentOf(figure).find("Rehearsed"), std::string::npos);
    EXPECT_EQ(contentOf(figure).find("easured"), std::string::npos);
    const Json explained = Json::parse(call({"explain", trace, "--json"}).out);
    EXPECT_EQ(explained.at("times"), "rehearsed");
    EXPECT_EQ(explained.at("steps").size(), 1U);
    const RunRecord run = wholeRun(store);
    EXPECT_EQ(run.transport, valueNamed<Transport>(transport));
    EXPECT_TRUE(run.facts.synthetic);
    ASSERT_EQ(run.steps.size(), 3U);
    for (const StepRecord& step : run.steps) {
      std::size_t computed = 0;
      for (const Span& span : step.measured.spans) {
        if (!isCompute(span.kind)) continue;
        ++computed;
        const StageCost& cost = run.plan.costs.stages.at(span.stage.index());
        EXPECT_GE(span.end - span.start, span.kind == SpanKind::Forward ? cost.forward : cost.backward)
            << "an action lasts as long as the plan says";
      }
      EXPECT_EQ(computed, 2U * 2 * 4) << "a forward and a backward of 4 microbatches on 2 stages";
    }
  }
}

/// Times of milliseconds, so that they can be waited for; what is recomputed is part of a backward.
TEST(Synthetic, RunsThePlanOfALayerTable) {
  const Folder folder;
  const std::string plan = folder.file("plan.json"), store = folder.file("runs.db"),
                    table = folder.with("layers.csv",
                                        "name,forward_ns,input_ns,weight_ns,parameter_bytes,activation_bytes,output_bytes,"
                                        "activation_if_recomputed_bytes\n"
                                        "a,1000000,2000000,1000000,10,7,64,2\nb,1000000,2000000,1000000,10,7,0,2\n");
  for (const std::string schedule : {"1f1b", "zb-h1", "auto"}) {
    SCOPED_TRACE(schedule);
    const Outcome planned = call({"plan", "--layers", table, "--ranks", "2", "--microbatches", "4", "--schedule", schedule, "--recompute",
                                  "full", "--out", plan, "--json"});
    ASSERT_EQ(planned.status, 0) << planned.err;
    const Outcome outcome = finish({"run", plan, "--synthetic", "--steps", "2", "--store", store, "--json"});
    ASSERT_EQ(outcome.status, 0) << outcome.err;
    EXPECT_EQ(Json::parse(outcome.out)["predicted_makespan_ns"], Json::parse(planned.out)["makespan_ns"]);
    const RunRecord run = wholeRun(store);
    ASSERT_EQ(run.steps.size(), 2U);
    for (const StepRecord& step : run.steps) {
      Ns computed = 0;
      for (const Span& span : step.measured.spans) {
        if (isCompute(span.kind)) computed += span.end - span.start;
      }
      EXPECT_GE(computed, 2 * 4 * (1 + 1 + 2 + 1) * Ns{1'000'000}) << "F, F again, I and W of 4 microbatches on 2 stages";
    }
  }
}

TEST(Synthetic, RefusesWhatNeedsTheModel) {
  const Folder folder;
  const std::string plan = planned(folder, {"gpt_small"}, {"--ranks", "2", "--microbatches", "4"});
  for (const std::string option : {"--verify", "--eval", "--masked"})
    expectRefusal(finish({"run", plan, "--synthetic", option}), 2, {"--synthetic"});
}

TEST(NoGpu, IsOneSentenceThatNamesTheCure) {
  if (whyUnusable(gpuInventory(), 0).empty()) GTEST_SKIP() << "there is a GPU here";
  const Folder folder;
  const std::string plan = planned(folder, {"gpt_small"}, {"--ranks", "2", "--microbatches", "4"});
  expectRefusal(finish({"run", plan, "--backend", "nccl"}), 2, {"--backend nccl runs on GPUs", "use --backend ucx"});
  expectRefusal(finish({"run", plan, "--backend", "nccl", "--synthetic"}), 2, {"use --backend ucx"});
  expectRefusal(finish({"run", plan, "--tf32"}), 2, {"--tf32", "--backend nccl"});
  const std::string model = std::string(PW_SOURCE_DIR) + "/resources/models/gpt_small.pt2";
  expectRefusal(finish({"profile", model, "--device", "cuda:0"}), 2, {"--device cuda:0", "on the CPU"});
  expectRefusal(finish({"profile", model, "--device", "cuda:x"}), 2, {"There is no device 'cuda:x'"});
}

TEST(Precision, TrainsInBfloat16) {
  const Folder folder;
  const std::string plan = planned(folder, {"gpt_small"}, {"--ranks", "2", "--microbatches", "4"});
  const auto losses = [&](const std::vector<std::string>& more) {
    std::vector<std::string> arguments{"run", plan, "--steps", "3", "--lr", "0.1", "--json"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const Outcome outcome = finish(arguments);
    EXPECT_EQ(outcome.status, 0) << outcome.err;
    return Json::parse(outcome.out).at("losses").get<std::vector<double>>();
  };
  const auto exact = losses({}), rounded = losses({"--precision", "bf16"});
  ASSERT_EQ(rounded.size(), exact.size());
  EXPECT_NE(rounded, exact) << "bfloat16 keeps 8 bits";
  for (std::size_t i = 0; i < exact.size(); ++i) EXPECT_NEAR(rounded[i], exact[i], 0.01 * exact[i]);
  EXPECT_LT(rounded.back(), rounded.front()) << "it learns";
  expectRefusal(finish({"run", plan, "--verify", "--precision", "bf16"}), 2, {"--precision"});
}

// What a rank waits for other replicas to begin their reduction is no time of reducing.
TEST(Synthetic, ComparesReductionsWithoutTheWaitForOtherReplicas) {
  const Folder folder;
  const std::string store = folder.file("runs.db"), csv = folder.file("step.csv");
  const std::string plan = planned(folder, {"gpt_small"}, {"--ranks", "2", "--microbatches", "2", "--replicas", "2"});
  const Outcome run = finish({"run", plan, "--synthetic", "--steps", "2", "--store", store});
  ASSERT_EQ(run.status, 0) << run.err;
  const Outcome compared = finish({"compare", "--store", store, "--json"});
  ASSERT_EQ(compared.status, 0) << compared.err;
  const nlohmann::json document = nlohmann::json::parse(compared.out);
  ASSERT_EQ(finish({"export", "--store", store, "--to", "csv", "--out", csv}).status, 0);
  std::istringstream lines(contentOf(csv));
  std::int64_t all = 0;
  int count = 0;
  for (std::string line; std::getline(lines, line);) {
    if (line.find("REDUCE_GRAD") == std::string::npos) continue;
    std::vector<std::string> cells;
    std::istringstream row(line);
    for (std::string cell; std::getline(row, cell, ',');) cells.push_back(cell);
    const std::size_t end = cells.size() - 1;
    all += std::stoll(cells[end]) - std::stoll(cells[end - 1]);
    ++count;
  }
  ASSERT_EQ(count, 4) << "a stage of each rank";
  const std::int64_t waits = document.at("measured_reduction_waits_ns").get<std::int64_t>();
  EXPECT_GT(waits, 0);
  const auto& groups = document.at("by_kind");
  const auto reductions = std::ranges::find_if(groups, [](const auto& group) { return group.at("group") == "REDUCE_GRAD"; });
  ASSERT_NE(reductions, groups.end());
  EXPECT_EQ(reductions->at("measured_ns").get<std::int64_t>() + waits, all);
  EXPECT_THAT(finish({"compare", "--store", store}).out,
              testing::HasSubstr("\nBefore reductions of gradients, ranks of the rehearsal waited "));
}

// Stages of two plans with other splits do other work.
TEST(Synthetic, DoesNotCompareStagesWhereSplitsDiffer) {
  const Folder folder;
  const std::string store = folder.file("runs.db");
  std::vector<std::string> plans;
  for (const std::string at : {"blocks.2", "blocks.1"}) {
    plans.push_back(folder.file(at + ".json"));
    std::filesystem::rename(planned(folder, {"gpt_small"}, {"--ranks", "2", "--microbatches", "2", "--split", at}), plans.back());
    ASSERT_EQ(finish({"run", plans.back(), "--synthetic", "--steps", "2", "--store", store}).status, 0);
  }
  ASSERT_EQ(finish({"run", plans.back(), "--synthetic", "--steps", "2", "--store", store}).status, 0);
  const auto jsonOf = [](Words words) {
    words.insert(words.begin(), "compare");
    words.emplace_back("--json");
    return nlohmann::json::parse(finish(words).out);
  };
  const std::string sentence = "Their splits differ, so their stages are not compared.";
  for (const Words& words : {Words{"--store", store, "--run", "1", "--with", "2"}, Words{"--trace", plans[0], "--with-trace", plans[1]}}) {
    const nlohmann::json document = jsonOf(words);
    EXPECT_EQ(document.at("same_splits"), false) << words[0];
    EXPECT_TRUE(document.at("by_stage").empty()) << words[0];
    EXPECT_THAT(document.at("verdict").at("sentence").get<std::string>(),
                testing::AllOf(testing::HasSubstr(sentence), testing::Not(testing::HasSubstr("of stage"))));
  }
  const nlohmann::json same = jsonOf({"--store", store, "--run", "2", "--with", "3"});
  EXPECT_EQ(same.at("same_splits"), true);
  EXPECT_EQ(same.at("by_stage").size(), 2U);
  EXPECT_THAT(same.at("verdict").at("sentence").get<std::string>(), testing::Not(testing::HasSubstr(sentence)));
}

}  // namespace
}  // namespace pw::test
