#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "tests/app/cli/call.h"
#include "tests/app/cli/job.h"

namespace pw::test {
namespace {

using Json = nlohmann::json;

/// A search of gpt_small on two ranks with estimated costs, and more words.
Outcome searched(const std::vector<std::string>& more) {
  std::vector<std::string> words{"search",    sample("gpt_small"), "--ranks",     "2",
                                 "--cluster", "cpu-workstation",   "--schedules", "1f1b,gpipe,zb-h1"};
  words.insert(words.end(), more.begin(), more.end());
  return call(words);
}

TEST(SearchCommand, WritesThePlanThatItPromises) {
  const Folder folder;
  const std::string plan = folder.file("plan.json");
  const Outcome outcome = searched({"--batch", "16", "--microbatches", "2,4,8", "--out", plan, "--json"});
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_EQ(outcome.err, "");
  const Json json = Json::parse(outcome.out);
  EXPECT_EQ(json["shapes"], 9) << "three schedules, three counts";
  ASSERT_FALSE(json["best"].empty());
  const Json& best = json["best"][0];
  for (const Json& other : json["best"]) {
    EXPECT_LE(other["samples_per_second"], best["samples_per_second"]);
    EXPECT_EQ(other["batch"], 16);
    EXPECT_EQ(other["microbatches"].get<int>() * other["microbatch"].get<int>(), 16);
  }
  Json last;
  for (const Json& point : json["pareto"]) {
    EXPECT_EQ(point["pareto"], true);
    EXPECT_TRUE(last.is_null() || (point["samples_per_second"] < last["samples_per_second"] && point["peak_bytes"] < last["peak_bytes"]));
    last = point;
  }
  const Outcome simulated = call({"simulate", plan, "--json"});
  ASSERT_EQ(simulated.status, 0) << simulated.err;
  const Json prediction = Json::parse(simulated.out);
  EXPECT_EQ(prediction["makespan_ns"], best["makespan_ns"]);
  EXPECT_EQ(prediction["bubble_fraction"], best["bubble_fraction"]);
}

TEST(SearchCommand, SaysHowGoodAnOrderMadeForTheCostsIs) {
  const Folder folder;
  const std::string plan = folder.file("plan.json");
  const std::vector<std::string> words{"search", sample("gpt_small"), "--ranks", "2",           "--cluster", "cpu-workstation", "--batch",
                                       "8",      "--microbatches",    "4",       "--schedules", "auto",      "--out",           plan};
  const Outcome shown = call(words);
  ASSERT_EQ(shown.status, 0) << shown.err;
  EXPECT_NE(shown.out.find("\nauto, "), std::string::npos) << shown.out;
  std::vector<std::string> more = words;
  more.emplace_back("--json");
  const Json best = Json::parse(call(more).out)["best"][0];
  EXPECT_EQ(best["schedule"], "auto");
  EXPECT_LE(best["lower_bound_ns"], best["makespan_ns"]);
  EXPECT_EQ(best["optimal"], best["lower_bound_ns"] == best["makespan_ns"]);
  const Json kept = Json::parse(call({"simulate", plan, "--json"}).out);  // the plan's file has it
  for (const char* key : {"lower_bound_ns", "gap", "optimal", "found_by"}) EXPECT_EQ(kept[key], best[key]) << key;
  EXPECT_FALSE(Json::parse(call({"simulate", plan, "--slow", "1=2", "--json"}).out).contains("gap")) << "not of these costs";
  EXPECT_FALSE(Json::parse(call({"simulate", plan, "--sends", "blocking", "--json"}).out).contains("gap")) << "it takes longer";
}

TEST(SearchCommand, ShowsTheBestAndWhatMemoryBuys) {
  const Outcome outcome = searched({"--batch", "8", "--microbatches", "2,4", "--top", "2"});
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_NE(outcome.out.find("on 2 ranks, a batch of 8: 3 schedules, 2, 4 microbatches"), std::string::npos) << outcome.out;
  EXPECT_NE(outcome.out.find("costs estimated for"), std::string::npos);
  EXPECT_NE(outcome.out.find("Pareto front, from the fastest to the smallest"), std::string::npos);
  const auto table =
      outcome.out.substr(outcome.out.find("schedule  "), outcome.out.find("\nPareto front") - outcome.out.find("schedule  "));
  EXPECT_EQ(std::count(table.begin(), table.end(), '\n'), 3) << "the header and the two best";
}

TEST(SearchCommand, SaysNoWithTheLeastMemoryWhenNothingFits) {
  const Folder folder;
  const Outcome outcome = searched({"--batch", "8", "--memory-limit", "1KiB", "--out", folder.file("plan.json")});
  EXPECT_EQ(outcome.status, 1);
  EXPECT_NE(outcome.err.find("No plan fits 1.00 KiB: the smallest needs "), std::string::npos) << outcome.err;
  EXPECT_EQ(contentOf(folder.file("plan.json")), "") << "no plan is written";
}

TEST(SearchCommand, CutsModelsOfFewModulesBetweenOperators) {
  // More stages than the model has split points: begins are at any operator, and move among these.
  for (const Words& words :
       {Words{"search", PW_SOURCE_DIR "/resources/models/example_code.pt2", "--ranks", "4", "--microbatches", "4", "--schedules", "zbv"},
        Words{"search", PW_SOURCE_DIR "/tests/data/experts.pt2", "--ranks", "2", "--microbatches", "4"},
        Words{"plan", PW_SOURCE_DIR "/tests/data/experts.pt2", "--ranks", "4", "--microbatches", "4", "--schedule", "1f1b",
              "--memory-limit", "13KiB"},
        Words{"plan", PW_SOURCE_DIR "/tests/data/experts.pt2", "--ranks", "4", "--microbatches", "4", "--schedule", "auto",
              "--memory-limit", "13KiB"}}) {
    Words all = words;
    all.insert(all.end(), {"--cluster", "h100-nvlink"});
    const Outcome outcome = call(all);
    EXPECT_TRUE(outcome.status == 0 || outcome.status == 1) << outcome.status << outcome.err;  // 1: nothing fits
    EXPECT_EQ(outcome.out.empty(), false) << outcome.err;
  }
}

TEST(SearchCommand, ScalesAProfileAndSaysSo) {
  const Folder folder;
  const std::string profile = folder.file("profile.json");
  ASSERT_EQ(call({"profile", sample("gpt_small"), "--estimate", "cpu-workstation", "--microbatch", "4", "--out", profile}).status, 0);
  const std::vector<std::string> words{"search", sample("gpt_small"), "--ranks", "2",     "--schedules",
                                       "1f1b",   "--profile",         profile,   "--json"};
  const auto scaled = [&](std::vector<std::string> more) {
    more.insert(more.begin(), words.begin(), words.end());
    const Outcome outcome = call(more);
    EXPECT_EQ(outcome.status, 0) << outcome.err;
    std::vector<bool> all;
    const Json json = Json::parse(outcome.out);
    for (const Json& c : json["best"]) all.push_back(c["scaled_costs"]);
    return all;
  };
  EXPECT_EQ(scaled({"--microbatch", "4", "--microbatches", "2,4", "--no-recompute"}), (std::vector<bool>{false, false}));
  EXPECT_EQ(scaled({"--batch", "8", "--microbatches", "4", "--no-recompute"}), std::vector<bool>{true});
}

TEST(SearchCommand, RefusesWhatCannotBe) {
  EXPECT_EQ(searched({"--batch", "3", "--microbatches", "4"}).status, 2);
  EXPECT_EQ(call({"search", sample("gpt_small")}).status, 2);
  const Outcome unknown = call({"search", sample("gpt_small"), "--ranks", "2", "--cluster", "cpu-workstation", "--schedules", "1f2b"});
  EXPECT_EQ(unknown.status, 2);
  EXPECT_NE(unknown.err.find("Unknown schedule"), std::string::npos) << unknown.err;
  const Outcome both = searched({"--profile", "p.json"});
  EXPECT_EQ(both.status, 2) << "costs come from one place";
}

TEST(SearchCommand, TellsItsProgressInLinesOfJson) {
  const Outcome outcome = searched({"--batch", "8", "--progress", "json"});
  ASSERT_EQ(outcome.status, 0);
  EXPECT_EQ(Json::parse(outcome.err.substr(0, outcome.err.find('\n')))["task"], "search gpt_small");
}

}  // namespace
}  // namespace pw::test
