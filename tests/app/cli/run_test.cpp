// The way from a plan to a stored run, with real processes over Gloo.

#include <cmath>
#include <filesystem>
#include <ostream>

#include <nlohmann/json.hpp>

#include "tests/app/cli/job.h"

namespace pw::test {
namespace {

using Json = nlohmann::json;

Json runOf(const std::string& plan, const Words& more, const std::string& note = {}) { return Json::parse(outputOf(plan, more, note)); }

/// What a run of hf_llama says: its own loss is a mean over the targets that count.
const std::string kTargetMean =
    "loss is the mean over the targets that are not -100 of each microbatch, and a step averages these by samples: where a microbatch "
    "holds "
    "a tenth fewer such targets than the average, each of its such targets weighs 11 % more than in a loss over the whole batch; "
    "--loss-count auto weighs them equally";

TEST(MainPath, LeadsFromAModelToAStoredRunAndItsComparison) {
  const Folder folder;
  const std::string plan = folder.file("plan.json"), store = folder.file("runs.db");
  const Outcome planning = finish({"plan", sample("gpt_small"), "--ranks", "2", "--microbatches", "8", "--json", "--out", plan});
  EXPECT_EQ(planning.status, 0) << planning.err;
  EXPECT_EQ(planning.err, "");
  const Json run = runOf(plan, {"--steps", "3", "--store", store, "--verify"});
  EXPECT_EQ(run["run_id"], 1);
  EXPECT_EQ(run["predicted_makespan_ns"], Json::parse(planning.out)["makespan_ns"]);
  ASSERT_EQ(run["losses"].size(), 3U);
  for (const Json& loss : run["losses"]) EXPECT_TRUE(loss.is_number() && std::isfinite(loss.get<double>())) << loss;
  EXPECT_LT(run["losses"][2], run["losses"][0]) << "the same synthetic batch is learned";
  ASSERT_EQ(run["steps"].size(), 3U);
  EXPECT_EQ(run["steps"][2]["ranks"].size(), 2U);
  EXPECT_EQ(run["verification"]["equal"], true);

  const Json comparison = Json::parse(finish({"compare", "--store", store, "--json"}).out);
  EXPECT_EQ(comparison["run_id"], 1);
  EXPECT_EQ(comparison["predicted_makespan_ns"], run["predicted_makespan_ns"]);
  EXPECT_EQ(comparison["matched"], 2 * 2 * 8);
  EXPECT_EQ(comparison["unmatched"], 0);
  EXPECT_EQ(comparison["measured_makespan_ns"], run["steps"][comparison["step"].get<std::size_t>()]["makespan_ns"]);
  EXPECT_EQ(runOf(plan, {"--store", store})["run_id"], 2);
  const Json runs = Json::parse(finish({"runs", "--store", store, "--json"}).out)["runs"];
  ASSERT_EQ(runs.size(), 2U);
  EXPECT_EQ(runs[0]["step_count"], 3);
  EXPECT_EQ(runs[0]["rank_count"], 2);
}

/// Tensors that the engine allocates, against sizes and what operators keep. No dropout: what that keeps is a GPU's. Without the scratch
/// memory of a CPU's convolutions, which each thread has where the CPU has no AVX-512, and no estimate knows: as much as a second thread
/// adds.
TEST(MainPath, EstimatesTheMemoryOfARun) {
  const Folder folder;
  const std::string plan = folder.file("plan.json");
  for (const std::string model : {"gpt_small", "vit_small", "resnet18_narrow"}) {
    for (const std::string precision : {"traced", "bf16"}) {
      SCOPED_TRACE(model + ", " + precision);
      const Words words{"plan",      sample(model), "--ranks",    "1",     "--microbatches", "2",       "--microbatch", "16",
                        "--cluster", "h100-nvlink", "--schedule", "gpipe", "--precision",    precision, "--out",        plan};
      ASSERT_EQ(finish(words).status, 0);
      const auto measuredWith = [&](const std::string& threads) {
        const Json run = runOf(plan, {"--steps", "2", "--backend", "gloo", "--threads", threads});
        return run["steps"][1]["ranks"][0]["peak_bytes"].get<double>();
      };
      const double one = measuredWith("1"), scratch = measuredWith("2") - one, measured = one - scratch;
      const Json predicted = Json::parse(finish({"simulate", plan, "--json"}).out);
      EXPECT_NEAR(predicted["ranks"][0]["peak_bytes"].get<double>() / measured, 1, 0.05);
    }
  }
}

TEST(MainPath, SaysHowMuchOfThePeakARunUsed) {
  const Folder folder;
  const std::string store = folder.file("runs.db"), plan = folder.file("plan.json");
  const Words words{"plan", sample("gpt_small"), "--ranks", "2", "--microbatches", "4", "--cluster", "h100-nvlink", "--out", plan};
  ASSERT_EQ(finish(words).status, 0);
  const Json run = runOf(plan, {"--steps", "2", "--backend", "gloo", "--store", store});
  const double work = run["predicted_flop_utilisation"].get<double>() * run["predicted_step_ns"].get<double>();
  ASSERT_GT(work, 0);
  for (const Json& step : run["steps"])  // the same FLOPs in the time that the step took
    EXPECT_NEAR(step["flop_utilisation"].get<double>() * step["step_ns"].get<double>(), work, 1e-9 * work);
  const Json comparison = Json::parse(finish({"compare", "--store", store, "--json"}).out);
  EXPECT_EQ(comparison["predicted_flop_utilisation"], run["predicted_flop_utilisation"]);
  EXPECT_NEAR(comparison["measured_flop_utilisation"].get<double>() * comparison["measured_step_ns"].get<double>(), work, 1e-9 * work);
  EXPECT_NE(finish({"compare", "--store", store}).out.find("model FLOPs"), std::string::npos);
  EXPECT_FALSE(runOf(plan, {"--synthetic", "--backend", "gloo"})["steps"][0].contains("flop_utilisation")) << "nothing is computed";
  const Json other =
      runOf(plan, {"--precision", "bf16", "--backend", "gloo"},
            plan + " was planned for computing as traced, and this run computes in bf16: predicted times and memory are not its own");
  EXPECT_FALSE(other.contains("predicted_flop_utilisation") || other["steps"][0].contains("flop_utilisation")) << "of another peak";
}

struct Case {
  const char* name;
  Words models;
  int ranks;
  Words plan;
  std::string note = {};  ///< on stderr

  friend void PrintTo(const Case& c, std::ostream* out) { *out << c.name; }
};

class PipelinedStep : public testing::TestWithParam<Case> {};

TEST_P(PipelinedStep, IsTheStepOfOneRank) {
  const Folder folder;
  const Case& c = GetParam();
  Words words{"--ranks", std::to_string(c.ranks)};
  words.insert(words.end(), c.plan.begin(), c.plan.end());
  const Json run = runOf(planned(folder, c.models, words), {"--verify"}, c.note);
  EXPECT_EQ(run["verification"]["equal"], true) << run["verification"];
  EXPECT_TRUE(run["losses"][0].is_number()) << run["losses"];
  EXPECT_EQ(run["steps"][0]["ranks"].size(), static_cast<std::size_t>(c.ranks));
}

INSTANTIATE_TEST_SUITE_P(
    Of, PipelinedStep,
    testing::Values(Case{"GptOnOneRank", {"gpt_small"}, 1, {"--microbatches", "3"}},
                    Case{"GptOnThreeRanksByGpipe", {"gpt_small"}, 3, {"--microbatches", "4", "--schedule", "gpipe"}},
                    Case{"GptOnFourRanksBy1f1b", {"gpt_small"}, 4, {"--microbatches", "6", "--schedule", "1f1b"}},
                    Case{"GptOnFourRanksWithFewerMicrobatches", {"gpt_small"}, 4, {"--microbatches", "2"}},
                    Case{"GptInUnevenMicrobatches", {"gpt_small"}, 2, {"--batch", "10", "--microbatches", "4"}},
                    Case{"GptSplitInsideABlock", {"gpt_small"}, 2, {"--microbatches", "3", "--split", "blocks.1.mlp"}},
                    Case{"TwoArchives", {"two_part_a", "two_part_b"}, 2, {"--microbatches", "3", "--schedule", "gpipe"}},
                    Case{"GptWithItsOwnMarker", {"gpt_split"}, 2, {"--microbatches", "4"}},
                    Case{"LlamaWithItsOwnLoss", {"hf_llama"}, 3, {"--microbatches", "4"}, kTargetMean},
                    Case{"Gpt2WithSharedWeightsAndDropout", {"hf_gpt2"}, 2, {"--microbatches", "3"}},
                    Case{"Gpt2WithSharedWeightsByGpipe", {"hf_gpt2"}, 3, {"--microbatches", "2", "--schedule", "gpipe"}},
                    Case{"Bert", {"hf_bert"}, 2, {"--microbatches", "3", "--schedule", "gpipe"}},
                    Case{"ResnetWithBatchNorm", {"resnet18_narrow"}, 2, {"--microbatches", "3"}},
                    Case{"VisionTransformer", {"vit_small"}, 2, {"--microbatches", "5"}},
                    Case{"ModelWithBranches", {"example_code"}, 2, {"--microbatches", "2", "--schedule", "gpipe"}}),
    [](const auto& tested) { return std::string(tested.param.name); });

TEST(Run, LearnsTheSameOnAnyNumberOfRanks) {
  // After the first step, which --verify compares, weights have been updated on all ranks; float32 sums in another order differ by 1e-6 or
  // so.
  const Folder folder;
  const Json one =
      runOf(planned(folder, {"hf_gpt2"}, {"--ranks", "1", "--batch", "7", "--microbatches", "3"}), {"--steps", "4", "--seed", "3"});
  const Json three =
      runOf(planned(folder, {"hf_gpt2"}, {"--ranks", "3", "--batch", "7", "--microbatches", "3"}), {"--steps", "4", "--seed", "3"});
  for (std::size_t s = 0; s < 4; ++s) EXPECT_NEAR(one["losses"][s].get<double>(), three["losses"][s].get<double>(), 1e-5) << "step " << s;
}

TEST(Run, ReadsOptionsInEveryFormOnEveryRank) {
  const Folder folder;
  const std::string plan = planned(folder, {"gpt_small"}, {"--ranks", "2", "--microbatches", "2"});
  const Json apart = runOf(plan, {"--lr", "0.05", "--seed", "3", "--steps", "3"});
  const Json joined = runOf(plan, {"--lr=0.05", "--seed=3", "--steps=3"});
  EXPECT_EQ(apart["losses"].size(), 3U);
  EXPECT_EQ(apart["losses"], joined["losses"]);
  EXPECT_LT(apart["losses"][2], apart["losses"][0]) << "the same batch each step";
  EXPECT_NE(runOf(plan, {"--seed", "4"})["losses"][0], apart["losses"][0]);
}

TEST(Run, SaysInTextThatItIsEqualToOneRank) {
  const Folder folder;
  const std::string plan = planned(folder, {"gpt_small"}, {"--ranks", "2", "--microbatches", "3"});
  const Outcome outcome = finish({"run", plan, "--steps", "2", "--verify"});
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_NE(outcome.out.find("verified against one rank"), std::string::npos) << outcome.out;
  EXPECT_EQ(outcome.out.find("NOT EQUAL"), std::string::npos) << outcome.out;
}

TEST(Run, TakesMarkersAndLossFromTheModel) {
  const Folder folder;
  const Json split = Json::parse(contentOf(planned(folder, {"gpt_split"}, {"--microbatches", "4"})));
  EXPECT_NE(split.dump().find("pipe_split (blocks.2)"), std::string::npos);
  const Json llama = Json::parse(contentOf(planned(folder, {"hf_llama"}, {"--ranks", "2", "--microbatches", "4"})));
  EXPECT_EQ(llama["loss"], "output:loss");
}

TEST(Run, DrawsTheWeightsOfAMetaArchiveWhereAskedTo) {
  const Folder folder;
  const std::string plan = planned(folder, {"gpt_small_meta"}, {"--ranks", "2", "--microbatches", "2"});
  expectRefusal(finish({"run", plan}), 2, {"Rank ", "has no values", "--init random"});
  const Json run = runOf(plan, {"--init", "random", "--verify"});
  // Weights near 0 predict all of the 256 tokens about alike.
  EXPECT_NEAR(run["losses"][0].get<double>(), std::log(256.0), 0.1);
  EXPECT_EQ(finish({"plan", sample("gpt_small_meta"), "--ranks", "2", "--microbatches", "2"}).status, 0)
      << "times can be measured without weights";
}

/// What a rank that another launcher started finds in its environment.
JobOptions placeOf(int rank, int worldSize, int port) {
  return {{{"RANK", std::to_string(rank)},
           {"WORLD_SIZE", std::to_string(worldSize)},
           {"MASTER_ADDR", "127.0.0.1"},
           {"MASTER_PORT", std::to_string(port)}}};
}

TEST(JoiningRanks, TrainAsThoseWeStart) {
  const Folder folder;
  const std::string plan = planned(folder, {"gpt_small"}, {"--ranks", "2", "--microbatches", "3"});
  const Words words{"run", plan, "--steps", "2", "--json", "--store", folder.file("runs.db")};
  const int port = 20000 + getpid() % 10000;
  Job first(words, placeOf(0, 2, port)), second(words, placeOf(1, 2, port));
  const Outcome printed = first.wait(), silent = second.wait();
  EXPECT_EQ(printed.status, 0) << printed.err;
  EXPECT_EQ(silent.status, 0) << silent.err;
  EXPECT_EQ(silent.out, "");
  const Json run = Json::parse(printed.out);
  EXPECT_EQ(run["run_id"], 1);
  EXPECT_EQ(run["losses"], runOf(plan, {"--steps", "2"})["losses"]);
}

TEST(JoiningRanks, RunUnderTorchrun) {
  const std::string torchrun = PW_SOURCE_DIR "/.deps/venv/bin/torchrun";
  ASSERT_TRUE(std::filesystem::exists(torchrun)) << "run ./dev setup";
  const Folder folder;
  const std::string plan = planned(folder, {"gpt_small"}, {"--ranks", "2", "--microbatches", "3"});
  const Outcome outcome =
      finish({"--standalone", "--nproc-per-node", "2", "--no-python", PIPEWRIGHT, "run", plan, "--steps", "2", "--json"},
             {{}, RLIM_INFINITY, torchrun});
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_EQ(Json::parse(outcome.out)["losses"].size(), 2U);
}

TEST(JoiningRanks, AreRefusedWhereTheirNumberIsNotThePlans) {
  const Folder folder;
  const std::string plan = planned(folder, {"gpt_small"}, {"--ranks", "2", "--microbatches", "3"});
  expectRefusal(finish({"run", plan}, placeOf(0, 3, 29555)), 2, {"2 ranks", "WORLD_SIZE is 3"});
}

TEST(JoiningRanks, SayWhomTheyCannotMeet) {
  const Folder folder;
  const std::string plan = planned(folder, {"gpt_small"}, {"--ranks", "2", "--microbatches", "3"});
  const int port = 10000 + getpid() % 10000;
  for (const int rank : {0, 1}) {
    const Outcome outcome = Job({"run", plan, "--timeout", "1"}, placeOf(rank, 2, port)).wait();
    expectRefusal(outcome, 1, {"Rank " + std::to_string(rank), "127.0.0.1:" + std::to_string(port)});
  }
}

TEST(Start, LoadsNoTorchWhereNoneIsNeeded) {
  const Outcome outcome = finish({"schedule", "list"}, {{{"LD_DEBUG", "files"}}});
  EXPECT_EQ(outcome.status, 0);
  EXPECT_NE(outcome.err.find("libstdc++"), std::string::npos) << "the linker tells what it loads";
  EXPECT_EQ(outcome.err.find("torch"), std::string::npos);
}

}  // namespace
}  // namespace pw::test
