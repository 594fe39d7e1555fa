#include "simulator/costs/megatron_log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "schedules/error.h"
#include "tests/support/hostile.h"
#include "tests/support/mutate.h"

namespace pw::test {
namespace {

using testing::HasSubstr;

/// As megatron/training/arguments.py prints it.
std::string argument(const std::string& name, const std::string& value) {
  return fmt::format("  {} {} {}\n", name, std::string(48 - name.size(), '.'), value);
}

std::string arguments(int stages, int layers) {
  return "------------------------ arguments ------------------------\n" + argument("data_parallel_size", "2") +
         argument("decoder_first_pipeline_num_layers", "None") + argument("global_batch_size", "64") + argument("hidden_size", "1024") +
         argument("micro_batch_size", "4") + argument("num_layers", std::to_string(layers)) + argument("params_dtype", "torch.bfloat16") +
         argument("pipeline_model_parallel_size", std::to_string(stages)) + argument("seq_length", "2048") +
         argument("sequence_parallel", "False") + argument("tensor_model_parallel_size", "1") +
         argument("world_size", std::to_string(2 * stages)) + "-------------------- end of arguments ---------------------\n";
}

/// As megatron/core/timers.py prints it with `--timing-log-option all`: times of a step by stage [ms], of two replicas that differ by
/// `apart`.
std::string report(const std::vector<double>& forward, const std::vector<double>& backward, double apart = 0) {
  std::string text =
      " [2025-01-01 00:00:00] iteration        2/     100 | elapsed time per iteration (ms): 100.0 | global batch size:    64 |\ntimes "
      "across ranks (ms):\n";
  for (const auto& [name, times] :
       {std::pair{"forward-backward", &forward}, {"forward-compute", &forward}, {"backward-compute", &backward}}) {
    text += fmt::format("  {}:\n", name);
    for (std::size_t r = 0; r < 2 * times->size(); ++r)
      text += fmt::format("     rank {:2d}: {:.2f}\n", r, (*times)[r / 2] + (r % 2 == 0 ? -apart : apart));
  }
  return text;
}

std::string refusal(const std::string& text) {
  try {
    static_cast<void>(parseMegatronLog(text, "train.log"));
  } catch (const UsageError& error) {
    return error.what();
  }
  return "";
}

TEST(MegatronLog, LeavesOutReportsOfABatchThatStillGrows) {
  const std::string whole = report({8, 8}, {16, 16});
  std::string half = report({2, 2}, {4, 4});
  half.replace(half.find("   64 |"), 7, "   16 |");
  const LayerTable table = parseMegatronLog(arguments(2, 4) + half + half + whole + whole, "train.log");
  EXPECT_EQ(table, parseMegatronLog(arguments(2, 4) + whole + whole, "train.log"));
  EXPECT_THAT(refusal(arguments(2, 4) + half + half), HasSubstr("reports are of smaller batches than global_batch_size"));
}

TEST(MegatronLog, RefusesALayoutThatItDoesNotRead) {
  const std::string laidOut = argument("pipeline_model_parallel_layout", "Et|t*3|t*3|tL");
  EXPECT_THAT(refusal(laidOut + arguments(4, 8) + report({8, 8, 8, 8}, {8, 8, 8, 8})), HasSubstr("--pipeline-model-parallel-layout"));
}

TEST(MegatronLog, SharesAStagesTimeByItsLayers) {
  // 64 samples in microbatches of 4 on 2 replicas: 8 microbatches. 2 layers on each of 4 stages; the first report is slower.
  const std::string text = arguments(4, 8) + report({900, 900, 900, 900}, {900, 900, 900, 900}) +
                           report({18, 16, 16, 24}, {32, 32, 32, 48}, 1) + report({18, 16, 16, 24}, {32, 32, 32, 48}, 1);
  const LayerTable table = parseMegatronLog(text, "runs/train.log");
  EXPECT_EQ(table.name, "train");
  EXPECT_EQ(table.microbatch, 4);
  ASSERT_EQ(table.layers.size(), 10U);
  EXPECT_EQ(table.layers.front().name, "embedding");
  EXPECT_EQ(table.layers.front().forward, 250'000) << "(18 − 16) ms of 8 microbatches";
  EXPECT_EQ(table.layers.back().name, "output");
  EXPECT_EQ(table.layers.back().forward, 1'000'000);
  EXPECT_EQ(table.layers.back().input + table.layers.back().weight, 2'000'000);
  EXPECT_EQ(table.layers.back().output, 0);
  for (std::size_t l = 1; l < 9; ++l) {
    EXPECT_EQ(table.layers[l].name, "layer" + std::to_string(l - 1));
    EXPECT_EQ(table.layers[l].forward, 1'000'000) << "16 ms of 8 microbatches and 2 layers";
    EXPECT_EQ(table.layers[l].input + table.layers[l].weight, 2'000'000);
    EXPECT_EQ(table.layers[l].output, 2048 * 1024 * 4 * 2);
  }
}

TEST(MegatronLog, ReadsTheRangeOfAllRanks) {
  const std::string text = arguments(2, 4) +
                           "(min, max) time across ranks (ms):\n    forward-compute ................................: (15.00, 17.00)\n"
                           "    backward-compute ...............................: (30.00, 34.00)\n";
  const LayerTable table = parseMegatronLog(text, "train.log");
  ASSERT_EQ(table.layers.size(), 4U);
  for (const Layer& layer : table.layers) EXPECT_EQ(layer.forward, 1'000'000) << "16 ms of 8 microbatches and 2 layers";
}

TEST(MegatronLog, RefusesARangeThatHidesASlowStage) {
  for (const char* times :
       {"(min, max) time across ranks (ms):\n    forward-compute ....: (10.00, 20.00)\n    backward-compute ....: (20.00, 40.00)\n",
        "max time across ranks (ms):\n    forward-compute ....: 20.00\n    backward-compute ....: 40.00\n"}) {
    EXPECT_THAT(refusal(arguments(2, 4) + times), HasSubstr("does not tell stages apart"));
    EXPECT_EQ(refusal(arguments(1, 4) + times), "") << "of one stage";
  }
}

/// Each of 4 ranks has a layer of each of two turns; rank 1 is slow.
TEST(MegatronLog, GivesVirtualStagesTheirTurns) {
  const std::string text =
      argument("virtual_pipeline_model_parallel_size", "2") + arguments(4, 8) + report({16, 32, 16, 16}, {32, 64, 32, 32});
  const LayerTable table = parseMegatronLog(text, "train.log");
  ASSERT_EQ(table.layers.size(), 10U);
  for (std::size_t l = 0; l < 8; ++l) EXPECT_EQ(table.layers[l + 1].forward, l % 4 == 1 ? 2'000'000 : 1'000'000) << l;
  EXPECT_EQ(parseMegatronLog(
                argument("num_layers_per_virtual_pipeline_stage", "1") + arguments(4, 8) + report({16, 32, 16, 16}, {32, 64, 32, 32}),
                "train.log"),
            table);
  EXPECT_THAT(refusal(argument("virtual_pipeline_model_parallel_size", "3") + text), HasSubstr("its 3 virtual stages"));
}

/// Embedding and loss count as a layer: 14 layers on 4 ranks of two parts are 1 2 2 2 and 2 2 2 1.
TEST(MegatronLog, CountsEmbeddingAndLossAsLayersWhereTheJobDoes) {
  const std::string counted =
      argument("account_for_embedding_in_pipeline_split", "True") + argument("account_for_loss_in_pipeline_split", "True");
  const LayerTable table = parseMegatronLog(
      counted + argument("virtual_pipeline_model_parallel_size", "2") + arguments(4, 14) + report({28, 24, 40, 40}, {56, 48, 80, 80}),
      "train.log");
  std::vector<Ns> forward;
  for (const Layer& layer : table.layers) forward.push_back(layer.forward / 1000);
  EXPECT_EQ(forward, (std::vector<Ns>{500, 1000, 750, 750, 1250, 1250, 1000, 1000, 1000, 1000, 750, 750, 1250, 1250, 1000, 2000}));

  const LayerTable ends = parseMegatronLog(counted + arguments(4, 2) + report({4, 8, 8, 16}, {8, 16, 16, 32}), "train.log");
  ASSERT_EQ(ends.layers.size(), 4U) << "the first and the last stage have no layer but their own";
  EXPECT_EQ(ends.layers.front().forward, 500'000);
  EXPECT_EQ(ends.layers.back().forward, 2'000'000);
  EXPECT_EQ(refusal(counted + arguments(2, 8) + report({1, 2}, {3, 4})), "");
  EXPECT_THAT(refusal(counted + arguments(4, 8) + report({1, 2, 3, 4}, {3, 4, 5, 6})), HasSubstr("10 layers, with embedding and loss,"));
}

/// With pipeline ranks inside data parallelism ranks 1 and 5 of 2 × 4 are stage 1.
TEST(MegatronLog, KnowsBothOrdersOfRanks) {
  std::string text = report({16, 16, 16, 16}, {32, 32, 32, 32});
  for (const char* rank : {"rank  1: ", "rank  5: "}) {
    for (std::size_t at = text.find(rank); at != std::string::npos; at = text.find(rank, at + 1)) {
      const std::size_t value = at + std::string(rank).size();
      text.replace(value, 2, text.substr(value, 2) == "16" ? "32" : "64");
    }
  }
  const LayerTable table = parseMegatronLog(argument("use_tp_pp_dp_mapping", "True") + arguments(4, 8) + text, "train.log");
  for (std::size_t l = 0; l < 8; ++l) EXPECT_EQ(table.layers[l + 1].forward, l / 2 == 1 ? 2'000'000 : 1'000'000) << l;
}

TEST(MegatronLog, SaysWhatIsMissing) {
  EXPECT_FALSE(isMegatronLog("node1 -- Input -- forward_compute_time=1"));
  EXPECT_THAT(refusal(arguments(2, 4)), HasSubstr("no times of forward-compute"));
  EXPECT_THAT(refusal(report({1, 2}, {3, 4})), HasSubstr("no micro_batch_size"));
  EXPECT_THAT(refusal(" [2025-01-01 10:00:00] iteration  5/ 100\n" + report({1, 2}, {3, 4})), HasSubstr("give the log from its beginning"));
  EXPECT_THAT(refusal(arguments(2, 5) + report({1, 2}, {3, 4})), HasSubstr("5 layers are not shared evenly by 2 stages"));
  EXPECT_THAT(refusal(arguments(2, 4) + report({1, 2, 3}, {3, 4, 5})), HasSubstr("times of rank 4, but 4 ranks"));
  EXPECT_THAT(refusal(arguments(3, 6) + report({1, 2}, {3, 4})), HasSubstr("no rank of stage 2 reports"));
  EXPECT_EQ(parseMeasuredLayers(arguments(2, 4) + report({1, 2}, {3, 4}), "a.log").layers.size(), 4U);
  EXPECT_THROW(static_cast<void>(parseMeasuredLayers("x", "a.txt")), UsageError);
}

TEST(MegatronLog, SurvivesDamage) {
  const std::string sound = arguments(4, 8) + report({18, 16, 16, 24}, {32, 32, 32, 48}, 1);
  test::survive(
      "logs of Megatron", test::mutations(400), [&](std::mt19937_64& random) { return test::mutate(sound, random); },
      [](const std::string& text) {
        const LayerTable table = parseMegatronLog(text, "train.log");
        ASSERT_FALSE(table.layers.empty());
        for (const Layer& layer : table.layers) {
          ASSERT_GE(std::min({layer.forward, layer.input, layer.weight}), 0);
          ASSERT_GE(layer.output, 0);
        }
        ASSERT_EQ(parseLayerTable(toJson(table), "t.json").layers.size(), table.layers.size());
      });
}

}  // namespace
}  // namespace pw::test
