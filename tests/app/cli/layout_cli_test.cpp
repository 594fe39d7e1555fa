#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include "tests/app/cli/call.h"
#include "tests/support/folder.h"

namespace pw {
namespace {

using nlohmann::json;
using testing::ElementsAre;
using testing::HasSubstr;
using Words = std::vector<std::string>;

json answer(Words words, int status = 0) {
  words.emplace_back("--json");
  const test::Outcome outcome = test::call(words);
  EXPECT_EQ(outcome.status, status) << outcome.err << outcome.out;
  return outcome.out.empty() ? json() : json::parse(outcome.out);
}
std::string refusal(const Words& words) {
  const test::Outcome outcome = test::call(words);
  EXPECT_EQ(outcome.status, 2) << outcome.out;
  return outcome.err;
}

/// Four transformer layers, F 2, I 2, W 2, 10 bytes of parameters and 7 of activations each; an embedding and a head of half as much time.
class LayoutCommand : public testing::Test {
 protected:
  LayoutCommand() {
    std::string text = "name,forward_ns,input_ns,weight_ns,parameter_bytes,activation_bytes,output_bytes\nembedding,1,1,1,0,0,3\n";
    for (int i = 0; i < 4; ++i) text += "blocks." + std::to_string(i) + ",2,2,2,10,7,3\n";
    (void)folder_.with("layers.csv", text + "lm_head,1,1,1,0,0,0\n");
  }
  test::Folder folder_;
  std::string table_ = folder_.file("layers.csv");
};

TEST_F(LayoutCommand, ShowsStagesRanksAndChunks) {
  const json of = answer({"layout", "--check", "Et*3|(tt|)*29m|L", "--ranks", "16"});
  EXPECT_EQ(of["valid"], true);
  EXPECT_EQ(of["pipeline_ranks"], 16);
  EXPECT_EQ(of["chunks"], 2);
  EXPECT_EQ(of["transformer_layers"], 61);
  EXPECT_EQ(of["stages"][0]["layers"], "Ettt");
  EXPECT_EQ(of["stages"][30]["layers"], "m");  // Megatron's documentation: rank 14, VPP rank 1
  EXPECT_EQ(of["stages"][30]["rank"], 14);
  EXPECT_EQ(of["stages"][30]["chunk"], 1);
  const std::string text = test::call({"layout", "--check", "Et*3|(tt|)*29m|L", "--ranks", "16"}).out;
  EXPECT_THAT(text, HasSubstr("1-13  t*2      t*2"));
}

TEST_F(LayoutCommand, NamesTheRulesThatItBreaks) {
  const json of = answer({"layout", "--check", "E|(t|)*3,m|m||L"}, 1);
  EXPECT_EQ(of["valid"], false);
  EXPECT_EQ(of["problems"][0]["stage"], 5);
  EXPECT_THAT(of["problems"][0]["message"].get<std::string>(), HasSubstr("all must be in one stage"));
  EXPECT_EQ(of["stages"][6]["empty"], true);
  EXPECT_THAT(answer({"layout", "--check", "E|t|t||tmL", "--ranks", "2"}, 1)["problems"][0]["message"].get<std::string>(),
              HasSubstr("5 stages cannot be shared out to 2 ranks"));
  EXPECT_THAT(
      answer({"layout", "--check", "E|t|t|L", "--ranks", "2", "--microbatches", "3"}, 1)["problems"][0]["message"].get<std::string>(),
      HasSubstr("use 2 microbatches"));
  EXPECT_THAT(answer({"layout", "--check", "Et|tL", "--num-layers", "3"}, 1)["problems"][0]["message"].get<std::string>(),
              HasSubstr("--num-layers is 3"));
}

TEST_F(LayoutCommand, RefusesStringsThatMegatronCannotRead) {
  EXPECT_THAT(refusal({"layout", "--check", "Etx|L"}), HasSubstr("character 3 of \"Etx|L\": x is not a layer"));
  EXPECT_THAT(refusal({"layout", "--check", "Et*99999999|L"}), HasSubstr("longer than 1000000 characters"));
  EXPECT_THAT(refusal({"layout", "--check", "E(|)*999999,L"}), HasSubstr("at most 4096"));
  EXPECT_THAT(refusal({"layout", "--check", "E(|)*999999,L", "--ranks", "1000"}), HasSubstr("give fewer --microbatches"));
  EXPECT_THAT(refusal({"layout", "--check", "E|t|L", "--ranks", "2", "--chunks", "2"}), HasSubstr("not 2 ranks × 2 chunks"));
}

// 1F1B of equal stages, F 5 and B 10: (M + R − 1) (F + B). Rank 0 keeps two microbatches of two layers.
TEST_F(LayoutCommand, PredictsOneStagePerRank) {
  const json of = answer({"layout", "--check", "Ett|ttL", "--layers", table_, "--microbatches", "3"});
  EXPECT_EQ(of["makespan_ns"], (3 + 1) * 15);
  EXPECT_EQ(of["bubble_fraction"], 0.25);
  EXPECT_EQ(of["ranks"][0]["peak_bytes"], 2 * 10 + 2 * 2 * 7);
  EXPECT_EQ(of["ranks"][1]["peak_bytes"], 2 * 10 + 2 * 7);
  EXPECT_EQ(of["balance"]["time_above_mean"], 0);
  EXPECT_EQ(of["deadlock"], false);
}

// A table without embedding and head. Interleaved: M V (f + b) of work, and (R − 1) (f + b) of bubble.
TEST_F(LayoutCommand, PredictsTheInterleavedSchedule) {
  std::string text = "name,forward_ns,input_ns,weight_ns,parameter_bytes,activation_bytes,output_bytes\n";
  for (int i = 0; i < 4; ++i) text += "layer" + std::to_string(i) + ",2,2,2,10,7,3\n";
  (void)folder_.with("layers.csv", text);
  const json of = answer({"layout", "--check", "Et|t|t|tL", "--ranks", "2", "--layers", table_, "--microbatches", "4"});
  EXPECT_EQ(of["makespan_ns"], 4 * 2 * 6 + 6);
  EXPECT_THAT(of["notes"], ElementsAre(HasSubstr("no layer for E: it takes no time"), HasSubstr("no layer for L")));
}

// Only rank 0 computes, and what it sends to rank 1 comes back at once.
TEST_F(LayoutCommand, PredictsEmptyStages) {
  const json of = answer({"layout", "--check", "Ett||tt|L", "--ranks", "2", "--layers", table_, "--microbatches", "4"});
  EXPECT_EQ(of["stages"][1]["forward_ns"], 0);
  EXPECT_EQ(of["ranks"][0]["busy_ns"], 4 * (5 + 4 + 10 + 8));
}

TEST_F(LayoutCommand, RefusesATableOfAnotherModel) {
  EXPECT_THAT(refusal({"layout", "--check", "Ett|tttL", "--layers", table_}), HasSubstr("has 4 transformer layers and the layout 5 t"));
  EXPECT_THAT(refusal({"layout", "--check", "Ett|ttmL", "--layers", table_}), HasSubstr("has 0 MTP layers and the layout 1 m"));
}

}  // namespace
}  // namespace pw
