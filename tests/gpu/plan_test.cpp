#include <gmock/gmock.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "backends/host/installation.h"
#include "backends/resources/resources.h"
#include "simulator/model/graph_facts.h"
#include "simulator/trace/trace_csv.h"
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
    // Halves of a model, one without weights, and a large one.
    if (entry.path().extension() == ".pt2" && !name.starts_with("two_part") && !name.ends_with("_meta") && name != "gpt_25m")
      names.push_back(name);
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

/// The JSON document after notes on stderr.
Json jsonOf(const Result& result) {
  const std::size_t begin = result.output.find('{');
  return Json::parse(result.output.substr(begin == std::string::npos ? 0 : begin), nullptr, false);
}

/// Losses of a run of these arguments; empty, and the test fails, where it fails.
std::vector<double> lossesOf(const std::string& arguments) {
  const Result run = call("run " + arguments + " --json");
  const Json result = jsonOf(run);
  const bool good = run.status == 0 && result.is_object() && result.contains("losses");
  EXPECT_TRUE(good) << arguments << ": " << run.output;
  return good ? result["losses"].get<std::vector<double>>() : std::vector<double>();
}

/// Of an evaluation, which has no dropout; the test fails where it fails.
double evaluatedLossOf(const std::string& arguments) {
  const Result run = call("run " + arguments + " --eval --json");
  const Json result = jsonOf(run);
  const bool good = run.status == 0 && result.is_object() && result.contains("loss");
  EXPECT_TRUE(good) << arguments << ": " << run.output;
  return good ? result["loss"].get<double>() : 0;
}

/// `relative` of each expected number.
void expectNear(const std::vector<double>& actual, const std::vector<double>& expected, double relative) {
  ASSERT_EQ(actual.size(), expected.size());
  for (std::size_t i = 0; i < expected.size(); ++i)
    EXPECT_NEAR(actual[i], expected[i], relative * std::abs(expected[i]) + 1e-6) << "step " << i;
}

std::string pathOf(const std::string& sample) { return (std::filesystem::path(resourceFolder()) / "models" / (sample + ".pt2")).string(); }

class GpuPlan : public test::Gpu {
 protected:
  /// Writes a plan by estimated times; its path, or nothing where the model cannot be cut so.
  std::string planFor(const std::string& sample, const std::string& schedule, int ranks, const std::string& more = "--microbatches 4") {
    const std::string path = folder_.file("plan_" + std::to_string(plans_++) + ".json");
    const Result made = call("plan " + pathOf(sample) + " --cluster h100-nvlink --schedule " + schedule + " --ranks " +
                             std::to_string(ranks) + " " + more + " --out " + path);
    return made.status == 0 ? path : std::string();
  }

  test::Folder folder_;

 private:
  int plans_ = 0;
};

class GpuRank : public GpuPlan, public testing::WithParamInterface<std::string> {};
INSTANTIATE_TEST_SUITE_P(Of, GpuRank, testing::ValuesIn(samples()));

TEST_P(GpuRank, AloneHasTheLossesOfTheCpu) {
  const std::string plan = planFor(GetParam(), "gpipe", 1);
  ASSERT_NE(plan, "");
  const ModelGraph graph = loadModel({pathOf(GetParam())});
  if (std::ranges::any_of(graph.nodes, isRandomOperator)) {  // a GPU draws other numbers than a CPU: what it does without them
    expectNear({evaluatedLossOf(plan + " --backend nccl")}, {evaluatedLossOf(plan)}, 1e-4);
    return;
  }
  const std::vector<double> cpu = lossesOf(plan + " --steps 3");
  ASSERT_EQ(cpu.size(), 3U);
  expectNear(lossesOf(plan + " --steps 3 --backend nccl"), cpu, 1e-4);
}

class GpuGraphs : public GpuPlan, public testing::WithParamInterface<std::tuple<std::string, std::string>> {};
INSTANTIATE_TEST_SUITE_P(Of, GpuGraphs,
                         testing::Combine(testing::Values("gpt_small", "vit_small", "resnet18_narrow"),
                                          testing::Values("gpipe", "1f1b", "zb-h1")));

TEST_P(GpuGraphs, HaveTheLossesOfOperatorsByThemselves) {
  const auto& [sample, schedule] = GetParam();
  const std::string plan = planFor(sample, schedule, 2);
  ASSERT_NE(plan, "");
  const std::string run = plan + " --steps 8 --backend nccl --optimizer adamw --lr 1e-3";  // graphs are recorded after the first steps
  const Result recorded = call("run " + run);
  EXPECT_EQ(recorded.output.find("without CUDA graphs"), std::string::npos) << recorded.output;
  const std::vector<double> single = lossesOf(run + " --no-graphs");
  ASSERT_EQ(single.size(), 8U);
  EXPECT_NE(single.front(), single.back()) << "a graph that computes the first step again would not be seen else";
  expectNear(lossesOf(run), single, 1e-5);
}

/// A sample under a schedule; each a test of its own, so that they can run side by side.
class GpuSample : public GpuPlan, public testing::WithParamInterface<std::tuple<std::string, std::string>> {};
INSTANTIATE_TEST_SUITE_P(Of, GpuSample,
                         testing::Combine(testing::ValuesIn(samples()), testing::Values("gpipe", "1f1b", "interleaved-1f1b", "zbv")));

TEST_P(GpuSample, OfSeveralRanksTakesTheStepOfOne) {
  const auto& [sample, schedule] = GetParam();
  for (const int ranks : {1, 2, 4}) {
    const std::string plan = planFor(sample, schedule, ranks);
    ASSERT_NE(plan, "") << ranks << " ranks";
    SCOPED_TRACE(std::to_string(ranks) + " ranks");
    const Result run = call("run " + plan + " --verify --backend nccl");
    EXPECT_EQ(run.status, 0) << run.output;
  }
}

TEST_F(GpuPlan, WithReplicasAndSharedParametersTakesTheStepOfOne) {
  const std::string plan = planFor("gpt_small", "1f1b", 2, "--replicas 2 --microbatches 4");
  ASSERT_NE(plan, "");
  const Result run = call("run " + plan + " --verify --backend nccl");
  EXPECT_EQ(run.status, 0) << run.output;
}

class GpuReplicas : public GpuPlan, public testing::WithParamInterface<std::tuple<int, std::string>> {};
INSTANTIATE_TEST_SUITE_P(Of, GpuReplicas, testing::Combine(testing::Values(1, 2), testing::Values("replicate", "transmit")));

/// On one GPU without replicas: a CPU draws other numbers for dropout.
TEST_P(GpuReplicas, WithTiedWeightsHaveTheLossesOfOneRank) {
  const auto& [ranks, share] = GetParam();
  const std::string plan = planFor("hf_gpt2", "1f1b", ranks, "--replicas 2 --microbatches 4 --share " + share);
  const std::string alone = planFor("hf_gpt2", "1f1b", 1, "--microbatches 8");
  ASSERT_NE(plan, "");
  ASSERT_NE(alone, "");
  const std::string adamw = " --optimizer adamw --lr 1e-3 --clip-norm 1";
  for (const auto& [spread, optimizer] :
       std::vector<std::pair<std::string, std::string>>{{"", ""}, {" --zero1", ""}, {" --zero1", adamw}}) {
    SCOPED_TRACE(spread + optimizer);
    const std::vector<double> one = lossesOf(alone + " --steps 4 --backend nccl" + optimizer);
    ASSERT_EQ(one.size(), 4U);
    expectNear(lossesOf(plan + " --steps 4 --backend nccl" + spread + optimizer), one, optimizer == adamw ? 1e-3 : 1e-4);
  }
}

TEST_F(GpuPlan, TrainsInSixteenBits) {
  const std::string plan = planFor("gpt_small", "1f1b", 2);
  ASSERT_NE(plan, "");
  const std::string run = plan + " --steps 20 --backend nccl --optimizer adamw --lr 1e-3";
  const std::vector<double> full = lossesOf(run);
  ASSERT_EQ(full.size(), 20U);
  for (const std::string precision : {"bf16", "fp16"}) {
    SCOPED_TRACE(precision);
    const std::vector<double> losses = lossesOf(run + " --precision " + precision);
    ASSERT_EQ(losses.size(), 20U);
    EXPECT_NEAR(losses.front(), full.front(), 0.01 * full.front()) << "before any update";
    EXPECT_LT(losses.back(), losses.front() - 0.5 * (full.front() - full.back())) << "it falls at least half as far as in float32";
  }
}

TEST_F(GpuPlan, OfSplitBackwardsInSixteenBitsTakesTheStepsOfWholeOnes) {
  const std::string split = planFor("gpt_small", "zb-h1", 2), whole = planFor("gpt_small", "gpipe", 2);
  ASSERT_TRUE(!split.empty() && !whole.empty());
  const std::string options = " --steps 5 --backend nccl --lr 0.1 --precision bf16";
  const std::vector<double> expected = lossesOf(whole + options);
  ASSERT_EQ(expected.size(), 5U);
  expectNear(lossesOf(split + options), expected, 1e-3);
}

TEST_F(GpuPlan, InLockstepHasTimesInOrderOverHundredsOfCycles) {
  const std::string plan = planFor("gpt_small", "lockstep", 2, "--microbatches 200 --microbatch 1");
  const std::string store = folder_.file("lockstep.db"), csv = folder_.file("spans.csv");
  ASSERT_NE(plan, "");
  const Result run = call("run " + plan + " --steps 2 --backend nccl --store " + store);
  ASSERT_EQ(run.status, 0) << run.output;
  const Result written = call("export --store " + store + " --run 1 --step 1 --to csv --out " + csv);
  ASSERT_EQ(written.status, 0) << written.output;
  const Trace trace = parseSpanCsv(test::contentOf(csv), csv);  // refuses spans that end before they start
  constexpr Ns kMinute(60'000'000'000), kUncertain = 10'000;
  std::map<Rank, Ns> end;
  std::map<Rank, int> spans;
  std::vector<Span> computed;
  std::ranges::copy_if(trace.spans, std::back_inserter(computed), [](const Span& s) { return isCompute(s.kind); });
  std::ranges::stable_sort(computed, {}, &Span::start);
  for (const Span& span : computed) {
    ASSERT_THAT(span.start, testing::AllOf(testing::Ge(-kUncertain), testing::Le(kMinute)));
    ASSERT_THAT(span.end, testing::Le(kMinute));
    ASSERT_THAT(span.start, testing::Ge(spans[span.rank]++ == 0 ? span.start : end[span.rank] - kUncertain))
        << "a GPU computes one thing of a rank at a time";
    end[span.rank] = span.end;
  }
  EXPECT_THAT(spans, testing::ElementsAre(testing::Pair(Rank(0), 400), testing::Pair(Rank(1), 400)))
      << "a forward and a backward of each microbatch";
}

TEST_F(GpuPlan, IsRehearsedWithoutItsModel) {
  const std::string plan = planFor("gpt_small", "1f1b", 2);
  const Result run = call("run " + plan + " --synthetic --steps 3 --json --backend nccl");
  ASSERT_EQ(run.status, 0) << run.output;
  EXPECT_EQ(jsonOf(run).at("steps").size(), 3U);
}

/// Of two ranks: the one that waits for values of the other, and the one that waits for gradients.
class GpuJob : public GpuPlan, public testing::WithParamInterface<int> {};
INSTANTIATE_TEST_SUITE_P(Of, GpuJob, testing::Values(0, 1));

TEST_P(GpuJob, EndsSoonAfterARankWasKilled) {
  const std::string plan = planFor("gpt_small", "1f1b", 2), output = folder_.file("output"), store = folder_.file("killed.db");
  ASSERT_NE(plan, "");
  const pid_t job = fork();
  if (job == 0) {
    const std::string command = "exec " + pipewright() + " run " + plan + " --steps 100000 --backend nccl --store " + store + " --log " +
                                folder_.file("loss.csv") + " > " + output + " 2>&1";
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
  if (lines() < 4) kill(job, SIGTERM);  // no job outlives the test
  ASSERT_GE(lines(), 4) << test::contentOf(output);
  std::vector<pid_t> ranks;
  std::istringstream children(test::contentOf("/proc/" + std::to_string(job) + "/task/" + std::to_string(job) + "/children"));
  for (pid_t rank = 0; children >> rank;) ranks.push_back(rank);
  ASSERT_EQ(ranks.size(), 2U) << "the job has ranks";
  kill(ranks[static_cast<std::size_t>(GetParam())], SIGKILL);
  int status = 0;
  waitpid(job, &status, 0);
  EXPECT_NE(status, 0);
  EXPECT_THAT(test::contentOf(output), testing::HasSubstr("SIGKILL")) << "the cause, and not a deadline that passed";
  int records = 0;
  for (const int survivor : {0, 1}) {  // the other's is not there
    const std::string record = test::contentOf(store + ".flight-rank-" + std::to_string(survivor) + ".json");
    if (record.empty()) continue;
    ++records;
    const Json flight = Json::parse(record, nullptr, false);
    ASSERT_TRUE(flight.is_object()) << record;
    EXPECT_EQ(flight.at("rank"), survivor);
    EXPECT_FALSE(flight.at("entries").empty()) << "the operations of its last step";
  }
  EXPECT_EQ(records, 1) << "the rank that was left says what it waited for";
}

}  // namespace
}  // namespace pw
