#include <algorithm>
#include <filesystem>
#include <fstream>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "backends/store/migrations.h"
#include "backends/store/run_store.h"
#include "simulator/plan/plan.h"
#include "simulator/report/compare.h"
#include "simulator/report/metrics.h"
#include "tests/app/cli/call.h"
#include "tests/support/two_stages.h"

namespace pw::test {
namespace {

using Words = std::vector<std::string>;

/// The one JSON document on stdout; throws when there is anything else.
nlohmann::json parsed(const Outcome& outcome) { return nlohmann::json::parse(outcome.out); }

/// One sentence on stderr: a single line that ends in a full stop, after the program's name; nothing on stdout.
void expectSentence(const Outcome& outcome) {
  EXPECT_EQ(outcome.out, "");
  EXPECT_EQ(outcome.err.rfind("pipewright: ", 0), 0U) << outcome.err;
  EXPECT_EQ(std::count(outcome.err.begin(), outcome.err.end(), '\n'), 1) << outcome.err;
  ASSERT_GE(outcome.err.size(), 2U);
  EXPECT_EQ(outcome.err.substr(outcome.err.size() - 2), ".\n") << outcome.err;
}

/// 2 ranks, 2 microbatches, 1 ms forward, 2 ms backward.
Words gpipe(const Words& more) {
  Words words{"simulate", "--schedule", "gpipe", "--ranks", "2", "--microbatches", "2", "--forward", "1ms", "--backward", "2ms"};
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

TEST(CommandLine, HelpNamesEveryCommandAndNoCommandIsHelp) {
  const Outcome help = call({"--help"});
  EXPECT_EQ(help.status, 0);
  for (const char* command : {"inspect", "schedule", "check", "profile", "plan", "simulate", "search", "run", "compare", "calibrate",
                              "gate", "runs", "devices", "export", "demo"}) {
    EXPECT_NE(help.out.find("\n  " + std::string(command) + " "), std::string::npos) << command;
    EXPECT_EQ(call({command, "--help"}).status, 0) << command;
  }
  EXPECT_EQ(call({}).out, help.out);
  EXPECT_EQ(call({"help"}).out, help.out);
  EXPECT_EQ(call({"help", "search"}).out, call({"search", "--help"}).out);
  EXPECT_EQ(call({"--version"}).out.rfind("pipewright ", 0), 0U);
}

TEST(CommandLine, AnUnusableCallIsOneSentenceAndStatusTwo) {
  const Folder folder;
  const std::string text = folder.with("text", "no schedule");
  const Words calls[] = {{"fly"},
                         {"--fly"},
                         {"inspect"},
                         {"inspect", "missing.pt2"},
                         {"inspect", text},
                         {"inspect", "--depth", "x", text},
                         {"schedule", "1f1b"},
                         {"schedule", "1f1b", "--ranks", "2"},
                         {"schedule", "1f1b", "--ranks"},
                         {"schedule", "1f1b", "--ranks", "many", "--microbatches", "2"},
                         {"schedule", "1f1b", "--ranks", "5000", "--microbatches", "2"},
                         {"schedule", "1f1b", "--ranks", "4096", "--chunks", "1000000", "--microbatches", "2"},
                         {"schedule", "no-such", "--ranks", "2", "--microbatches", "2"},
                         {"schedule", "1f1b", "--fly"},
                         {"schedule", "1f1b", "--ranks", "2", "--microbatches", "2", "--lowered", "somehow"},
                         {"schedule", "zb-h1", "--ranks", "2", "--microbatches", "2", "--strict", "torch"},
                         {"schedule", "list", "--ranks", "2"},
                         {"schedule", "1f1b", "--ranks", "4", "--microbatches", "2", "--strict", "torch"},
                         {"schedule", "gpipe", "--ranks", "2", "--microbatches", "2", "--group", "2"},
                         {"check"},
                         {"check", "missing.csv"},
                         {"check", text},
                         {"check", "/"},
                         {"simulate"},
                         {"simulate", text},
                         {"simulate", text, "--csv", text},
                         {"simulate", text, "--ranks", "2"},
                         {"simulate", text, "--forward", "1ms"},
                         gpipe({"--latency", "5"}),
                         gpipe({"--input", "1ms,2ms,3ms"}),
                         gpipe({"--slow", "2=1.5"}),
                         gpipe({"--slow", "1"}),
                         gpipe({"--slow", "1=-2"}),
                         gpipe({"--slow", "0-2=2"}),
                         gpipe({"--slow", "0-0=2"}),
                         gpipe({"--sends", "pigeon"}),
                         gpipe({"--jitter", "-1"}),
                         gpipe({"--live-limit", "1,2,3"}),
                         gpipe({"--costs", text}),
                         gpipe({"--letters", "torch"}),
                         {"runs"},
                         {"runs", "--store", folder.file("none.db")},
                         {"runs", "--store", text},
                         {"compare", "--store", folder.file("none.db")},
                         {"compare", "--store", text, "--run", "0"}};
  for (const Words& words : calls) {
    std::string shown;
    for (const std::string& word : words) shown += word + " ";
    SCOPED_TRACE(shown);
    const Outcome outcome = call(words);
    EXPECT_EQ(outcome.status, 2) << outcome.err;
    expectSentence(outcome);
  }
}

TEST(CommandLine, AnOutputThatCannotBeWrittenIsOneSentenceAndStatusOne) {
  const Outcome outcome = call({"schedule", "1f1b", "--ranks", "2", "--microbatches", "2", "--out", "/no/such/folder/f.csv"});
  EXPECT_EQ(outcome.status, 1);
  expectSentence(outcome);
}

TEST(Schedule, Prints1f1bAsTorchCsv) {
  // Rank 0 warms up with R − 1 = 1 forward; rank 1 alternates at once.
  const std::string csv = "0F0,0F1,0B0,0F2,0B1,0B2\r\n1F0,1B0,1F1,1B1,1F2,1B2\r\n";
  const Outcome outcome = call({"schedule", "1f1b", "--ranks", "2", "--microbatches", "3"});
  EXPECT_EQ(outcome.status, 0);
  EXPECT_EQ(outcome.out, csv);

  const Folder folder;
  EXPECT_EQ(call({"schedule", "1f1b", "--ranks", "2", "--microbatches", "3", "--out", folder.file("f.csv")}).out, "");
  EXPECT_EQ(contentOf(folder.file("f.csv")), csv);
}

TEST(Schedule, ListsEveryGenerator) {
  const Outcome outcome = call({"schedule", "list"});
  EXPECT_EQ(outcome.status, 0);
  for (const Generator& generator : generators()) EXPECT_NE(outcome.out.find(generator.name), std::string::npos) << generator.name;
}

TEST(Check, AcceptsWhatScheduleWrites) {
  const Folder folder;
  EXPECT_EQ(call({"schedule", "gpipe", "--ranks", "3", "--microbatches", "4", "--out", folder.file("f.csv")}).status, 0);
  const Outcome outcome = call({"check", folder.file("f.csv"), "--json"});
  EXPECT_EQ(outcome.status, 0);
  EXPECT_EQ(parsed(outcome)["valid"], true);
  EXPECT_TRUE(parsed(outcome)["problems"].empty());
  EXPECT_EQ(call({"check", folder.file("f.csv")}).status, 0);
}

TEST(Check, NamesRankPositionAndActionOfAProblem) {
  const Folder folder;
  const std::string file = folder.with("f.csv", "0B0,0F0\n1F0,1B0\n");  // backward before forward
  const Outcome outcome = call({"check", file, "--json"});
  EXPECT_EQ(outcome.status, 1);
  const auto problems = parsed(outcome)["problems"];
  ASSERT_FALSE(problems.empty());
  EXPECT_EQ(problems[0]["rank"], 0);
  EXPECT_EQ(problems[0]["position"], 0);
  EXPECT_EQ(problems[0]["action"], "0B0");
  EXPECT_EQ(call({"check", file}).status, 1);
  EXPECT_EQ(call({"simulate", "--csv", file}).status, 1);
  EXPECT_EQ(parsed(call({"simulate", "--csv", file, "--json"}))["problems"], problems);
}

TEST(Check, SaysNoToADeadlockThatOnlyBlockingSendsHave) {
  // Rank 0 sends F1 before it receives B0, rank 1 sends B0 before it receives F1: with blocking sends both wait.
  const Folder folder;
  const std::string file =
      folder.with("f.csv", "0F0,0SEND_F0,0F1,0SEND_F1,0RECV_B0,0B0,0RECV_B1,0B1\n1RECV_F0,1F0,1B0,1SEND_B0,1RECV_F1,1F1,1B1,1SEND_B1\n");
  const Outcome outcome = call({"check", file, "--json"});
  EXPECT_EQ(outcome.status, 1);
  EXPECT_EQ(parsed(outcome)["valid"], false);
  ASSERT_EQ(parsed(outcome)["problems"].size(), 2U);
  EXPECT_EQ(parsed(outcome)["problems"][0]["stops"], "one_channel");
  EXPECT_EQ(parsed(outcome)["problems"][1]["stops"], "blocking_sends");
  EXPECT_NE(call({"check", file}).out.find("it can run only with buffered sends"), std::string::npos);
  // So it can be simulated in the background, but not where its sends would block.
  EXPECT_EQ(call({"simulate", "--csv", file}).status, 0);
  EXPECT_EQ(call({"simulate", "--csv", file, "--sends", "posted"}).status, 0);
  EXPECT_EQ(call({"simulate", "--csv", file, "--sends", "one-channel"}).status, 1);
  EXPECT_EQ(call({"simulate", "--csv", file, "--sends", "blocking"}).status, 1);
}

TEST(Simulate, GivesTheClosedFormOfGPipe) {
  // (M + R − 1)(F + B) = 3 · 3 ms, of which each rank is busy M (F + B) = 6 ms.
  const auto json = parsed(call(gpipe({"--json"})));
  EXPECT_EQ(json["makespan_ns"], 9'000'000);
  EXPECT_EQ(json["lower_bound_ns"], 9'000'000);
  EXPECT_EQ(json["actions"], 2 * 2 * 2);
  EXPECT_DOUBLE_EQ(json["bubble_fraction"].get<double>(), 1.0 / 3);
  ASSERT_EQ(json["ranks"].size(), 2U);
  EXPECT_EQ(json["ranks"][1]["busy_ns"], 6'000'000);
  EXPECT_EQ(json["stages"][0]["backward_ns"], 2'000'000);
}

TEST(Simulate, AppliesLatencyAndASlowRank) {
  // A forward message before the first and a backward one after the last action of rank 1.
  EXPECT_EQ(parsed(call(gpipe({"--json", "--latency", "1ms"})))["makespan_ns"], 11'000'000);
  // Rank 1 twice as slow: F0 of rank 0 (1), then 2 forwards of 2 and 2 backwards of 4 on rank 1, then B1 of rank 0 (2).
  EXPECT_EQ(parsed(call(gpipe({"--json", "--slow", "1=2"})))["makespan_ns"], 15'000'000);
}

TEST(Simulate, TakesTwiceTheForwardWhereNoBackwardIsGiven) {
  const auto json = parsed(call({"simulate", "--schedule", "gpipe", "--ranks", "2", "--microbatches", "2", "--forward", "2ms", "--json"}));
  EXPECT_EQ(json["makespan_ns"], 3 * (2 + 4) * 1'000'000);
}

TEST(Simulate, DrawsTheTimelineOnlyWhereAskedTo) {
  EXPECT_EQ(call(gpipe({})).out.find("│"), std::string::npos);
  EXPECT_NE(call(gpipe({"--text"})).out.find("rank 1 │"), std::string::npos);
}

TEST(Simulate, WritesATraceForPerfetto) {
  const Folder folder;
  EXPECT_EQ(call(gpipe({"--trace", folder.file("t.json")})).status, 0);
  EXPECT_TRUE(nlohmann::json::parse(contentOf(folder.file("t.json"))).contains("traceEvents"));
}

/// One microbatch through two stages, F on rank 0 and B on rank 1 taking half the duration each.
Trace traceOf(Ns duration) {
  return {2,
          {{Rank(0), SpanKind::Forward, Stage(0), Microbatch(0), Rank(0), 0, 0, duration / 2},
           {Rank(1), SpanKind::Backward, Stage(1), Microbatch(0), Rank(1), 0, duration / 2, duration}},
          {}};
}

RunRecord recordOf(const std::vector<Ns>& steps) {
  RunRecord run;
  run.startedAt = "2026-11-21T12:00:00Z";
  run.transport = Transport::Gloo;
  run.plan = planOfTwoStages();
  run.predicted = traceOf(1'000);
  for (std::size_t s = 0; s < steps.size(); ++s) run.steps.push_back({static_cast<int>(s), 1.0, traceOf(steps[s])});
  return run;
}

TEST(Simulate, PredictsAPlanFromItsOwnCosts) {
  const Folder folder;
  const Plan plan = planOfTwoStages();
  const Outcome outcome = call({"simulate", folder.with("plan.json", toJson(plan)), "--json"});
  EXPECT_EQ(parsed(outcome)["makespan_ns"], metricsOf(simulate(plan.schedule, plan.costs)).makespan.value);
  EXPECT_EQ(parsed(outcome)["stages"][1]["forward_ns"], 10);
}

/// A store of two runs: the first took 1200 ns in its median step after the warm-up, the second 1800 ns.
std::string storeOfTwoRuns(const Folder& folder) {
  RunStore store(folder.file("runs.db"), RunStore::Mode::ReadWrite);
  static_cast<void>(store.add(recordOf({9'000, 1'100, 1'300, 1'200})));
  static_cast<void>(store.add(recordOf({9'000, 1'800})));
  return folder.file("runs.db");
}

TEST(Compare, TakesTheMedianStepAfterTheWarmUp) {
  const Folder folder;
  const std::string store = storeOfTwoRuns(folder);
  const auto json = parsed(call({"compare", "--store", store, "--run", "1", "--json"}));
  EXPECT_EQ(json["run_id"], 1);
  EXPECT_EQ(json["step"], 3);
  EXPECT_EQ(json["predicted_makespan_ns"], 1'000);
  EXPECT_EQ(json["measured_makespan_ns"], 1'200);
  EXPECT_DOUBLE_EQ(json["makespan_error"].get<double>(), 0.2);
  EXPECT_EQ(json["by_rank"].size(), 2U);
  EXPECT_EQ(parsed(call({"compare", "--store", store, "--json"}))["run_id"], 2) << "the newest";
  const std::string sentence = "Measured 20.0 % slower than predicted (1.20 µs, not 1.00 µs)";
  EXPECT_EQ(json["verdict"]["sentence"].get<std::string>().rfind(sentence, 0), 0U) << json["verdict"];
  const std::string text = call({"compare", "--store", storeOfTwoRuns(folder), "--run", "1", "--with", "2"}).out;
  EXPECT_NE(text.find("change"), std::string::npos) << text;
  EXPECT_EQ(text.find("error"), std::string::npos) << "one of them predicts the other";
}

/// A store of two runs that took so long [ns] in each of their steps after the warm-up, twelve of them, ± 1.
std::string storeOfAlikeSteps(const Folder& folder, const std::string& name, Ns step) {
  RunStore store(folder.file(name), RunStore::Mode::ReadWrite);
  std::vector<Ns> steps{9'000};
  for (std::int64_t i = 0; i < 12; ++i) steps.push_back(step + Ns(i % 3 - 1));
  for (int run = 0; run < 2; ++run) static_cast<void>(store.add(recordOf(steps)));
  return folder.file(name);
}

TEST(Gate, FailsWhereRunsGotSlowerThanTheBaseAndPassesTheOtherWay) {
  const Folder folder;
  const std::string base = storeOfAlikeSteps(folder, "base.db", 1'000), slow = storeOfAlikeSteps(folder, "slow.db", 1'100);
  const Outcome slower = call({"gate", "--store", slow, "--against", base, "--json"});
  EXPECT_EQ(slower.status, 1);
  EXPECT_EQ(nlohmann::json::parse(slower.out)["verdict"], "slower");
  EXPECT_NEAR(nlohmann::json::parse(slower.out)["step"]["slower"].get<double>(), 0.1, 1e-3);
  EXPECT_EQ(call({"gate", "--store", base, "--against", slow}).status, 0);
  EXPECT_EQ(call({"gate", "--store", slow, "--against", base, "--limit", "12%"}).status, 0) << "within the limit";
  const Outcome text = call({"gate", "--store", slow, "--against", base, "--limit", "5"});
  EXPECT_NE(text.out.find("Slower: "), std::string::npos) << text.out;
}

TEST(Gate, RefusesABaseWithoutSuchRuns) {
  const Folder folder;
  const std::string store = storeOfAlikeSteps(folder, "runs.db", 1'000);
  RunRecord run = recordOf({9'000, 1'000, 1'000});
  run.transport = Transport::Ucx;
  RunStore(folder.file("base.db"), RunStore::Mode::ReadWrite).add(run);
  const Outcome outcome = call({"gate", "--store", store, "--against", folder.file("base.db")});
  EXPECT_EQ(outcome.status, 2);
  EXPECT_NE(outcome.err.find("the newest differs in computed with: "), std::string::npos) << outcome.err;
  EXPECT_EQ(call({"gate", "--store", store, "--against", store, "--limit", "0"}).status, 2);
  EXPECT_EQ(call({"gate", "--store", store, "--against", store, "--run", "3"}).status, 2);
}

TEST(Compare, ShowsBothTimelinesOnOneScale) {
  const Folder folder;
  const Outcome outcome = call({"compare", "--store", storeOfTwoRuns(folder)});
  EXPECT_EQ(outcome.status, 0);
  const std::size_t first = outcome.out.find("┌"), second = outcome.out.find("┌", first + 1);
  ASSERT_NE(second, std::string::npos);
  const auto ruler = [&](std::size_t at) { return outcome.out.substr(at, outcome.out.find('\n', at) - at); };
  EXPECT_EQ(ruler(first), ruler(second));
  EXPECT_NE(outcome.out.find("+80.0 %"), std::string::npos);
  EXPECT_NE(outcome.out.find("\nMeasured 80.0 % slower than predicted (1.80 µs, not 1.00 µs)"), std::string::npos) << outcome.out;
}

TEST(Compare, ComparesTwoRuns) {
  const Folder folder;
  const auto json = parsed(call({"compare", "--store", storeOfTwoRuns(folder), "--run", "1", "--with", "2", "--json"}));
  EXPECT_EQ(json["with_run_id"], 2);
  EXPECT_DOUBLE_EQ(json["makespan_error"].get<double>(), 0.5);  // 1800 / 1200
  const std::string sentence = "Run 2 was 50.0 % slower than run 1 (1.80 µs, not 1.20 µs)";
  EXPECT_EQ(json["verdict"]["sentence"].get<std::string>().rfind(sentence, 0), 0U) << json["verdict"];
  const std::string text = call({"compare", "--store", storeOfTwoRuns(folder), "--run", "1", "--with", "2"}).out;
  EXPECT_NE(text.find("change"), std::string::npos) << text;
  EXPECT_EQ(text.find("error"), std::string::npos) << "one of them predicts the other";
}

TEST(Compare, RefusesARunWithoutStepsAndOneThatIsNotThere) {
  const Folder folder;
  const std::string path = storeOfTwoRuns(folder);
  static_cast<void>(RunStore(path, RunStore::Mode::ReadWrite).add(recordOf({})));
  for (const char* run : {"3", "7"}) {
    const Outcome outcome = call({"compare", "--store", path, "--run", run});
    EXPECT_EQ(outcome.status, 2) << run;
    expectSentence(outcome);
  }
}

TEST(Runs, OfANewerStoreAreListedAndComparedWithOneNote) {
  const Folder folder;
  const std::string store = storeOfTwoRuns(folder);
  // SQLite keeps user_version in bytes 60 to 63 of the file, big-endian; the WAL was written back when the store was closed.
  std::fstream file(store, std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(63);
  file.put(99);
  file.close();
  const std::string note = "pipewright: " + store + " is of a newer Pipewright (format 99, here " + std::to_string(kStoreVersion) +
                           "): its runs are shown as far as they are known here, and it takes no new ones; update Pipewright\n";
  for (const std::vector<std::string>& words : {std::vector<std::string>{"runs"}, {"compare"}, {"export", "--to", "csv"}}) {
    std::vector<std::string> all = words;
    all.insert(all.end(), {"--store", store});
    const Outcome outcome = call(all);
    EXPECT_EQ(outcome.status, 0) << words[0];
    EXPECT_EQ(outcome.err, note) << words[0];
    EXPECT_FALSE(outcome.out.empty()) << words[0];
  }
}

TEST(ClusterPreset, IsNotShadowedByAFileOfItsNameInTheCurrentFolder) {
  const Folder folder;
  const std::string preset = PW_SOURCE_DIR "/resources/clusters/cpu-workstation.json",
                    model = PW_SOURCE_DIR "/resources/models/gpt_small.pt2";
  const auto planned = [&](const std::string& cluster) {
    return call({"plan", model, "--ranks", "2", "--microbatches", "2", "--json", "--cluster", cluster});
  };
  const Outcome expected = planned(preset);
  ASSERT_EQ(expected.status, 0) << expected.err;
  static_cast<void>(folder.with("cpu-workstation", "no cluster"));
  static_cast<void>(folder.with("cpu-workstation+ethernet-25", "no cluster"));
  const std::filesystem::path before = std::filesystem::current_path();
  std::filesystem::current_path(folder.file(""));
  const Outcome named = planned("cpu-workstation"), asFile = planned("./cpu-workstation"), linked = planned("cpu-workstation+ethernet-25");
  std::filesystem::current_path(before);
  EXPECT_EQ(named.status, 0) << named.err;
  EXPECT_EQ(named.out, expected.out);
  EXPECT_EQ(linked.status, 0) << linked.err;
  EXPECT_EQ(asFile.status, 2);
  EXPECT_NE(asFile.err.find("./cpu-workstation is not a usable cluster"), std::string::npos) << asFile.err;
}

TEST(Runs, ListsWhatIsStoredOldestFirst) {
  const Folder folder;
  const std::string store = storeOfTwoRuns(folder);
  const auto runs = parsed(call({"runs", "--store", store, "--json"}))["runs"];
  ASSERT_EQ(runs.size(), 2U);
  EXPECT_EQ(runs[0]["run_id"], 1);
  EXPECT_EQ(runs[0]["step_count"], 4);
  EXPECT_EQ(runs[1]["schedule"], "1f1b");
  EXPECT_NE(call({"runs", "--store", store}).out.find("2026-11-21 12:00:00"), std::string::npos);
}

}  // namespace
}  // namespace pw::test
