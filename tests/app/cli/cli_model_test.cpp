#include <algorithm>
#include <set>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/app/cli/call.h"

namespace pw::test {
namespace {

using Json = nlohmann::json;

Json inspected(const std::vector<std::string>& arguments) {
  std::vector<std::string> words{"inspect", "--json"};
  words.insert(words.end(), arguments.begin(), arguments.end());
  const Outcome outcome = call(words);
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  return Json::parse(outcome.out);
}

Json entry(const Json& list, const char* key, const std::string& value) {
  const auto found = std::find_if(list.begin(), list.end(), [&](const Json& item) { return item[key] == value; });
  return found == list.end() ? Json() : *found;
}

/// gpt_small of resources/sample_models.py, exported with a batch of 2.
constexpr std::int64_t kBatch = 2, kLength = 32, kWidth = 64, kVocabulary = 256, kLayers = 4;

TEST(Inspect, CountsParametersAndFlopsOfEveryModule) {
  const Json json = inspected({sample("gpt_small")});
  const Json& modules = json["modules"];
  // Two norms with scale and shift, then weights and biases of q/k/v, out, up, down.
  const std::int64_t block = 4 * kWidth + 12 * kWidth * kWidth + 9 * kWidth;
  const std::int64_t all = kVocabulary * kWidth + kLength * kWidth + kLayers * block + 2 * kWidth + kVocabulary * kWidth;
  EXPECT_EQ(modules[0]["parameters"], all);
  EXPECT_EQ(modules[0]["parameter_bytes"], 4 * all);
  EXPECT_EQ(entry(modules, "path", "blocks.2")["parameters"], block);
  // 2 per multiply-add: the four matrices, and scores and mixture of attention.
  const std::int64_t blockFlops = 2 * kBatch * kLength * 12 * kWidth * kWidth + 4 * kBatch * kLength * kLength * kWidth;
  EXPECT_EQ(entry(modules, "path", "blocks.2")["forward_flops"], blockFlops);
  EXPECT_EQ(modules[0]["forward_flops"], kLayers * blockFlops + 2 * kBatch * kLength * kWidth * kVocabulary);
  EXPECT_EQ(entry(modules, "path", "blocks.2.mlp.up")["activation_bytes"], 4 * kBatch * kLength * 4 * kWidth);
}

TEST(Inspect, ShowsInputsOutputsAndWeights) {
  const Json json = inspected({sample("gpt_small")});
  ASSERT_EQ(json["inputs"].size(), 1U);
  EXPECT_EQ(json["inputs"][0]["name"], "tokens");
  EXPECT_EQ(json["inputs"][0]["dtype"], "int64");
  EXPECT_EQ(json["inputs"][0]["shape"], Json::array({"batch", kLength}));
  EXPECT_EQ(json["outputs"][0]["shape"], Json::array({"batch", kLength, kVocabulary}));
  EXPECT_EQ(json["weights"], true);
  EXPECT_EQ(inspected({sample("gpt_small_meta")})["weights"], false);
}

TEST(Inspect, NamesOutputsByTheirKeys) {
  const Json outputs = inspected({sample("hf_llama")})["outputs"];
  ASSERT_EQ(outputs.size(), 2U);
  EXPECT_EQ(outputs[0]["output_name"], "loss");
  EXPECT_EQ(outputs[1]["output_name"], "logits");
  const std::string traceName = outputs[0]["name"];
  EXPECT_NE(call({"inspect", sample("hf_llama")}).out.find("loss (" + traceName + ")"), std::string::npos);
  const Json single = inspected({sample("gpt_small")})["outputs"][0];
  EXPECT_EQ(single["output_name"], single["name"]) << "a tensor has no key";
}

TEST(Inspect, NamesSplitPointsWithTheBytesThatCross) {
  const Json json = inspected({sample("gpt_small")});
  const Json split = entry(json["split_points"], "name", "blocks.1");
  EXPECT_EQ(split["crossing_bytes"], 4 * kBatch * kLength * kWidth);
  EXPECT_EQ(split["values"], 1);
  EXPECT_TRUE(entry(json["split_points"], "name", "embed").is_null()) << "before it only positions are computed";
  EXPECT_FALSE(entry(inspected({sample("gpt_split")})["split_points"], "name", "pipe_split (blocks.2)").is_null());
}

TEST(Inspect, ScalesWithTheMicrobatch) {
  const Json two = inspected({sample("gpt_small")}), six = inspected({sample("gpt_small"), "--microbatch", "6"});
  EXPECT_EQ(six["microbatch"], 6);
  EXPECT_EQ(six["modules"][0]["forward_flops"].get<double>(), 3 * two["modules"][0]["forward_flops"].get<double>());
  EXPECT_EQ(six["modules"][0]["parameters"], two["modules"][0]["parameters"]);
}

TEST(Inspect, ShowsModulesDownToTheDepthAskedFor) {
  const Json shallow = inspected({sample("gpt_small"), "--depth", "1"});
  for (const Json& module : shallow["modules"]) EXPECT_LE(module["depth"], 1);
  const Outcome outcome = call({"inspect", sample("gpt_small"), "--depth", "1"});
  EXPECT_NE(outcome.out.find("blocks.3"), std::string::npos);
  EXPECT_EQ(outcome.out.find("query_key_value"), std::string::npos);
}

TEST(Inspect, FindsTiedParametersAndCountsThemOnce) {
  const Json json = inspected({sample("hf_gpt2")});
  ASSERT_EQ(json["tied_parameters"].size(), 1U);
  const Json& tied = json["tied_parameters"][0];
  EXPECT_EQ((std::set<std::string>{tied["name"], tied["same_as"]}), (std::set<std::string>{"lm_head.weight", "transformer.wte.weight"}));
  const Json& modules = json["modules"];
  EXPECT_EQ(entry(modules, "path", "")["parameters"], entry(modules, "path", "transformer")["parameters"])
      << "the head adds none of its own";
}

TEST(Inspect, ReportsWhatChangesMeaningWithModuleAndSource) {
  const Json dropout = entry(inspected({sample("hf_gpt2"), "--report"})["report"], "kind", "random");
  EXPECT_EQ(dropout["module"], "transformer.drop");
  EXPECT_NE(dropout["source"].get<std::string>().find(".py:"), std::string::npos);

  const Json report = inspected({sample("resnet18_narrow"), "--report"})["report"];
  // The stem, two in each of eight blocks, and one in each of three downsampling paths.
  EXPECT_EQ(std::count_if(report.begin(), report.end(), [](const Json& f) { return f["kind"] == "batch-norm"; }), 1 + 2 * 8 + 3);
  EXPECT_TRUE(inspected({sample("gpt_small"), "--report"})["report"].empty());
}

TEST(Inspect, JoinsArchivesOfOneStageEach) {
  const Json json = inspected({sample("two_part_a"), sample("two_part_b")});
  EXPECT_EQ(json["files"].size(), 2U);
  EXPECT_EQ(json["inputs"][0]["name"], "tokens");
  const Json& splits = json["split_points"];
  EXPECT_TRUE(
      std::any_of(splits.begin(), splits.end(), [](const Json& s) { return s["name"].get<std::string>().rfind("pipe_split", 0) == 0; }));
  EXPECT_EQ(call({"inspect", sample("two_part_b"), sample("two_part_b")}).status, 2) << "its output does not fit its own input";
}

/// A ResNet changes outputs of convolutions and batch norms in place: a stage that begins between the two could not be recomputed.
TEST(PlanCommand, ChoosesSplitsWhoseStagesCanBeRecomputed) {
  for (const char* balance : {"time", "memory", "parameters", "layers"}) {
    for (const char* ranks : {"2", "3", "4", "6", "8"}) {
      const Outcome outcome = call({"plan", sample("resnet18_narrow"), "--cluster", "h100-nvlink", "--ranks", ranks, "--microbatches", "8",
                                    "--balance", balance, "--recompute", "full", "--json"});
      EXPECT_EQ(outcome.status, 0) << balance << " over " << ranks << " ranks: " << outcome.err;
    }
  }
}

/// What `auto` recomputes is its choice: a plan that recomputes something else must not beat its bound.
TEST(PlanCommand, BoundsOrdersWhateverIsRecomputed) {
  const auto planned = [](const std::string& schedule, const std::string& recompute, const std::string& limit, int microbatches = 4) {
    std::vector<std::string> words{"plan",           sample("gpt_small"),
                                   "--cluster",      "h100-nvlink",
                                   "--ranks",        "2",
                                   "--microbatches", std::to_string(microbatches),
                                   "--schedule",     schedule,
                                   "--recompute",    recompute,
                                   "--memory-limit", limit,
                                   "--json"};
    if (schedule == "auto") words.insert(words.end(), {"--seconds", "0.2"});
    const Outcome outcome = call(words);
    return outcome.status == 2 ? Json() : Json::parse(outcome.out);
  };
  int bounded = 0;
  for (const char* limit : {"1900000B", "2100000B", "2300000B", "2600000B"}) {
    const Json chosen = planned("auto", "auto", limit);
    if (!chosen.contains("lower_bound_ns")) continue;
    for (const char* named : {"blocks.0", "blocks.1", "full", "none"}) {
      const Json other = planned("auto", named, limit);
      if (!other.is_object() || !other.value("fits", false)) continue;
      EXPECT_LE(chosen["lower_bound_ns"].get<std::int64_t>(), other["makespan_ns"].get<std::int64_t>()) << limit << " " << named;
      ++bounded;
    }
  }
  EXPECT_GT(bounded, 3);
  const auto peakOf = [&](const std::string& schedule, int microbatches) {
    std::int64_t peak = 0;
    const Json plan = planned(schedule, "none", "1GB", microbatches);
    for (const Json& rank : plan.at("ranks")) peak = std::max(peak, rank.at("peak_bytes").get<std::int64_t>());
    return peak;
  };
  const auto under = [&](const std::string& schedule, std::int64_t limit) {
    return planned(schedule, "none", std::to_string(limit) + "B");
  };
  // Room for what 1F1B needs, and not a byte more: its own order is one that `auto` may find.
  const Json tight = under("1f1b", peakOf("1f1b", 4)), made = under("auto", peakOf("1f1b", 4));
  EXPECT_TRUE(tight.at("fits").get<bool>());
  EXPECT_TRUE(made.at("fits").get<bool>());
  EXPECT_LE(made.at("makespan_ns").get<std::int64_t>(), tight.at("makespan_ns").get<std::int64_t>());
  // Too little for backwards that are split, even of one microbatch after the other, leaves whole ones.
  const std::int64_t whole = peakOf("1f1b", 1), split = peakOf("zb-h1", 1);
  ASSERT_LT(whole, split);
  EXPECT_FALSE(under("1f1b", split - 1).at("fits").get<bool>());
  EXPECT_TRUE(under("auto", split - 1).at("fits").get<bool>());
  EXPECT_FALSE(under("auto", whole - 1).at("fits").get<bool>()) << "not even one microbatch";
}

TEST(PlanCommand, SaysWhatItsStepIsSensitiveTo) {
  const Folder folder;
  const std::string plan = folder.file("plan.json");
  const Outcome planned = call({"plan", sample("gpt_small"), "--ranks", "4", "--microbatches", "8", "--cluster", "h100-nvlink", "--out",
                                plan, "--sensitivity", "0.2", "--json"});
  ASSERT_EQ(planned.status, 0) << planned.err;
  const Json own = Json::parse(planned.out)["sensitivity"];
  EXPECT_EQ(own["of"].size(), 7U) << "stages and links";
  EXPECT_EQ(own, Json::parse(call({"simulate", plan, "--sensitivity", "0.2", "--json"}).out)["sensitivity"]);
}

TEST(SimulateCommand, OfAPlanCountsTheOptimizerThatItWasMadeFor) {
  const Folder folder;
  const std::string plan = folder.file("plan.json");
  const Outcome planned = call({"plan", sample("gpt_small"), "--ranks", "2", "--replicas", "2", "--microbatches", "4", "--cluster",
                                "h100-nvlink", "--optimizer", "adamw", "--zero1", "--out", plan, "--json"});
  ASSERT_EQ(planned.status, 0) << planned.err;
  const Json own = Json::parse(planned.out), simulated = Json::parse(call({"simulate", plan, "--json"}).out);
  EXPECT_EQ(simulated["step_ns"], own["step_ns"]);
  for (std::size_t r = 0; r < 2; ++r) EXPECT_EQ(simulated["ranks"][r]["peak_bytes"], own["ranks"][r]["peak_bytes"]) << r;
}

TEST(PlanCommand, RefusesALossThatARunWouldRefuse) {
  const Outcome outcome = call({"plan", sample("hf_llama"), "--microbatches", "4", "--cluster", "h100-nvlink", "--loss", "cross_entropy"});
  EXPECT_EQ(outcome.status, 2);
  EXPECT_NE(outcome.err.find("Output loss is a single number; take it as the loss with --loss output:loss."), std::string::npos)
      << outcome.err;
}

TEST(PlanCommand, SaysWhatOneRankWouldTake) {
  const auto planned = [](const std::vector<std::string>& more) {
    std::vector<std::string> words{"plan",        sample("gpt_small"), "--microbatches", "8",     "--cluster",
                                   "h100-nvlink", "--optimizer",       "adamw",          "--json"};
    words.insert(words.end(), more.begin(), more.end());
    return Json::parse(call(words).out);
  };
  const Json alone = planned({"--ranks", "1"}), split = planned({"--ranks", "4"});
  EXPECT_FALSE(alone.contains("one_rank")) << "it is one";
  EXPECT_EQ(split["one_rank"]["step_ns"], alone["step_ns"]);
  EXPECT_EQ(split["one_rank"]["peak_bytes"], alone["ranks"][0]["peak_bytes"]);
  const auto bytes = split["one_rank"]["peak_bytes"].get<std::int64_t>();
  EXPECT_TRUE(planned({"--ranks", "4", "--memory-limit", std::to_string(bytes) + "B"}).contains("one_rank"));
  EXPECT_FALSE(planned({"--ranks", "4", "--memory-limit", std::to_string(bytes - 1) + "B"}).contains("one_rank")) << "does not fit";
  const auto searched =
      Json::parse(call({"search", sample("gpt_small"), "--ranks", "4", "--batch", "16", "--microbatches", "8", "--cluster", "h100-nvlink",
                        "--optimizer", "adamw", "--schedules", "1f1b", "--no-recompute", "--json"})
                      .out);
  EXPECT_EQ(searched["one_rank"], split["one_rank"]) << "the same microbatches";
  // Three times the FLOPs of a forward of all 16 samples, over 4 ranks at peak.
  const Json profile = Json::parse(call({"profile", sample("gpt_small"), "--estimate", "h100-nvlink", "--json"}).out);
  double flops = 0;
  for (const Json& node : profile["nodes"]) flops += node[5].get<double>();
  const double seconds = split["step_ns"].get<double>() * 1e-9;
  EXPECT_NEAR(split["flop_utilisation"].get<double>(), 3 * flops * 8 / (4 * profile["peak_flops"].get<double>() * seconds), 1e-12);
}

}  // namespace
}  // namespace pw::test
