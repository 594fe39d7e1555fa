// What the command line understands, what it says first, what it assumes, and the version of what it prints.

#include <gtest/gtest.h>

#include <array>
#include <csignal>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "tests/app/cli/call.h"

namespace pw::test {
namespace {

using Json = nlohmann::json;

/// A plan of gpt_small with estimated costs, and more words.
Outcome planned(const std::vector<std::string>& more) {
  std::vector<std::string> words{"plan", sample("gpt_small"), "--cluster", "h100-nvlink"};
  words.insert(words.end(), more.begin(), more.end());
  return call(words);
}

TEST(Words, TorchsScheduleNamesAreUnderstoodEverywhere) {
  const Folder folder;
  EXPECT_EQ(call({"schedule", "ScheduleInterleaved1F1B", "--ranks", "2", "--microbatches", "4"}).out,
            call({"schedule", "interleaved-1f1b", "--ranks", "2", "--microbatches", "4"}).out);
  const std::vector<std::string> simulated{"simulate", "--schedule", "ZBVZeroBubble", "--ranks", "2", "--microbatches", "4", "--json"};
  EXPECT_EQ(call(simulated).status, 0);
  const std::string plan = folder.file("plan.json");
  const Outcome outcome = planned({"--ranks", "2", "--schedule", "GPipe", "--out", plan});
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_NE(outcome.out.find("2 ranks, gpipe, "), std::string::npos) << outcome.out;
  EXPECT_EQ(Json::parse(contentOf(plan))["schedule"]["name"], "gpipe");
  const Outcome searched = call({"search", sample("gpt_small"), "--ranks", "2", "--batch", "4", "--cluster", "h100-nvlink", "--schedules",
                                 "1F1B,LoopedBFS", "--json"});
  ASSERT_EQ(searched.status, 0) << searched.err;
  const std::string best = Json::parse(searched.out)["best"][0]["schedule"];
  EXPECT_TRUE(best == "1f1b" || best == "looped-bfs") << best;
}

TEST(Words, NearNamesAreOffered) {
  EXPECT_NE(planned({"--ranks", "2", "--schedule", "interleved-1f1b"}).err.find("did you mean interleaved-1f1b"), std::string::npos);
  EXPECT_NE(call({"serch", sample("gpt_small")}).err.find("did you mean search"), std::string::npos);
}

TEST(Words, AMissingFileComesBeforeAMissingOption) {
  for (const std::vector<std::string>& words : std::vector<std::vector<std::string>>{{"plan", "nosuch.pt2"},
                                                                                     {"search", "nosuch.pt2"},
                                                                                     {"profile", "nosuch.pt2", "--estimate", "nosuch"},
                                                                                     {"plan", "nosuch.pt2", "--optimizer", "nosuch"}}) {
    const Outcome outcome = call(words);
    EXPECT_EQ(outcome.status, 2);
    EXPECT_NE(outcome.err.find("nosuch.pt2"), std::string::npos) << outcome.err;
    EXPECT_EQ(outcome.err.find("--ranks"), std::string::npos) << outcome.err;
    EXPECT_EQ(outcome.err.find("--microbatches"), std::string::npos) << outcome.err;
  }
}

TEST(Words, APlanHasFourMicrobatchesForEachRankUnlessTold) {
  const Outcome outcome = planned({"--ranks", "2"});
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_NE(outcome.out.find("8 microbatches (by default) of "), std::string::npos) << outcome.out;
  EXPECT_NE(planned({"--ranks", "2", "--batch", "6"}).out.find("6 microbatches (by default) of 1"), std::string::npos);
  EXPECT_EQ(planned({"--ranks", "2", "--microbatches", "4"}).out.find("by default"), std::string::npos);
}

TEST(Words, EveryJsonDocumentHasAVersion) {
  const Folder folder;
  const std::string plan = folder.file("plan.json"), csv = folder.file("s.csv");
  ASSERT_EQ(planned({"--ranks", "2", "--out", plan}).status, 0);
  ASSERT_EQ(call({"schedule", "1f1b", "--ranks", "2", "--microbatches", "4", "--out", csv}).status, 0);
  const std::string model = sample("gpt_small");
  for (const std::vector<std::string>& words : std::vector<std::vector<std::string>>{
           {"inspect", model, "--json"},
           {"check", csv, "--json"},
           {"profile", model, "--estimate", "h100-nvlink", "--json"},
           {"plan", model, "--ranks", "2", "--cluster", "h100-nvlink", "--json"},
           {"simulate", plan, "--json"},
           {"search", model, "--ranks", "2", "--batch", "4", "--cluster", "h100-nvlink", "--schedules", "1f1b", "--json"},
           {"devices", "--json"}}) {
    const Outcome outcome = call(words);
    ASSERT_EQ(outcome.status, 0) << words.front() << ": " << outcome.err;
    EXPECT_EQ(Json::parse(outcome.out)["version"], 1) << words.front();
  }
}

TEST(Planning, CountsSixteenBitsAndTheOptimizer) {
  const auto stepOf = [](const Outcome& outcome) { return Json::parse(outcome.out); };
  const auto peakOf = [](const Json& json) { return json["ranks"][0]["peak_bytes"].get<std::int64_t>(); };
  const std::vector<std::string> shape{"--ranks", "2", "--json", "--optimizer"};
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.begin(), shape.begin(), shape.end());
    const Outcome outcome = planned(more);
    EXPECT_EQ(outcome.status, 0) << outcome.err;
    return stepOf(outcome);
  };
  const Json sgd = with({"sgd"}), momentum = with({"sgd", "--momentum", "0.9"}), adam = with({"adamw"}),
             half = with({"adamw", "--precision", "bf16"});
  EXPECT_EQ(peakOf(adam) - peakOf(sgd), 2 * (peakOf(momentum) - peakOf(sgd))) << "two copies and one";
  EXPECT_GT(peakOf(adam), peakOf(sgd));
  EXPECT_LT(half["makespan_ns"], adam["makespan_ns"]);
  const std::string limit = std::to_string((peakOf(sgd) + peakOf(adam)) / 2) + "B";
  EXPECT_EQ(planned({"--ranks", "2", "--optimizer", "sgd", "--memory-limit", limit}).status, 0);
  EXPECT_EQ(planned({"--ranks", "2", "--optimizer", "adamw", "--memory-limit", limit}).status, 1);
  const Outcome shared = planned({"--ranks", "2", "--replicas", "8", "--optimizer", "adamw", "--zero1", "--memory-limit", limit});
  EXPECT_EQ(shared.status, 0) << shared.err;
  EXPECT_EQ(planned({"--ranks", "2", "--optimizer", "adamw", "--momentum", "0.9"}).status, 2);
}

// gpt_small by hand: 4 layers, 32 tokens of width 64, 256 words. A linear layer of a × b takes 2 · 32 · a · b FLOPs a sample.
TEST(Planning, TellsSamplesTokensAndFlopsPerSecond) {
  constexpr double kLayer =
      2.0 * 32 * 64 * (192 + 64 + 256 + 256) + 2 * 2.0 * 32 * 32 * 64;  // linear layers, and both products of attention
  constexpr double kForward = 4 * kLayer + 2.0 * 32 * 64 * 256;
  const Folder folder;
  const std::string plan = folder.file("plan.json");
  for (const auto& [schedule, passes] : {std::pair{"1f1b", 3}, std::pair{"forward-only", 1}}) {
    const Outcome outcome =
        planned({"--ranks", "2", "--replicas", "2", "--microbatches", "4", "--schedule", schedule, "--json", "--out", plan});
    ASSERT_EQ(outcome.status, 0) << outcome.err;
    for (const Json& json : {Json::parse(outcome.out), Json::parse(call({"simulate", plan, "--json"}).out)}) {
      const double seconds = json["step_ns"].get<double>() * 1e-9, samples = 2 * 4 * 2;  // replicas, microbatches, their size
      const auto expect = [&](const char* key, double value) {
        EXPECT_NEAR(json[key].get<double>() / value, 1, 1e-9) << schedule << " " << key;
      };
      expect("samples_per_second", samples / seconds);
      expect("tokens_per_second", samples * 32 / seconds);
      expect("model_flops_per_second", passes * kForward * samples / seconds);
      expect("tflops_per_device", passes * kForward * samples / seconds / 4 * 1e-12);
    }
  }
  const Json alone = Json::parse(call({"simulate", "--schedule", "1f1b", "--ranks", "2", "--microbatches", "4", "--json"}).out);
  for (const char* key : {"samples_per_second", "tokens_per_second", "model_flops_per_second", "tflops_per_device"})
    EXPECT_FALSE(alone.contains(key)) << key << " of a schedule without a model";
}

TEST(Planning, RefusesToMeasureWithFarMoreProcessesThanCores) {
  const Outcome many = call({"profile", sample("gpt_small"), "--ranks", "1000"});
  EXPECT_EQ(many.status, 2);
  EXPECT_NE(many.err.find("1000 are too many for"), std::string::npos) << many.err;
}

/// Starts the program with stderr in a pipe and stdout in a file, and interrupts it once its progress says that some of the work is done.
Outcome interrupted(std::vector<std::string> arguments) {
  const Folder folder;
  const std::string out = folder.file("out");
  arguments.insert(arguments.begin(), PIPEWRIGHT);
  std::vector<char*> argv;
  for (std::string& argument : arguments) argv.push_back(argument.data());
  argv.push_back(nullptr);
  std::array<int, 2> ends{};
  if (pipe(ends.data()) != 0) throw std::runtime_error("no pipe");
  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  posix_spawn_file_actions_addopen(&files, STDOUT_FILENO, out.c_str(), O_WRONLY | O_CREAT, 0600);
  posix_spawn_file_actions_adddup2(&files, ends[1], STDERR_FILENO);
  posix_spawn_file_actions_addclose(&files, ends[0]);
  posix_spawnattr_t attributes;  // a test under nohup ignores the signal
  posix_spawnattr_init(&attributes);
  sigset_t interrupts;
  sigemptyset(&interrupts);
  sigaddset(&interrupts, SIGINT);
  posix_spawnattr_setsigdefault(&attributes, &interrupts);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGDEF);
  pid_t child = 0;
  const int failed = posix_spawn(&child, PIPEWRIGHT, &files, &attributes, argv.data(), environ);
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&files);
  close(ends[1]);
  if (failed != 0) throw std::runtime_error("cannot run " PIPEWRIGHT);
  std::FILE* lines = fdopen(ends[0], "r");
  std::string err;
  std::array<char, 1024> line{};
  while (std::fgets(line.data(), static_cast<int>(line.size()), lines) != nullptr) {
    err += line.data();
    const Json json = Json::parse(line.data(), nullptr, false);
    if (json.is_object() && json["done"] > 0 && json["done"] < json["all"]) kill(child, SIGINT);
  }
  std::fclose(lines);
  int status = 0;
  waitpid(child, &status, 0);
  return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, contentOf(out), err};
}

TEST(Searching, ShowsTheBestSoFarWhenItIsInterrupted) {
  const Outcome outcome = interrupted(
      {"search", sample("gpt_small"), "--ranks", "4", "--batch", "16384", "--cluster", "h100-nvlink", "--progress", "json", "--json"});
  ASSERT_EQ(outcome.status, 1) << outcome.err;
  const Json json = Json::parse(outcome.out);
  EXPECT_EQ(json["cancelled"], true);
  EXPECT_FALSE(json["best"].empty());
  EXPECT_NE(outcome.err.find("Interrupted: not all plans were tried"), std::string::npos) << outcome.err;
}

}  // namespace
}  // namespace pw::test
