// Layer tables instead of models, as users call for them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/app/cli/call.h"

namespace pw::test {
namespace {

using testing::HasSubstr;
using Json = nlohmann::json;
using Words = std::vector<std::string>;

/// Four equal layers: F 1, I 2, W 1; 10 bytes of parameters and 7 of activations each. After `b` a message takes 5.
const std::string kTable =
    "name,forward_ns,input_ns,weight_ns,parameter_bytes,activation_bytes,output_bytes,sent_ns\n"
    "a,1,2,1,10,7,3,\nb,1,2,1,10,7,3,5\nc,1,2,1,10,7,3,\nd,1,2,1,10,7,0,\n";

class LayersCommand : public testing::Test {
 protected:
  Json answer(std::vector<std::string> words, int status = 0) {
    words.emplace_back("--json");
    const Outcome outcome = call(words);
    EXPECT_EQ(outcome.status, status) << outcome.err;
    return outcome.out.empty() ? Json() : Json::parse(outcome.out);
  }
  std::string refusal(const std::vector<std::string>& words) {
    const Outcome outcome = call(words);
    EXPECT_EQ(outcome.status, 2) << outcome.out;
    return outcome.err;
  }

  Folder folder_;
  std::string table_ = folder_.with("four.csv", kTable);
};

// gpipe on two stages of two layers, F = 2 and B = 6, three microbatches. Stage 1 has its first value at 2 + 5, its forwards end at 13, its
// backwards at 19, 25 and 31; the last gradient is with stage 0 at 36, which ends at 42.
constexpr int kMakespan = 42;

TEST_F(LayersCommand, PlanTakesExactlyWhatTheTableSays) {
  const std::string plan = folder_.file("plan.json");
  const Json json = answer({"plan", "--layers", table_, "--ranks", "2", "--microbatches", "3", "--schedule", "gpipe", "--out", plan});
  EXPECT_EQ(json["makespan_ns"], kMakespan);
  for (const Json& rank : json["ranks"]) EXPECT_EQ(rank["peak_bytes"], 2 * 10 + 3 * 2 * 7);
  EXPECT_EQ(Json::parse(contentOf(plan))["splits"], Json({"c"}));
  EXPECT_EQ(answer({"simulate", plan})["makespan_ns"], kMakespan);
  const Json adamw =
      answer({"plan", "--layers", table_, "--ranks", "2", "--microbatches", "3", "--schedule", "gpipe", "--optimizer", "adamw"});
  for (const Json& rank : adamw["ranks"]) EXPECT_EQ(rank["peak_bytes"], 3 * 2 * 10 + 3 * 2 * 7);
  answer({"plan", "--layers", table_, "--ranks", "2", "--microbatches", "3", "--schedule", "gpipe", "--memory-limit", "61B"}, 1);
  answer({"plan", "--layers", table_, "--ranks", "2", "--microbatches", "3", "--schedule", "gpipe", "--memory-limit", "62B"});
  EXPECT_THAT(refusal({"run", plan}), HasSubstr("layer table four, which has no operators to run; add --synthetic"));
  EXPECT_THAT(refusal({"export", plan, "--to", "torch", "--out", folder_.file("torch")}), HasSubstr("layer table"));
}

TEST_F(LayersCommand, PlanMovesBalancedSplitsThatDoNotFit) {
  const std::string table = folder_.with("heavy.csv",
                                         "name,forward_ns,input_ns,weight_ns,parameter_bytes,activation_bytes,output_bytes\n"
                                         "a,1,1,1,0,20,0\nb,1,1,1,0,1,0\nc,1,1,1,0,1,0\nd,1,1,1,0,1,0\n");
  const Words plan{"plan", "--layers", table, "--ranks", "2", "--microbatches", "3", "--schedule", "1f1b", "--out", folder_.file("p.json")};
  const auto within = [&](const std::string& limit, int status) {
    Words words = plan;
    words.insert(words.end(), {"--memory-limit", limit});
    const Json json = answer(words, status);
    return std::pair(json["splits_moved_to_fit"].get<bool>(), Json::parse(contentOf(folder_.file("p.json")))["splits"]);
  };
  // Rank 0 keeps two microbatches: of a and b 42 bytes, of a alone 40.
  EXPECT_EQ(within("42B", 0), std::pair(false, Json({"c"})));
  EXPECT_EQ(within("41B", 0), std::pair(true, Json({"b"})));
  EXPECT_FALSE(within("39B", 1).first);
  Words words = plan;
  // No order within that memory is faster than the bound, which `simulate` gives for the plan and that limit, too.
  Words limited = plan, simulated{"simulate", folder_.file("p.json"), "--memory-limit", "41B"};
  limited.insert(limited.end(), {"--memory-limit", "41B"});
  EXPECT_EQ(answer(limited)["lower_bound_ns"], answer(simulated)["lower_bound_ns"]);
  words.insert(words.end(), {"--memory-limit", "41B", "--split", "c"});
  EXPECT_EQ(call(words).status, 1) << "a split that was given stays";
}

TEST_F(LayersCommand, SimulateTakesTheScheduleOfTheCall) {
  EXPECT_EQ(answer({"simulate", "--layers", table_, "--schedule", "gpipe", "--ranks", "2", "--microbatches", "3"})["makespan_ns"],
            kMakespan);
  // Stages of one and three layers without a message's time: F 1 and 3, B 3 and 9; stage 1 works from 1 to 1 + 36, then stage 0's last B.
  EXPECT_EQ(
      answer({"simulate", "--layers", table_, "--schedule", "gpipe", "--ranks", "2", "--microbatches", "3", "--split", "b"})["makespan_ns"],
      1 + 3 * (3 + 9) + 3);
  const std::string csv = folder_.with("mine.csv", "0F0,,,0B0\n,1F0,1B0,\n");
  EXPECT_EQ(answer({"simulate", "--layers", table_, "--csv", csv})["makespan_ns"], 2 + 5 + 2 + 6 + 5 + 6);
}

TEST_F(LayersCommand, MakesAnOrderForItsCosts) {
  const Words shape{"--layers", table_, "--ranks", "2", "--microbatches", "3"};
  const auto with = [&](const std::string& command, const Words& more) {
    Words words{command};
    words.insert(words.end(), shape.begin(), shape.end());
    words.insert(words.end(), more.begin(), more.end());
    return words;
  };
  const std::string plan = folder_.file("plan.json");
  const Json json = answer(with("plan", {"--schedule", "auto", "--out", plan}));
  EXPECT_LT(json["makespan_ns"], kMakespan);
  EXPECT_GE(json["makespan_ns"], json["lower_bound_ns"]);
  EXPECT_EQ(json["optimal"], json["gap"] == 0);
  EXPECT_EQ(answer({"simulate", plan})["makespan_ns"], json["makespan_ns"]) << "the plan has the order";
  EXPECT_EQ(answer(with("simulate", {"--schedule", "auto"}))["makespan_ns"], json["makespan_ns"]);
  const Json found = answer(with("search", {"--schedules", "auto"}));
  EXPECT_EQ(found["best"][0]["schedule"], "auto");
  EXPECT_LE(found["best"][0]["makespan_ns"], json["makespan_ns"]) << "also of other splits";
  // One microbatch at a time is all that the limit holds: F 2 and B 6 on both ranks, and 5 there and back. The W of stage 1 does not wait.
  const Json one = answer(with("plan", {"--schedule", "auto", "--memory-limit", "34B"}));
  EXPECT_EQ(one["makespan_ns"], 3 * (2 + 5 + 2 + 4 + 5 + 6));
  EXPECT_EQ(one["optimal"], true);
  answer(with("plan", {"--schedule", "auto", "--memory-limit", "33B"}), 1);
  EXPECT_THAT(refusal(with("plan", {"--schedule", "auto", "--seconds", "0"})), HasSubstr("--seconds"));
  const std::string file = folder_.file("auto.csv");
  ASSERT_EQ(call({"schedule", "gpipe", "--ranks", "2", "--microbatches", "3", "--out", file}).status, 0);
  EXPECT_EQ(answer(with("plan", {"--schedule", file}))["makespan_ns"], kMakespan) << "a file of that name is a schedule as any other";
}

TEST_F(LayersCommand, ExplainsTheMemoryOfAPeak) {
  const Words shape{"--layers", table_, "--ranks", "2", "--microbatches", "3", "--schedule", "1f1b", "--why-memory"};
  Words plan{"plan"};
  plan.insert(plan.end(), shape.begin(), shape.end());
  const Json json = answer(plan);
  // Rank 0 holds two microbatches of two layers, rank 1 one; and both 10 bytes of parameters a layer.
  const Json zero = json["memory"][0], one = json["memory"][1];
  EXPECT_EQ(zero["peak_bytes"], 2 * 10 + 2 * 2 * 7);
  EXPECT_EQ(zero["at"], "0F1");
  EXPECT_EQ(zero["parts"], (Json::parse(R"([{"kind": "activations", "stage": 0, "microbatches": [0, 1], "bytes": 28},
                                            {"kind": "parameters", "stage": 0, "microbatches": [], "bytes": 20}])")));
  EXPECT_EQ(one["parts"][1]["bytes"], 2 * 7);
  EXPECT_EQ(json["memory_by_module"][0], (Json::parse(R"({"stage": 0, "module": "a", "activation_bytes": 7, "parameter_bytes": 10})")));
  for (const Json& saving : json["memory_savings"]) EXPECT_NE(saving["what"], "recompute") << "a table says nothing of recomputing";
  // GPipe keeps all three microbatches on both ranks.
  Words gpipe = plan;
  *std::ranges::find(gpipe, "1f1b") = "gpipe";
  const Json savings = answer(gpipe)["memory_savings"];
  const auto other = std::ranges::find_if(savings, [](const Json& saving) { return saving.value("schedule", "") == "1f1b"; });
  ASSERT_NE(other, savings.end()) << savings;
  EXPECT_EQ((*other)["freed_bytes"], 2 * 7);
  plan[0] = "simulate";
  EXPECT_EQ(answer(plan)["memory"], json["memory"]);
  EXPECT_THAT(call(plan).out, HasSubstr("0F1      peak"));
}

TEST_F(LayersCommand, SearchNamesSplitsByLayersAndKeepsTheLimit) {
  const Json json = answer({"search", "--layers", table_, "--ranks", "2", "--microbatches", "3", "--schedules", "gpipe,1f1b"});
  const Json& best = json["best"][0];
  // After c, with 1f1b: stage 0 (F 3, B 9) does two forwards to 6, waits to 7 for the gradient of d (F to 4, B to 7), and then is never
  // idle: 36 of work and 1 of waiting. A cut after a takes 1 + 36 + 3, one after b more than 36 + 5.
  EXPECT_EQ(best["makespan_ns"], 37);
  EXPECT_EQ(best["schedule"], "1f1b");
  EXPECT_EQ(best["splits"], Json({"d"}));
  const Json small =
      answer({"search", "--layers", table_, "--ranks", "2", "--microbatches", "3", "--schedules", "gpipe", "--memory-limit", "62B"});
  EXPECT_EQ(small["best"][0]["splits"], Json({"c"})) << "the other cuts need 30 + 3 · 21 on a rank";
  EXPECT_EQ(small["best"][0]["peak_bytes"], 62);
  answer({"search", "--layers", table_, "--ranks", "2", "--microbatches", "3", "--schedules", "gpipe", "--memory-limit", "61B"}, 1);
}

/// The same layers, of whose activations 2 bytes are enough to run them again.
TEST_F(LayersCommand, RecomputesWhereTheTableSaysWhatIsKept) {
  const std::string table = folder_.with("again.csv",
                                         "name,forward_ns,input_ns,weight_ns,parameter_bytes,activation_bytes,output_bytes,sent_ns,"
                                         "activation_if_recomputed_bytes\n"
                                         "a,1,2,1,10,7,3,,2\nb,1,2,1,10,7,3,5,2\nc,1,2,1,10,7,3,,2\nd,1,2,1,10,7,0,,2\n");
  const std::string plan = folder_.file("plan.json");
  const auto with = [&](const std::string& command, const Words& more) {
    Words words{command, "--layers", table, "--ranks", "2", "--microbatches", "3"};
    words.insert(words.end(), more.begin(), more.end());
    return words;
  };
  // B is 8 now. Stage 1 ends its forwards at 13, its backwards at 21, 29 and 37; the last gradient is with stage 0 at 42, which ends at 50.
  // A rank keeps two layers of three microbatches, and in the first backward all that it would hold of that one.
  constexpr int kPeak = 2 * 10 + 3 * 2 * 2 + 2 * (7 - 2);
  const Json full = answer(with("plan", {"--schedule", "gpipe", "--recompute", "full", "--out", plan}));
  EXPECT_EQ(full["makespan_ns"], 50);
  for (const Json& rank : full["ranks"]) EXPECT_EQ(rank["peak_bytes"], kPeak);
  EXPECT_EQ(answer({"simulate", plan})["makespan_ns"], 50);
  const auto within = [&](int bytes, int status) {
    return answer(with("plan", {"--schedule", "gpipe", "--recompute", "auto", "--memory-limit", std::to_string(bytes) + "B"}), status);
  };
  EXPECT_EQ(within(62, 0)["makespan_ns"], kMakespan) << "nothing needs to be";
  EXPECT_EQ(within(61, 0)["makespan_ns"], 50);
  EXPECT_EQ(within(kPeak, 0)["makespan_ns"], 50);
  EXPECT_EQ(within(kPeak - 1, 1)["ranks"][0]["peak_bytes"], kPeak);
  // One layer of each stage: F 2 and B 7, 7 + 2 bytes kept.
  const Json some = answer(with("plan", {"--schedule", "gpipe", "--recompute", "b", "d"}));
  EXPECT_EQ(some["makespan_ns"], 13 + 3 * 7 + 5 + 7);
  EXPECT_EQ(some["ranks"][0]["peak_bytes"], 2 * 10 + 3 * (7 + 2) + (7 - 2));
  const Json found = answer(with("search", {"--schedules", "gpipe", "--memory-limit", std::to_string(kPeak) + "B"}));
  EXPECT_EQ(found["best"][0]["makespan_ns"], 50);
  const Json made = answer(with("plan", {"--schedule", "auto", "--recompute", "auto", "--memory-limit", std::to_string(kPeak) + "B"}));
  EXPECT_LE(made["makespan_ns"], 50);
  EXPECT_GE(made["makespan_ns"], made["lower_bound_ns"]);
  const Json savings = answer(with("plan", {"--schedule", "gpipe", "--why-memory"}))["memory_savings"];
  const auto saving = std::ranges::find_if(savings, [](const Json& one) { return one["what"] == "recompute" && one["stage"] == 0; });
  ASSERT_NE(saving, savings.end()) << savings;
  EXPECT_EQ((*saving)["rank"], 0);
  EXPECT_EQ((*saving)["freed_bytes"], 2 * 10 + 3 * 2 * 7 - kPeak);
}

TEST_F(LayersCommand, RefusesToRecomputeALayerThatDoesNotSayWhatItKeeps) {
  const std::string table = folder_.with("part.csv",
                                         "name,forward_ns,backward_ns,parameter_bytes,activation_bytes,output_bytes,"
                                         "activation_if_recomputed_bytes\na,1,2,0,7,0,2\nb,1,2,0,7,0,\n");
  const Words words{"plan", "--layers", table, "--ranks", "2", "--microbatches", "2", "--recompute"};
  const auto with = [&](const std::string& what) {
    Words all = words;
    all.push_back(what);
    return all;
  };
  EXPECT_THAT(refusal(with("full")), HasSubstr("does not say what b keeps then"));
  EXPECT_EQ(call(with("a")).status, 0);
  // An own order recomputes only a. Its activations of two microbatches are 14 bytes, or 2 · 2 and 5 more in the backward.
  const auto within = [&](const std::string& limit) {
    Words all = with("auto");
    all.insert(all.end(), {"--schedule", "auto", "--memory-limit", limit});
    return answer(all);
  };
  // I and W are 1 each: rank 0 does two forwards, is idle until the gradient comes at 3, and is never idle after that.
  EXPECT_EQ(within("14B")["makespan_ns"], 2 + 1 + 2 * 2);
  EXPECT_EQ(within("9B")["makespan_ns"], 2 + 1 + 2 * 3) << "one microbatch after the other takes 2 · 5";
  Words why = words;
  why.back() = "--why-memory";
  const Json explained = answer(why);
  for (const Json& saving : explained.at("memory_savings")) EXPECT_TRUE(saving["what"] != "recompute" || saving["stage"] == 0) << saving;
  const std::string more = folder_.with("more.json", R"({"layers": [{"name": "a", "forward_ns": 1, "backward_ns": 1, "parameter_bytes": 0,
      "activation_bytes": 7, "output_bytes": 0, "activation_if_recomputed_bytes": 8}]})");
  EXPECT_THAT(refusal({"plan", "--layers", more}), HasSubstr("above its activations"));
  const std::string misspelt = folder_.with("word.json", R"({"layers": [{"name": "a", "forward_ns": 1, "backward_ns": 1,
      "parameter_bytes": 0, "activation_bytes": 7, "output_bytes": 0, "activation_if_recomputed": 2}]})");
  EXPECT_THAT(refusal({"plan", "--layers", misspelt}), HasSubstr("`activation_if_recomputed`, which is no cost of a layer"));
}

TEST_F(LayersCommand, RecomputesNothingAutomaticallyWhereNoLayerSaysWhatItKeeps) {
  const Words words{"plan", "--layers", table_, "--ranks", "2", "--microbatches", "2", "--memory-limit"};
  const auto with = [&](const std::string& limit, const char* recompute) {
    Words all = words;
    all.insert(all.end(), {limit, "--recompute", recompute, "--json"});
    return call(all);
  };
  for (const char* limit : {"1GB", "1B"}) {
    const Outcome automatic = with(limit, "auto"), none = with(limit, "none");
    EXPECT_EQ(automatic.status, none.status) << limit;
    EXPECT_EQ(automatic.out, none.out) << limit;
  }
}

TEST_F(LayersCommand, NamesALayerWithACommaByItsPosition) {
  const std::string table = folder_.with("comma.csv",
                                         "name,forward_ns,backward_ns,parameter_bytes,activation_bytes,output_bytes\n"
                                         "\"a,0\",1,2,0,7,0\n\"a,1\",1,2,0,7,0\n");
  const Words words{"search", "--layers", table, "--ranks", "2", "--microbatches", "2", "--schedules", "1f1b"};
  const Json found = answer(words);
  ASSERT_EQ(found["best"][0]["splits"], Json({"@1"}));
  EXPECT_EQ(call({"plan", "--layers", table, "--split", "@1", "--microbatches", "2"}).status, 0);
}

TEST_F(LayersCommand, RefusesWhatATableHasNoCostsFor) {
  EXPECT_THAT(refusal({"plan", "--layers", table_, "--ranks", "2", "--recompute", "full"}), HasSubstr("omit --recompute"));
  EXPECT_THAT(refusal({"plan", "--layers", table_, "--ranks", "2", "--profile", "p.json"}), HasSubstr("omit --profile"));
  EXPECT_THAT(refusal({"plan", "--layers", table_, "--ranks", "2", "--microbatch", "3"}), HasSubstr("microbatches of 1, not 3"));
  EXPECT_THAT(refusal({"plan", "--layers", table_, "--ranks", "2", "--device", "cpu"}), HasSubstr("--device"));
  EXPECT_THAT(refusal({"plan", "--layers", table_, "--ranks", "5"}), HasSubstr("cannot be cut into 5 stages"));
  EXPECT_THAT(refusal({"plan", "--layers", table_, "model.pt2"}), HasSubstr("only one of MODEL.pt2 and --layers"));
  EXPECT_THAT(refusal({"plan"}), HasSubstr("one of MODEL.pt2 and --layers"));
  EXPECT_THAT(refusal({"search", "--layers", folder_.with("four.txt", "name\n"), "--ranks", "2"}), HasSubstr("not a layer table"));
  EXPECT_THAT(refusal({"plan", "--layers", folder_.file("none.json")}), HasSubstr("none.json"));
  EXPECT_THAT(refusal({"simulate", "--layers", table_, "--schedule", "1f1b", "--ranks", "2", "--microbatches", "2", "--forward", "1ms"}),
              HasSubstr("--layers has all times"));
  EXPECT_THAT(refusal({"simulate", "--schedule", "1f1b", "--ranks", "2", "--microbatches", "2", "--split", "b"}),
              HasSubstr("add --layers"));
  EXPECT_THAT(refusal({"profile", table_}), HasSubstr("nothing to measure"));
}

TEST_F(LayersCommand, ImportsAGraphOfPipeDream) {
  const std::string out = folder_.file("gnmt.csv");
  const Outcome imported = call({"import", PW_SOURCE_DIR "/tests/data/pipedream/gnmt.graph.txt", "--out", out});
  ASSERT_EQ(imported.status, 0) << imported.err;
  const Json json = answer({"search", "--layers", out, "--ranks", "4", "--microbatches", "8", "--schedules", "1f1b"});
  EXPECT_EQ(json["best"][0]["splits"].size(), 3U);
  for (const Json& split : json["best"][0]["splits"]) EXPECT_THAT(contentOf(out), HasSubstr(split.get<std::string>() + ","));
  EXPECT_THAT(refusal({"import", out}), HasSubstr("gnmt.csv is none of what is imported; give a trace ("));
}

// torchrun's first line begins with the time in brackets, as an array of a trace's events might.
TEST_F(LayersCommand, ImportsLogsThatBeginWithATime) {
  std::string log = "[2024-06-16 12:00:00,123] torch.distributed.run: [WARNING] OMP_NUM_THREADS is 1\n";
  for (const char* argument : {"data_parallel_size 1", "global_batch_size 16", "hidden_size 8", "micro_batch_size 4", "num_layers 2",
                               "params_dtype torch.bfloat16", "pipeline_model_parallel_size 2", "seq_length 16", "sequence_parallel False",
                               "tensor_model_parallel_size 1", "world_size 2"}) {
    const std::string name(argument);
    log += "  " + std::string(name).insert(name.find(' ') + 1, ".......... ") + "\n";
  }
  const std::string report =
      "times across ranks (ms):\n  forward-compute:\n     rank  0: 8.00\n     rank  1: 12.00\n  backward-compute:\n     rank  0: 16.00\n   "
      "  "
      "rank  1: 24.00\n";
  const std::string out = folder_.file("layers.json");
  const Outcome imported = call({"import", folder_.with("train.log", log + report + report), "--out", out});
  ASSERT_EQ(imported.status, 0) << imported.err;
  EXPECT_THAT(imported.out, HasSubstr("forward 5.00 ms, backward 10.0 ms"));  // of 16 / 4 microbatches: 2 ms and 3 ms, 4 ms and 6 ms
  const std::string stamp = "[2022-08-25 02:58:14,298] [INFO] [logging.py:68:log_dist] [Rank 0] rank=0 ";
  EXPECT_THAT(refusal({"import", folder_.with("deepspeed.log", stamp + "time (ms) | forward_microstep: 2785.85 | step: 1.0\n")}),
              HasSubstr("deepspeed.log has the times of one rank alone (DeepSpeed's wall_clock_breakdown"));
  EXPECT_THAT(refusal({"import", folder_.with("other.log", stamp + "done\n")}), HasSubstr("other.log is none of what is imported; give"));
}

TEST_F(LayersCommand, PredictNoTrainingFromAJobOfForwardsAlone) {
  const std::string trace = folder_.file("forwards.json");
  Words recorded{"simulate", "--schedule", "forward-only", "--ranks", "2", "--microbatches", "4", "--forward", "1ms", "--trace", trace};
  ASSERT_EQ(call(recorded).status, 0);
  EXPECT_EQ(answer({"simulate", "--costs-from", trace})["makespan_ns"], 5'000'000);  // (4 + 2 - 1) forwards
  for (const Words& words : {Words{"simulate", "--costs-from", trace, "--schedule", "1f1b"},
                             Words{"search", "--costs-from", trace, "--ranks", "2", "--microbatches", "4"},
                             Words{"plan", trace, "--ranks", "2", "--microbatches", "4"}})
    EXPECT_THAT(refusal(words), HasSubstr("are forwards alone, and say nothing of how long backwards take"));
}

TEST_F(LayersCommand, ExportsATableThatTakesAsLongAsItsModel) {
  const std::string plan = folder_.file("plan.json"), out = folder_.file("layers.json");
  const std::vector<std::string> how{"--ranks", "2", "--microbatches", "4", "--cluster", "cpu-workstation"};
  const auto planned = [&](std::vector<std::string> words) {
    words.insert(words.end(), how.begin(), how.end());
    return answer(words);
  };
  const Json model = planned({"plan", PW_SOURCE_DIR "/resources/models/gpt_small.pt2", "--out", plan});
  ASSERT_EQ(call({"export", plan, "--to", "layers", "--out", out}).status, 0);
  const std::string split = Json::parse(contentOf(plan))["splits"][0];
  const Json table = planned({"plan", "--layers", out, "--split", split});
  EXPECT_EQ(table["makespan_ns"], model["makespan_ns"]);
}

}  // namespace
}  // namespace pw::test
