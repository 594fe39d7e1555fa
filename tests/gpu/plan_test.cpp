#include <gmock/gmock.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "backends/resources.h"
#include "tests/gpu/gpu.h"
#include "tests/support/folder.h"

namespace pw {
namespace {

using Json = nlohmann::json;

std::string pipewright() { return (std::filesystem::path(ownPath()).parent_path() / "pipewright").string(); }

std::vector<std::string> samples() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(std::filesystem::path(resourceFolder()) / "models")) {
    const std::string name = entry.path().stem().string();
    // Halves of a model, and one without weights.
    if (entry.path().extension() == ".pt2" && !name.starts_with("two_part") && !name.ends_with("_meta")) names.push_back(name);
  }
  std::ranges::sort(names);
  return names;
}

struct Result {
  int status = -1;
  std::string output;  ///< both streams
};

Result call(const std::string& arguments) {
  Result result;
  FILE* const pipe = popen((pipewright() + " " + arguments + " 2>&1").c_str(), "r");
  std::array<char, 4096> part{};
  for (std::size_t n = 0; (n = fread(part.data(), 1, part.size(), pipe)) > 0;) result.output.append(part.data(), n);
  const int status = pclose(pipe);
  result.status = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  return result;
}

/// The JSON document behind notes on stderr.
Json jsonOf(const Result& result) {
  const std::size_t begin = result.output.find("{");
  return Json::parse(result.output.substr(begin == std::string::npos ? 0 : begin), nullptr, false);
}

std::string pathOf(const std::string& sample) { return (std::filesystem::path(resourceFolder()) / "models" / (sample + ".pt2")).string(); }

class GpuPlan : public test::Gpu {
 protected:
  /// Writes a plan; its path, or nothing where the model cannot be cut so.
  std::string planFor(const std::string& sample, const std::string& schedule, int ranks) {
    const std::string path = folder_.file(sample + "_" + schedule + "_" + std::to_string(ranks) + ".json");
    const Result made = call("plan " + pathOf(sample) + " --schedule " + schedule + " --ranks " + std::to_string(ranks) + " --microbatches 4 --out " + path);
    return made.status == 0 ? path : std::string();
  }

  test::Folder folder_;
};

TEST_F(GpuPlan, OfOneRankHasTheLossesOfTheCpu) {
  for (const std::string& sample : samples()) {
    SCOPED_TRACE(sample);
    const std::string plan = planFor(sample, "gpipe", 1);
    ASSERT_NE(plan, "");
    const Result gpu = call("run " + plan + " --steps 3 --json --backend nccl"), cpu = call("run " + plan + " --steps 3 --json");
    ASSERT_EQ(gpu.status, 0) << gpu.output;
    const Json measured = jsonOf(gpu), expected = jsonOf(cpu);
    ASSERT_EQ(measured.at("losses").size(), 3U);
    for (std::size_t i = 0; i < 3; ++i) {
      const double loss = expected.at("losses")[i].get<double>();
      EXPECT_NEAR(measured.at("losses")[i].get<double>(), loss, 1e-4 * std::abs(loss) + 1e-6) << "step " << i;
    }
  }
}

TEST_F(GpuPlan, OfSeveralRanksTakesTheStepOfOne) {
  int ran = 0;
  for (const std::string& sample : samples()) {
    for (const std::string schedule : {"gpipe", "1f1b", "interleaved-1f1b", "zbv"}) {
      for (const int ranks : {1, 2, 4}) {
        const std::string plan = planFor(sample, schedule, ranks);
        if (plan.empty()) continue;  // too few places to cut
        SCOPED_TRACE(sample + ", " + schedule + ", " + std::to_string(ranks) + " ranks");
        const Result run = call("run " + plan + " --verify --backend nccl");
        EXPECT_EQ(run.status, 0) << run.output;
        ++ran;
      }
    }
  }
  EXPECT_GT(ran, 20) << "samples can be cut in two and in four";
}

TEST_F(GpuPlan, WithReplicasAndSharedParametersTakesTheStepOfOne) {
  const std::string path = folder_.file("replicas.json");
  ASSERT_EQ(call("plan " + pathOf("gpt_small") + " --ranks 2 --replicas 2 --microbatches 4 --out " + path).status, 0);
  const Result run = call("run " + path + " --verify --backend nccl");
  EXPECT_EQ(run.status, 0) << run.output;
}

TEST_F(GpuPlan, IsRehearsedWithoutItsModel) {
  const std::string plan = planFor("gpt_small", "1f1b", 2);
  const Result run = call("run " + plan + " --synthetic --steps 3 --json --backend nccl");
  ASSERT_EQ(run.status, 0) << run.output;
  EXPECT_EQ(jsonOf(run).at("steps").size(), 3U);
}

TEST_F(GpuPlan, EndsSoonAfterARankWasKilled) {
  const std::string plan = planFor("gpt_small", "1f1b", 2), output = folder_.file("output");
  const pid_t job = fork();
  if (job == 0) {
    const std::string command = "exec " + pipewright() + " run " + plan + " --steps 100000 --backend nccl --log " + folder_.file("loss.csv") + " > " + output + " 2>&1";
    execl("/bin/sh", "sh", "-c", command.c_str(), nullptr);
    _exit(127);
  }
  // A few steps in: the loss log has lines.
  const auto began = std::chrono::steady_clock::now();
  const auto lines = [&] {
    std::ifstream file(folder_.file("loss.csv"));
    return std::count(std::istreambuf_iterator<char>(file), {}, '\n');
  };
  while (lines() < 4 && std::chrono::steady_clock::now() - began < std::chrono::minutes(3)) std::this_thread::yield();
  ASSERT_GE(lines(), 4) << test::contentOf(output);
  pid_t rank = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {  // a child of the job
    std::ifstream stat(entry.path() / "stat");
    std::string text((std::istreambuf_iterator<char>(stat)), {});
    const std::size_t name = text.rfind(')');
    if (name == std::string::npos || text.size() < name + 4) continue;
    if (std::stol(text.substr(name + 4)) == job) rank = std::max(rank, static_cast<pid_t>(std::stol(text)));
  }
  ASSERT_GT(rank, 0);
  const auto killed = std::chrono::steady_clock::now();
  kill(rank, SIGKILL);
  int status = 0;
  waitpid(job, &status, 0);
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - killed).count();
  EXPECT_NE(status, 0);
  EXPECT_LT(seconds, 2.0) << "a job must not wait for a rank that is gone";
  EXPECT_THAT(test::contentOf(output), testing::HasSubstr("killed")) << "the sentence names the cause";
}

}  // namespace
}  // namespace pw
