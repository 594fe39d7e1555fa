// The command line of schedules: every family, exchange with torch, checks, and simulation with synthetic costs.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "schedules/generate.h"
#include "tests/app/cli/call.h"

namespace pw::test {
namespace {

using Words = std::vector<std::string>;

Words operator+(Words words, const Words& more) {
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

Words shaped(const std::string& name, int ranks, int microbatches) {
  return {"--ranks", std::to_string(ranks), "--microbatches", std::to_string(microbatches), name};
}

nlohmann::json simulated(const std::string& name, int ranks, int microbatches, const Words& more = {}) {
  const Outcome outcome = call(
      Words{"simulate", "--ranks", std::to_string(ranks), "--microbatches", std::to_string(microbatches), "--schedule", name, "--json"} +
      more);
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  return outcome.status == 0 ? nlohmann::json::parse(outcome.out) : nlohmann::json{};
}

TEST(Schedule, WritesEveryFamilyWithItsUsualChunksAndCheckAcceptsEveryLowering) {
  const Folder folder;
  for (const Generator& generator : generators()) {
    for (const std::string lowering : {"", "deferred", "torch", "torch-runtime"}) {
      const Words lowered = lowering.empty() ? Words{} : Words{"--lowered", lowering};
      ASSERT_EQ(call(Words{"schedule"} + shaped(std::string(generator.name), 4, 8) + Words{"--out", folder.file("f.csv")} + lowered).status,
                0)
          << generator.name;
      const Outcome outcome =
          call({"check", folder.file("f.csv"), "--json", "--placement",
                std::string(nameOf(generator.placement == PlacementKind::Wave ? PlacementKind::V : generator.placement))});
      EXPECT_EQ(outcome.status, 0) << generator.name << " " << lowering << outcome.out;
    }
  }
}

TEST(Schedule, StrictTorchRefusesWhatTorchRefuses) {
  // Ten microbatches on four ranks are two rounds of five; eleven are not.
  const Words ten = Words{"schedule"} + shaped("interleaved-1f1b", 4, 10), eleven = Words{"schedule"} + shaped("interleaved-1f1b", 4, 11);
  EXPECT_EQ(call(ten + Words{"--strict", "torch"}).status, 0);
  EXPECT_EQ(call(eleven).status, 0);
  EXPECT_EQ(call(eleven + Words{"--strict", "torch"}).status, 2);
  // Megatron's groups of four: the first chunk takes four microbatches before the second's turn.
  EXPECT_EQ(call(Words{"schedule"} + shaped("interleaved-1f1b", 4, 8) + Words{"--group", "4"}).out.substr(0, 20), "0F0,0F1,0F2,0F3,4F0,");
  EXPECT_EQ(call(Words{"schedule"} + shaped("interleaved-1f1b", 4, 8) + Words{"--group", "8"}).out.substr(0, 36),
            "0F0,0F1,0F2,0F3,0F4,0F5,0F6,0F7,4F0,");
}

TEST(Schedule, WritesAndReadsTheLettersOfTheZeroBubblePapers) {
  const Folder folder;
  const Words zb = Words{"schedule"} + shaped("zb-h1", 2, 2);
  const Outcome papers = call(zb + Words{"--letters", "zero-bubble"});
  EXPECT_EQ(papers.out.find('I'), std::string::npos);
  const std::string file = folder.with("zb.csv", papers.out);
  EXPECT_EQ(call({"check", file}).status, 1) << "in torch's letters every B would be whole and its W too much";
  EXPECT_EQ(call({"check", file, "--letters", "zero-bubble"}).status, 0);
  EXPECT_EQ(nlohmann::json::parse(call({"simulate", "--csv", file, "--letters", "zero-bubble", "--json"}).out)["actions"], 2 * 2 * 3);
}

TEST(Check, ComparesThePlacementAndTheSizesOfMessages) {
  const Folder folder;
  const std::string file = folder.file("zbv.csv");
  ASSERT_EQ(call(Words{"schedule"} + shaped("zbv", 2, 4) + Words{"--out", file}).status, 0);
  const Outcome loop = call({"check", file, "--placement", "loop", "--json"});
  EXPECT_EQ(loop.status, 1);
  EXPECT_EQ(nlohmann::json::parse(loop.out)["placement"], "v");
  EXPECT_NE(loop.out.find("stage 2 is on rank 1 for microbatch 0; a loop placement has it on rank 0"), std::string::npos);
  EXPECT_EQ(call({"check", file, "--placement", "custom"}).status, 0);
  const std::string same = folder.with("same.json", R"({"sends": [8, 8, 8, 0], "receives": [0, 8, 8, 8]})");
  const std::string other = folder.with("other.json", R"({"sends": [8, 8, 8, 0], "receives": [0, 8, 8, 4]})");
  EXPECT_EQ(call({"check", file, "--sizes", same}).status, 0);
  EXPECT_EQ(call({"check", file, "--sizes", other}).status, 1);
  EXPECT_EQ(call({"check", file, "--sizes", folder.with("short.json", R"({"sends": [8], "receives": [8]})")}).status, 2);
}

TEST(Simulate, GivesThePublishedUnitTimes) {
  const Words units{"--forward", "1ms", "--backward", "2ms", "--input", "1ms", "--weight", "1ms"};
  const std::vector<std::pair<std::string, int>> makespans{
      {"gpipe", 33}, {"1f1b", 33}, {"interleaved-zb", 27}, {"interleaved-1f1b", 57}, {"looped-bfs", 57}, {"zbv", 51}, {"dualpipev", 54}};
  for (const auto& [schedule, expected] : makespans) {
    EXPECT_EQ(simulated(schedule, 4, 8, units)["makespan_ns"], expected * 1'000'000) << schedule;
  }
  EXPECT_EQ(simulated("interleaved-zb", 4, 8, units + Words{"--chunks", "2"})["makespan_ns"], 51'000'000);
}

TEST(Simulate, AnOverlappedPairTakesTheTimeGivenForIt) {
  // (R−1)(F&B + B − 3W) and M (F + B) of two chunks, where M − 2R + … pairs overlap: faster pairs shorten it.
  const Words units{"--forward", "1ms", "--backward", "2ms", "--input", "1ms", "--weight", "1ms"};
  EXPECT_EQ(simulated("dualpipev", 4, 8, units)["makespan_ns"],
            simulated("dualpipev", 4, 8, units + Words{"--overlap", "3ms"})["makespan_ns"]);
  EXPECT_LT(simulated("dualpipev", 4, 8, units + Words{"--overlap", "2ms"})["makespan_ns"], 54'000'000);
}

TEST(Simulate, ReadsAProblemFileWithItsLimits) {
  const Folder folder;
  const auto problem = [&](int limit) {
    return folder.with(
        "problem.json",
        R"({"ranks": 2, "microbatches": 4, "place": [0, 1], "forward_ns": [10, 10], "input_ns": [10, 10], "weight_ns": [10, 10],
      "latency_ns": [5], "activation": [100, 100], "activation_after_input": [40, 40], "limit": [)" +
            std::to_string(limit) + R"(, 200]})");
  };
  // 1F1B: rank 0 holds two microbatches. Makespan M(F+B) + (R−1)(F+B) + 2(R−1)cM/R + 2(R−2)c = 120 + 30 + 20.
  const Outcome fits = call({"simulate", "--schedule", "1f1b", "--costs", problem(200), "--json"});
  EXPECT_EQ(fits.status, 0) << fits.err;
  EXPECT_EQ(nlohmann::json::parse(fits.out)["makespan_ns"], 170);
  EXPECT_EQ(nlohmann::json::parse(fits.out)["ranks"][0]["peak_bytes"], 200);
  const Outcome tooLittle = call({"simulate", "--schedule", "1f1b", "--costs", problem(199), "--json"});
  EXPECT_EQ(tooLittle.status, 1);
  EXPECT_EQ(nlohmann::json::parse(tooLittle.out)["fits"], false);
  EXPECT_EQ(tooLittle.err, "pipewright: 1f1b: rank 0 needs 200 of memory, more than its limit of 199.\n");
  EXPECT_EQ(call({"simulate", "--schedule", "zbv", "--costs", problem(200)}).status, 2) << "another number of stages";
  EXPECT_EQ(call({"simulate", "--schedule", "1f1b", "--costs", problem(200), "--ranks", "3"}).status, 2);
  EXPECT_EQ(call({"simulate", "--schedule", "1f1b", "--costs", folder.with("odd.json", R"({"ranks": 2})")}).status, 2);
  const auto with = [&](const std::string& members) {
    return call(
        {"simulate", "--schedule", "gpipe", "--costs",
         folder.with("odd.json", R"({"ranks": 1, "microbatches": 1, "place": [0], "forward_ns": [1], "input_ns": [1], "weight_ns": [1],
      "latency_ns": [], "activation": [9], )" +
                                     members + "}")});
  };
  EXPECT_EQ(with(R"("name": "of a paper", "optimum": 3)").status, 0) << "is nobody's mistake";
  const Outcome misspelt = with(R"("limits": [5])");
  EXPECT_EQ(misspelt.status, 2);
  EXPECT_NE(misspelt.err.find("it has `limits` (did you mean limit?)"), std::string::npos) << misspelt.err;
}

TEST(Simulate, MakesAnOrderForAProblemFile) {
  const Folder folder;
  const auto problem = [&](int limit, const std::string& more) {
    return folder.with("problem.json",
                       R"({"ranks": 2, "microbatches": 4, "place": [0, 1], "forward_ns": [10, 10], "input_ns": [10, 10],
      "weight_ns": [10, 10], "latency_ns": [5], "activation": [100, 100], "limit": [)" +
                           std::to_string(limit) + ", 200]" + more + "}");
  };
  // One microbatch at a time: F, there and back around F and B of rank 1 (its W runs meanwhile), then I and W: 4 (10 + 5 + 20 + 5 + 20),
  // and no order is faster.
  const std::string file = problem(100, "");
  const Outcome serial = call({"simulate", "--schedule", "auto", "--costs", file, "--json"});
  ASSERT_EQ(serial.status, 0) << serial.err;
  const auto json = nlohmann::json::parse(serial.out);
  EXPECT_EQ(json["makespan_ns"], 240);
  EXPECT_EQ(json["lower_bound_ns"], 240);
  EXPECT_EQ(json["gap"], 0);
  EXPECT_EQ(json["optimal"], true);
  EXPECT_EQ(json["objective"], "flush");
  EXPECT_TRUE(json["found_by"].is_string());
  // Written as a CSV, it is the same.
  const std::string csv = folder.file("mine.csv");
  ASSERT_EQ(call({"schedule", "auto", "--costs", file, "--out", csv}).status, 0);
  const Outcome again = call({"simulate", "--csv", csv, "--costs", file, "--json"});
  EXPECT_EQ(nlohmann::json::parse(again.out)["makespan_ns"], 240) << again.err;
  // Recomputing rank 0's stage takes 10 a microbatch, and leaves room for two: then rank 1 need not wait.
  const Outcome recomputed =
      call({"simulate", "--schedule", "auto", "--costs", problem(120, R"(, "activation_if_recomputed": [20, 20])"), "--json"});
  EXPECT_LT(nlohmann::json::parse(recomputed.out)["makespan_ns"], 240) << recomputed.err;
  EXPECT_EQ(nlohmann::json::parse(recomputed.out)["recomputed_stages"][0], 0);
  const Outcome tooLittle = call({"simulate", "--schedule", "auto", "--costs", problem(99, "")});
  EXPECT_EQ(tooLittle.status, 1);
  EXPECT_EQ(tooLittle.err, "pipewright: auto: rank 0 needs 100 of memory, more than its limit of 99.\n");
  EXPECT_EQ(call({"schedule", "auto", "--costs", problem(99, "")}).status, 1) << "the answer is no";
  EXPECT_EQ(call({"schedule", "1f1b", "--costs", file}).status, 2);
  EXPECT_EQ(call({"schedule", "auto", "--ranks", "2", "--microbatches", "2"}).status, 2);
}

TEST(Simulate, MakesTheSearchedOrdersOfZeroBubbleAtTheirLimits) {
  const Words times{"--ranks", "4", "--microbatches", "8", "--forward", "1ms", "--input", "1ms", "--weight", "1ms"};
  const auto made = [&](const std::string& name) {
    Words words{"simulate", "--schedule", name, "--json"};
    words.insert(words.end(), times.begin(), times.end());
    const Outcome outcome = call(words);
    EXPECT_EQ(outcome.status, 0) << outcome.err;
    return nlohmann::json::parse(outcome.out);
  };
  const auto one = made("zb-1p"), two = made("zb-2p");
  EXPECT_EQ(two["window_ns"], 8 * 3'000'000) << "no bubble with F = I = W and twice the memory";
  EXPECT_EQ(two["objective"], "window");
  EXPECT_EQ(two["optimal"], true);
  EXPECT_GT(one["window_ns"], two["window_ns"]);
  for (std::size_t r = 0; r < 4; ++r) {
    EXPECT_LE(one["ranks"][r]["peak_live_microbatches"], 4);
    EXPECT_LE(two["ranks"][r]["peak_live_microbatches"], 8);
  }
  // With a problem file the memory counts: I frees most of it, so that more microbatches live.
  const Folder folder;
  const std::string problem =
      folder.with("problem.json", R"({"ranks": 2, "microbatches": 6, "place": [0, 1], "forward_ns": [10, 10], "input_ns": [10, 10],
      "weight_ns": [10, 10], "latency_ns": [0], "activation": [100, 100], "activation_after_input": [10, 10], "objective": "window"})");
  const Outcome outcome = call({"simulate", "--schedule", "zb-1p", "--costs", problem, "--json"});
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  const auto json = nlohmann::json::parse(outcome.out);
  for (const auto& rank : json["ranks"]) EXPECT_LE(rank["peak_bytes"], 2 * 100);
  EXPECT_EQ(call({"schedule", "zb-2p", "--costs", problem}).status, 0);
  EXPECT_EQ(call({"schedule", "zb-2p", "--ranks", "2", "--microbatches", "2"}).status, 2);
}

TEST(Simulate, MakesAnOrderForTimesAndAPlacementOfTwoChunks) {
  // On a V with F = I = W the last stage is on rank 0, so both ranks end together: M · 6 and the way to rank 1.
  const Words times{"--chunks", "2", "--forward", "1ms", "--input", "1ms", "--weight", "1ms"};
  const auto json = simulated("auto", 2, 4, times);
  EXPECT_EQ(json["makespan_ns"], 25'000'000);
  EXPECT_EQ(json["optimal"], true);
  EXPECT_EQ(call(Words{"simulate", "--schedule", "auto", "--ranks", "2", "--microbatches", "4", "--overlap", "3ms"}).status, 2);
  EXPECT_EQ(call(Words{"simulate", "--schedule", "auto", "--ranks", "4096", "--microbatches", "1000000"}).status, 2);
}

TEST(Simulate, HoldsALimitOfLivePairsAgainstTheSchedule) {
  EXPECT_EQ(call(Words{"simulate", "--schedule", "1f1b", "--ranks", "4", "--microbatches", "8", "--live-limit", "4,3,2,1"}).status, 0);
  // Rank 1 of zb-h2 has three alive when its first W comes, also where its stage takes no time.
  const Words instant{"simulate",  "--schedule", "zb-h2",   "--ranks",   "2",        "--microbatches", "6",
                      "--forward", "98ns,0ns",   "--input", "120ns,0ns", "--weight", "95ns,0ns",       "--live-limit"};
  EXPECT_EQ(call(instant + Words{"3,3"}).status, 0);
  EXPECT_EQ(call(instant + Words{"3,2"}).status, 1);
  const Outcome outcome = call(Words{"simulate", "--schedule", "1f1b", "--ranks", "4", "--microbatches", "8", "--live-limit", "3"});
  EXPECT_EQ(outcome.status, 1);
  EXPECT_EQ(outcome.err, "pipewright: 1f1b: rank 0 has 4 live (stage, microbatch) pairs, more than its limit of 3.\n");
}

TEST(Simulate, ASlowRankOrLinkIsSlow) {
  const Words times{"--forward", "1ms", "--backward", "2ms", "--latency", "1ms"};
  // GPipe, two ranks, two microbatches: three rounds of 3 ms and one hop each way.
  EXPECT_EQ(simulated("gpipe", 2, 2, times)["makespan_ns"], 11'000'000);
  EXPECT_EQ(simulated("gpipe", 2, 2, times + Words{"--slow", "0-1=3"})["makespan_ns"], 15'000'000);
  // Rank 1 twice as slow: F 2..4..6 there, B 6..10..14, then one hop and B0 of rank 0 after that: 14 + 1 + 2.
  EXPECT_EQ(simulated("gpipe", 2, 2, times + Words{"--slow", "1=2"})["makespan_ns"], 17'000'000);
}

TEST(Simulate, SaysWhatTheMakespanDependsOn) {
  const Words costs{"--forward", "1ms,3ms", "--backward", "1ms,3ms", "--latency", "300us", "--sensitivity", "0.1"};
  const auto json = simulated("gpipe", 2, 4, costs)["sensitivity"];  // 1 + 0.3 + 4 * 6 + 0.3 + 1
  EXPECT_EQ(json["change"], 0.1);
  ASSERT_EQ(json["of"].size(), 3U);
  EXPECT_EQ(json["of"][0]["stage"], 1);
  EXPECT_EQ(json["of"][0]["on_path_ns"], 24'000'000);
  EXPECT_EQ(json["of"][0]["faster_makespan_ns"], 24'200'000);
  EXPECT_EQ(json["of"][0]["slower_makespan_ns"], 29'000'000);
  EXPECT_EQ(json["of"][2]["link"], (nlohmann::json{0, 1}));
  EXPECT_EQ(json["of"][2]["slower_makespan_ns"], 26'660'000);
  const Outcome text = call(Words{"simulate", "--schedule", "gpipe", "--ranks", "2", "--microbatches", "4"} + costs);
  EXPECT_NE(text.out.find("-9.0 %  ████████████████████  ████████████████████"), std::string::npos) << text.out;
  EXPECT_EQ(call(Words{"simulate", "--schedule", "gpipe", "--ranks", "2", "--microbatches", "4", "--sensitivity", "1"}).status, 2);
}

TEST(Simulate, BlockingSendsTakeLongerAndPostedOnesNoLess) {
  const Words times{"--forward", "1ms", "--backward", "2ms", "--latency", "100us", "--transfer", "300us"};
  const auto overlapped = simulated("1f1b", 4, 8, times)["makespan_ns"].get<std::int64_t>();
  const auto posted = simulated("1f1b", 4, 8, times + Words{"--sends", "posted"})["makespan_ns"].get<std::int64_t>();
  const auto oneChannel = simulated("1f1b", 4, 8, times + Words{"--sends", "one-channel"})["makespan_ns"].get<std::int64_t>();
  const auto blocking = simulated("1f1b", 4, 8, times + Words{"--sends", "blocking"})["makespan_ns"].get<std::int64_t>();
  EXPECT_LE(overlapped, posted);
  EXPECT_LE(posted, oneChannel);
  EXPECT_LT(oneChannel, blocking);
}

TEST(Simulate, JitterIsADistributionThatASeedRepeats) {
  const Words drawn{"--jitter", "0.1", "--draws", "200", "--seed", "7"};
  const auto jitter = simulated("1f1b", 4, 8, drawn)["jitter"];
  EXPECT_EQ(jitter["draws"], 200);
  EXPECT_EQ(jitter, simulated("1f1b", 4, 8, drawn)["jitter"]);
  const auto& makespan = jitter["makespan_ns"];
  EXPECT_LE(makespan["min"], makespan["p5"]);
  EXPECT_LT(makespan["p5"], makespan["p50"]);
  EXPECT_LT(makespan["p50"], makespan["p95"]);
  EXPECT_LE(makespan["p95"], makespan["max"]);
  // A critical path is the longest of many, so varying all makes it longer on average.
  EXPECT_GT(makespan["mean"].get<double>(), 33e6);
}

TEST(Simulate, DrawsTheCyclesOfALockstepSchedule) {
  const Outcome outcome = call({"simulate", "--schedule", "lockstep", "--ranks", "2", "--microbatches", "3", "--text"});
  EXPECT_EQ(outcome.status, 0);
  EXPECT_NE(outcome.out.find("phase"), std::string::npos);
  // N = M + 2R − 2 = 5 cycles of the slowest rank's sum F + B = 3 ms, but the first (F on rank 0 alone: 1) and the last (B alone: 2).
  EXPECT_EQ(simulated("lockstep", 2, 3)["makespan_ns"], (1 + 3 * 3 + 2) * 1'000'000);
}

TEST(Simulate, RefusesTimesWhoseSumsOverflow) {
  const Words gpipe{"simulate", "--schedule", "gpipe", "--ranks", "4", "--microbatches", "1000"};
  EXPECT_EQ(call(gpipe + Words{"--forward", "3000000000s"}).status, 2);
  EXPECT_EQ(call(gpipe + Words{"--forward", "20000000s", "--backward", "20000000s"}).status, 2);  // each fits, 4000 of them do not
  EXPECT_EQ(call(gpipe + Words{"--forward", "100000s", "--slow", "1=1e6"}).status, 2);
  EXPECT_EQ(call(gpipe + Words{"--jitter", "nan"}).status, 2);
  EXPECT_EQ(call(gpipe + Words{"--live-limit", "0"}).status, 2);
  EXPECT_EQ(call(gpipe + Words{"--draws", "5"}).status, 2) << "draws of what";
}

TEST(Simulate, APartOfTheBackwardIsNoLongerThanTheWhole) {
  const Words zbv{"--forward", "1ms", "--backward", "2ms"};
  EXPECT_EQ(call(Words{"simulate", "--schedule", "zbv", "--ranks", "2", "--microbatches", "4"} + zbv + Words{"--input", "3ms"}).status, 2);
  // I = 1.5, so W = 0.5: as given.
  EXPECT_EQ(simulated("zbv", 2, 4, zbv + Words{"--input", "1500us"})["makespan_ns"],
            simulated("zbv", 2, 4, zbv + Words{"--input", "1500us", "--weight", "500us"})["makespan_ns"]);
}

TEST(Simulate, ChecksAFileAsItIsWritten) {
  const Folder folder;
  const std::string late =
      folder.with("late.csv", "0F0,0SEND_F0,0RECV_B0,0B0\n1F0,1RECV_F0,1B0,1SEND_B0\n");  // 1F0 comes before what it needs
  for (const std::string option : {"--csv", "--schedule"}) EXPECT_EQ(call({"simulate", option, late}).status, 1) << option;
}

TEST(Simulate, OptionsWithValuesDoNotSwallowWhatFollows) {
  // The file is not a plan, and said to be none; it is not taken for another --slow or --live-limit.
  const Folder folder;
  const std::string file = folder.with("p.json", "{}");
  for (const Words& option : {Words{"--slow", "1=2"}, Words{"--live-limit", "3"}}) {
    EXPECT_NE(call(Words{"simulate"} + option + Words{file}).err.find("p.json is not a usable plan"), std::string::npos) << option[0];
  }
}

TEST(Simulate, DrawsAnOverlappedPairAsOneSliceOfTheTrace) {
  const Folder folder;
  const std::string trace = folder.file("trace.json");
  ASSERT_EQ(call({"simulate", "--schedule", "dualpipev", "--ranks", "2", "--microbatches", "4", "--trace", trace}).status, 0);
  int slices = 0, pairs = 0;
  const auto events = nlohmann::json::parse(contentOf(trace))["traceEvents"];
  for (const auto& event : events) {
    if (event["ph"] != "X" || event["tid"].get<int>() > 1) continue;
    const bool compute = event["cat"] == "F" || event["cat"] == "B" || event["cat"] == "I" || event["cat"] == "W";
    slices += compute ? 1 : 0;
    pairs += event["name"].get<std::string>().starts_with("(") ? 1 : 0;
  }
  const auto actions = simulated("dualpipev", 2, 4)["actions"].get<int>();
  EXPECT_GT(pairs, 0);
  EXPECT_EQ(slices, actions - pairs);
}

TEST(Schedule, StrictTorchRefusesGroupsThatTorchDoesNotHave) {
  const Words eight = Words{"schedule"} + shaped("interleaved-1f1b", 4, 8) + Words{"--strict", "torch"};
  EXPECT_EQ(call(eight + Words{"--group", "4"}).status, 0);  // torch's own: two rounds of four
  EXPECT_EQ(call(eight + Words{"--group", "8"}).status, 2);
}

TEST(Check, APlacementHasAShape) {
  const Folder folder;
  const std::string file = folder.file("f.csv");
  ASSERT_EQ(call(Words{"schedule"} + shaped("hanayo", 2, 4) + Words{"--chunks", "4", "--out", file}).status, 0);
  EXPECT_EQ(call({"check", file, "--placement", "wave"}).status, 0);
  const Outcome v = call({"check", file, "--placement", "v"});
  EXPECT_EQ(v.status, 1);
  EXPECT_NE(v.out.find("a v placement has two stages per rank"), std::string::npos);
  EXPECT_NE(v.out.find("it can run"), std::string::npos);
}

}  // namespace
}  // namespace pw::test
