#include <cstdlib>
#include <fstream>
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
  EXPECT_EQ(of["problems"][0]["character"], 12);  // the second m of E|(t|)*3,m|m||L
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

/// What a plan of the table becomes for Megatron.
json megatronOf(const test::Folder& folder, const std::string& table, Words words) {
  const std::string plan = folder.file("plan.json"), out = folder.file("megatron.json");
  words.insert(words.begin(), {"plan", "--layers", table, "--out", plan});
  EXPECT_EQ(test::call(words).status, 0);
  const test::Outcome outcome = test::call({"export", plan, "--to", "megatron", "--out", out});
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  return json::parse(test::contentOf(out));
}

TEST_F(LayoutCommand, ExportsAPlanThatMegatronCanRunAsItIs) {
  const json of = megatronOf(folder_, table_, {"--ranks", "2", "--microbatches", "3", "--split", "blocks.2", "--optimizer", "adamw"});
  EXPECT_EQ(of["layout"], "Et*2|t*2L");
  EXPECT_EQ(of["exact"], true);
  EXPECT_EQ(of["step_ns"], of["plan_step_ns"]);
  EXPECT_THAT(of["notes"], ElementsAre());
  EXPECT_THAT(of["flags"], ElementsAre("--pipeline-model-parallel-size 2", "--pipeline-model-parallel-layout \"Et*2|t*2L\"",
                                       "--num-layers 4", "--micro-batch-size 1", "--global-batch-size 3", "--optimizer adam"));
}

// A shell passes on what the JSON lists: each option and each value a word, where a file that the layout matches as a pattern lies about.
TEST_F(LayoutCommand, WritesArgumentsThatBashReadsAsTheyAre) {
  const json of = megatronOf(folder_, table_, {"--ranks", "2", "--microbatches", "3", "--split", "blocks.2", "--optimizer", "adamw"});
  const std::string file = folder_.file("arguments.sh"), words = folder_.file("words");
  ASSERT_EQ(test::call({"export", folder_.file("plan.json"), "--to", "megatron", "--out", file}).status, 0);
  std::ofstream(folder_.file("Etx2|tx2L")) << "";
  const std::string script =
      "cd '" + folder_.file("") + "' && bash -euc 'source arguments.sh; printf \"%s\\n\" \"${MEGATRON_ARGUMENTS[@]}\"' > words";
  ASSERT_EQ(std::system(script.c_str()), 0);
  EXPECT_EQ(test::contentOf(words),
            "--pipeline-model-parallel-size\n2\n--pipeline-model-parallel-layout\nEt*2|t*2L\n--num-layers\n4\n--micro-batch-size\n1\n"
            "--global-batch-size\n3\n--optimizer\nadam\n");
}

TEST_F(LayoutCommand, SaysThatMegatronHasOneListOfLayers) {
  const auto notesOf = [&](const std::vector<std::string>& names) {
    std::string text = "name,forward_ns,input_ns,weight_ns,parameter_bytes,activation_bytes,output_bytes\n";
    for (const std::string& name : names) text += name + ",1,1,1,0,0,0\n";
    return megatronOf(folder_, folder_.with("lists.csv", text),
                      {"--ranks", "2", "--microbatches", "3", "--split", names[2], "--optimizer", "adamw"})["notes"];
  };
  EXPECT_THAT(notesOf({"model.enc.0", "model.enc.1", "model.dec.0", "model.dec.1"}),
              ElementsAre(HasSubstr("The layers are of 2 lists (model.enc, model.dec), and Megatron's of one")));
  EXPECT_THAT(notesOf({"model.dec.0", "model.dec.1", "model.dec.2", "model.dec.3"}), ElementsAre());
}

// What is recommended and what the check says of it are one prediction: with messages that take long Megatron's groups of sends and
// receives cost more than the plan's own messages, which wait for nothing.
TEST_F(LayoutCommand, ExportsTheStepThatItsCheckPredicts) {
  std::string text = "name,forward_ns,input_ns,weight_ns,parameter_bytes,activation_bytes,output_bytes,sent_ns\n";
  for (int i = 0; i < 9; ++i) text += "blocks." + std::to_string(i) + (i == 8 ? ",900,900,900" : ",300,300,300") + ",0,0,0,250\n";
  const std::string table = folder_.with("sent.csv", text);
  const auto checked = [&](const json& megatron, const char* ranks) {
    return answer({"layout", "--check", megatron["layout"], "--ranks", ranks, "--microbatches", "6", "--layers", table})["step_ns"];
  };
  const json exact = megatronOf(folder_, table, {"--ranks", "3", "--microbatches", "6", "--split", "blocks.3,blocks.6"});
  EXPECT_EQ(exact["exact"], true);
  EXPECT_GT(exact["step_ns"], exact["plan_step_ns"]);
  EXPECT_EQ(exact["step_ns"], checked(exact, "3"));
  const json best = megatronOf(folder_, table, {"--ranks", "3", "--microbatches", "6", "--schedule", "zb-h1"});
  EXPECT_EQ(best["exact"], false);
  EXPECT_EQ(best["step_ns"], checked(best, "3"));
  EXPECT_LE(best["step_ns"], exact["step_ns"]) << "the best of all";
  EXPECT_THAT(test::call({"export", folder_.file("plan.json"), "--to", "megatron"}).out, HasSubstr("as Megatron posts its messages"));
  EXPECT_THAT(test::call({"layout", "--check", "Et*3|t*3|t*3L", "--layers", table}).out, HasSubstr("as Megatron posts its messages"));
}

// Four layers with 100 bytes each of one on the first two: three of them do not fit on a rank of 250 bytes, though they are the fastest.
TEST_F(LayoutCommand, KeepsToTheMemoryOfARank) {
  std::string text = "name,forward_ns,input_ns,weight_ns,parameter_bytes,activation_bytes,output_bytes\n";
  for (int i = 0; i < 4; ++i) text += "blocks." + std::to_string(i) + (i < 3 ? ",1,1,1,100,0,0\n" : ",3,3,3,100,0,0\n");
  const std::string table = folder_.with("bytes.csv", text), plan = folder_.file("plan.json");
  ASSERT_EQ(test::call({"plan", "--layers", table, "--ranks", "2", "--microbatches", "4", "--schedule", "zb-h1", "--out", plan}).status, 0);
  EXPECT_THAT(test::call({"export", plan, "--to", "megatron"}).out, HasSubstr("\"Et*3|tL\""));
  EXPECT_THAT(test::call({"export", plan, "--to", "megatron", "--memory-limit", "250B"}).out, HasSubstr("\"Et*2|t*2L\""));
  EXPECT_THAT(test::call({"export", plan, "--to", "megatron", "--memory-limit", "150B"}).out,
              HasSubstr("No layout fits: in the nearest, rank 0 needs 200 B"));
  EXPECT_THAT(refusal({"export", plan, "--to", "svg", "--memory-limit", "150B"}), HasSubstr("use it with --to megatron"));
}

// A plan that Megatron can run as it is, but that does not fit, becomes the one that does.
TEST_F(LayoutCommand, KeepsAPlansOwnCutWhereItFits) {
  std::string text = "name,forward_ns,input_ns,weight_ns,parameter_bytes,activation_bytes,output_bytes\n";
  for (int i = 0; i < 4; ++i) text += "blocks." + std::to_string(i) + ",1,1,1,100,0,0\n";
  const std::string table = folder_.with("bytes.csv", text), plan = folder_.file("plan.json"), out = folder_.file("megatron.json");
  ASSERT_EQ(test::call({"plan", "--layers", table, "--ranks", "2", "--microbatches", "4", "--schedule", "1f1b", "--split", "blocks.3",
                        "--out", plan})
                .status,
            0);
  const auto exported = [&](const Words& limit, int status = 0) {
    Words words{"export", plan, "--to", "megatron", "--out", out};
    words.insert(words.end(), limit.begin(), limit.end());
    const test::Outcome outcome = test::call(words);
    EXPECT_EQ(outcome.status, status) << outcome.err;
    json of = json::parse(test::contentOf(out));
    EXPECT_EQ(of["fits"], status == 0);
    return of;
  };
  for (const Words& limit : {Words{}, Words{"--memory-limit", "300B"}}) {
    const json own = exported(limit);
    EXPECT_EQ(own["layout"], "Et*3|tL");
    EXPECT_EQ(own["exact"], true);
  }
  const json moved = exported({"--memory-limit", "250B"});
  EXPECT_EQ(moved["layout"], "Et*2|t*2L");
  EXPECT_EQ(moved["exact"], false);
  EXPECT_THAT(moved["notes"], ElementsAre("As the plan is cut, rank 0 needs 300 B of its 250 B; exported with a layout that fits.",
                                          "Stage 1 begins before blocks.3; here before blocks.2.", HasSubstr("The plan counts SGD")));
  const json none = exported({"--memory-limit", "150B"}, 1);
  EXPECT_EQ(none["layout"], "Et*3|tL") << "nothing fits, so that the plan stays as it is";
  EXPECT_THAT(none["notes"].dump(), HasSubstr("No layout fits: in the plan's own, rank 0 needs 300 B of its 150 B."));
}

// A plan that recomputes all: Megatron's forward runs again in every backward, and only what enters a layer is kept.
TEST_F(LayoutCommand, CountsRecomputationWhereThePlanRecomputes) {
  std::string text = "name,forward_ns,input_ns,weight_ns,parameter_bytes,activation_bytes,output_bytes,activation_if_recomputed_bytes\n";
  for (int i = 0; i < 4; ++i) text += "blocks." + std::to_string(i) + ",2,2,2,0,50,3,3\n";
  const std::string table = folder_.with("again.csv", text);
  const json of = megatronOf(folder_, table, {"--ranks", "2", "--microbatches", "3", "--schedule", "zb-h1", "--recompute", "full"});
  EXPECT_THAT(of["flags"].dump(), HasSubstr("--recompute-granularity full"));
  EXPECT_EQ(of["layout"], "Et*2|t*2L");
  EXPECT_EQ(of["step_ns"], (3 + 1) * 2 * (2 + 2 + 2 + 2));
  // Rank 0 holds two layers of the microbatch that runs again, and of the other one the 3 bytes that enter its second layer.
  EXPECT_THAT(test::call({"export", folder_.file("plan.json"), "--to", "megatron", "--memory-limit", "100B"}).out,
              HasSubstr("rank 0 needs 103 B of its 100 B"));
}

// A plan may recompute in one stage, and Megatron on all of them or on none.
TEST_F(LayoutCommand, SaysThatSelectiveRecomputationIsInNoPrediction) {
  std::string text = "name,forward_ns,input_ns,weight_ns,parameter_bytes,activation_bytes,output_bytes,activation_if_recomputed_bytes\n";
  for (int i = 0; i < 4; ++i) text += "blocks." + std::to_string(i) + ",2,2,2,0,50,3,3\n";
  const std::string table = folder_.with("some.csv", text);
  const auto exported = [&](const char* schedule) {
    return megatronOf(folder_, table, {"--ranks", "4", "--microbatches", "6", "--schedule", schedule, "--recompute", "blocks.0"});
  };
  const json exact = exported("1f1b"), other = exported("zb-h1");
  for (const json& of : {exact, other}) {
    EXPECT_THAT(of["flags"].dump(), HasSubstr("--recompute-granularity selective"));
    EXPECT_THAT(of["notes"].dump(), HasSubstr("The plan recomputes in 1 of 4 stages"));
  }
  EXPECT_THAT(exact["notes"].dump(),
              HasSubstr("The predicted step counts what the plan recomputes instead, and memory nothing recomputed."));
  EXPECT_THAT(other["notes"].dump(), HasSubstr("The predicted step and memory count nothing recomputed"));
}

// Rows within a layer, with one of no layer between them or not: an even cut into three begins inside of a layer, and the cuts that are
// named work.
TEST_F(LayoutCommand, NamesTheCutsThatTorchtitanTakes) {
  for (const bool isBetween : {false, true}) {
    std::string text = "name,forward_ns,input_ns,weight_ns,parameter_bytes,activation_bytes,output_bytes\n";
    const std::string costs = ",1,1,1,0,0,0\n";
    for (int i = 0; i < 7; ++i) {
      const std::string layer = "layers." + std::to_string(i), between = "rotary_" + std::to_string(i) + costs;
      text += layer + ".attn" + costs + (isBetween ? between : "") + layer + ".mlp" + costs;
    }
    const std::string table = folder_.with("parts.csv", text), plan = folder_.file("plan.json"), out = folder_.file("titan");
    Words words{"plan", "--layers", table, "--ranks", "3", "--microbatches", "4", "--balance", "layers", "--out", plan};
    ASSERT_EQ(test::call(words).status, 0);
    const std::string said = refusal({"export", plan, "--to", "torchtitan", "--out", out});
    const std::size_t at = said.find("plan with --split ");
    ASSERT_NE(at, std::string::npos) << said;
    const std::size_t from = at + std::string("plan with --split ").size();
    words.insert(words.end(), {"--split", said.substr(from, said.find_last_not_of(".\n") + 1 - from)});
    words.erase(words.begin() + 7, words.begin() + 9);
    ASSERT_EQ(test::call(words).status, 0) << said;
    EXPECT_EQ(test::call({"export", plan, "--to", "torchtitan", "--out", out}).status, 0) << said;
    for (const char* tool : {"megatron", "torchtitan", "svg"})
      EXPECT_THAT(refusal({"export", table, "--to", tool, "--out", out}),
                  HasSubstr("is a layer table, not a plan; plan it with `pipewright plan"));
  }
}

TEST_F(LayoutCommand, ExportsInterleavedStages) {
  const json of = megatronOf(folder_, table_,
                             {"--ranks", "2", "--chunks", "2", "--microbatches", "4", "--schedule", "interleaved-1f1b", "--split",
                              "blocks.1,blocks.2,blocks.3", "--replicas", "2"});
  EXPECT_EQ(of["layout"], "Et|t|t|tL");
  EXPECT_EQ(of["exact"], true);
  EXPECT_EQ(of["virtual_pipeline_model_parallel_size"], 2);
  EXPECT_THAT(of["flags"].dump(), HasSubstr("--global-batch-size 8"));
  EXPECT_THAT(of["flags"].dump(), HasSubstr("--overlap-grad-reduce"));
}

TEST_F(LayoutCommand, NamesTheDistributedOptimizerWhereMegatronHasIt) {
  const auto of = [&](const std::string& optimizer) {
    return megatronOf(folder_, table_, {"--ranks", "2", "--microbatches", "4", "--replicas", "2", "--zero1", "--optimizer", optimizer});
  };
  EXPECT_THAT(of("adamw")["flags"].dump(), HasSubstr("--use-distributed-optimizer"));
  const json sgd = of("sgd");
  EXPECT_THAT(sgd["flags"].dump(), testing::Not(HasSubstr("--use-distributed-optimizer")));
  EXPECT_THAT(sgd["notes"].dump(), HasSubstr("Megatron's distributed optimizer takes Adam only"));
}

// Cuts within the one layer of a block, zero bubble and a V are not Megatron's: what it gets instead is Ett|ttL, of equal stages.
TEST_F(LayoutCommand, SaysWhatMegatronCannotRun) {
  std::string text = "name,forward_ns,input_ns,weight_ns,parameter_bytes,activation_bytes,output_bytes\n";
  for (const char* name : {"blocks.0.a", "blocks.0.b", "blocks.1.a", "blocks.1.b"}) text += std::string(name) + ",1,1,1,0,0,0\n";
  const std::string table = folder_.with("halves.csv", text);
  const json inside = megatronOf(folder_, table, {"--ranks", "2", "--microbatches", "3", "--split", "blocks.1.b"});
  EXPECT_EQ(inside["layout"], "Et|tL");
  EXPECT_EQ(inside["exact"], false);
  EXPECT_EQ(inside["step_ns"], (3 + 1) * 6);
  EXPECT_THAT(inside["notes"], ElementsAre("Stage 1 begins inside blocks.1, which Megatron does not split; here before blocks.1.",
                                           HasSubstr("The plan counts SGD")));
  const json zero = megatronOf(folder_, table_, {"--ranks", "2", "--microbatches", "3", "--schedule", "zb-h1"});
  EXPECT_EQ(zero["layout"], "Et*2|t*2L");
  EXPECT_EQ(zero["step_ns"], (3 + 1) * 15);
  EXPECT_THAT(zero["notes"][0].get<std::string>(), HasSubstr("zero bubble"));
  const json v = megatronOf(folder_, table_, {"--ranks", "2", "--microbatches", "4", "--schedule", "zbv"});
  EXPECT_EQ(v["virtual_pipeline_model_parallel_size"], 2);
  EXPECT_THAT(v["notes"][0].get<std::string>(), HasSubstr("places stages as v, and Megatron as a loop"));
  const json few = megatronOf(folder_, table_, {"--ranks", "2", "--microbatches", "1", "--schedule", "zbv"});
  EXPECT_EQ(few["virtual_pipeline_model_parallel_size"], 1);
  EXPECT_THAT(few["notes"][0].get<std::string>(), HasSubstr("needs at least as many microbatches as ranks"));
}

}  // namespace
}  // namespace pw
