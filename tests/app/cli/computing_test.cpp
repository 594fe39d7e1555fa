// How ranks compute: options, what a plan remembers of its profile, and the way over the CUDA module, in whose place one stands that
// computes on the host.
#include <algorithm>
#include <filesystem>
#include <fstream>

#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include "backends/store/run_store.h"
#include "tests/app/cli/job.h"
#include "tests/support/whole_run.h"

namespace pw::test {
namespace {

using Json = nlohmann::json;
using testing::HasSubstr;

std::vector<double> lossesOf(const Outcome& outcome) {
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  return Json::parse(outcome.out).at("losses").get<std::vector<double>>();
}

Profile profileIn(const std::string& file) { return parseProfile(contentOf(file), file); }

TEST(Computing, OfAPlanIsThatOfItsProfile) {
  const Folder folder;
  const std::string plan = folder.file("plan.json"), store = folder.file("runs.db");
  ASSERT_EQ(finish({"plan", sample("gpt_small"), "--ranks", "2", "--microbatches", "4", "--precision", "bf16", "--out", plan}).status, 0);
  const Outcome asPlanned = finish({"run", plan, "--steps", "2", "--json", "--store", store}),
                asTraced = finish({"run", plan, "--steps", "2", "--json", "--precision", "traced", "--store", store}),
                named = finish({"run", plan, "--steps", "2", "--json", "--precision", "bf16"});
  EXPECT_EQ(lossesOf(asPlanned), lossesOf(named));
  EXPECT_NE(lossesOf(asPlanned), lossesOf(asTraced)) << "bfloat16 keeps 8 bits";
  EXPECT_THAT(complaintsOf(asPlanned), testing::Not(HasSubstr("planned")));
  EXPECT_THAT(
      complaintsOf(asTraced),
      HasSubstr(plan +
                " was planned from times on CPUs in bf16, and this run computes on CPUs as traced: predicted times are not its own"));
  const RunStore runs(store, RunStore::Mode::ReadOnly);
  EXPECT_EQ(runs.load(RunId(1)).transport, Transport::Ucx);
  EXPECT_EQ(runs.load(RunId(1)).facts.precision, DType::BFloat16);
  EXPECT_EQ(runs.load(RunId(2)).transport, Transport::Ucx);
  EXPECT_EQ(runs.load(RunId(2)).facts.precision, DType::Unknown);
  EXPECT_EQ(runs.load(RunId(1)).plan.profile.computing.precision, DType::BFloat16);
  expectRefusal(finish({"run", plan, "--verify"}), 2, {"--verify compares bits that bf16 rounds away", "--precision traced"});
}

TEST(Computing, SaysThatTimesWereEstimatedForAnotherPrecision) {
  const Folder folder;
  const std::string plan = planned(folder, {"gpt_small"}, {"--ranks", "2", "--microbatches", "2"});
  const std::string note = complaintsOf(finish({"run", plan, "--precision", "bf16", "--json", "--progress", "json"}));
  EXPECT_NE(note.find("was planned for computing as traced, and this run computes in bf16"), std::string::npos) << note;
}

TEST(Computing, IsRefusedWhereItMeansNothing) {
  const Folder folder;
  const std::string model = sample("gpt_small"), plan = planned(folder, {"gpt_small"}, {"--ranks", "2", "--microbatches", "2"});
  for (const char* const command : {"plan", "search"}) {
    Words words{command, model, "--ranks", "2", "--cluster", "h100-nvlink", "--threads", "2"};
    if (std::string(command) == "plan")
      words.insert(words.end(), {"--microbatches", "2"});
    else
      words.insert(words.end(), {"--batch", "8"});
    expectRefusal(finish(words), 2, {"--threads", "not measured now", "omit them"});
  }
  expectRefusal(finish({"profile", model, "--estimate", "h100-nvlink", "--device", "cpu"}), 2, {"not measured now"});
  expectRefusal(finish({"plan", model, "--microbatches", "2", "--tf32"}), 2, {"--tf32 is for GPUs", "--device cuda"});
  expectRefusal(finish({"plan", model, "--microbatches", "2", "--device", "cpu", "--no-graphs"}), 2, {"--no-graphs is for GPUs"});
  expectRefusal(finish({"plan", model, "--microbatches", "2", "--device", "tpu"}), 2, {"There is no device 'tpu'", "cuda:0"});
  expectRefusal(finish({"run", plan, "--no-graphs"}), 2, {"--no-graphs is for GPUs", "--backend nccl"});
}

TEST(Computing, FollowsTheThreadsToo) {
  const Folder folder;
  const std::string plan = folder.file("plan.json");
  ASSERT_EQ(finish({"plan", sample("gpt_small"), "--ranks", "1", "--microbatches", "2", "--threads", "2", "--out", plan}).status, 0);
  EXPECT_EQ(complaintsOf(finish({"run", plan, "--json"})), "");
  EXPECT_THAT(complaintsOf(finish({"run", plan, "--json", "--threads", "1"})),
              HasSubstr("on CPUs as traced by 2 threads, and this run computes on CPUs as traced by 1 thread:"));
  expectRefusal(finish({"plan", sample("gpt_small"), "--ranks", "1", "--microbatches", "2", "--cluster", "h100-nvlink", "--threads", "2"}),
                2, {"--threads"});
}

/// Weights in 16 bits are kept beside the float32 ones.
TEST(Computing, CountsTheMemoryOfCopiesInSixteenBits) {
  const Folder folder;
  const std::string plan = folder.file("plan.json"), store = folder.file("runs.db");
  ASSERT_EQ(finish({"plan", sample("gpt_small"), "--ranks", "2", "--microbatches", "4", "--precision", "bf16", "--split",
                    "blocks.2.attention.query_key_value:end", "--out", plan})
                .status,
            0)
      << "times of a busy machine may balance elsewhere";
  ASSERT_EQ(finish({"run", plan, "--steps", "3", "--store", store}).status, 0);
  const RunRecord run = wholeRun(store);
  const auto peaks = [](const Trace& trace) {
    std::vector<double> most(2);
    for (const MemorySample& sample : trace.memory)
      most[sample.rank.index()] = std::max(most[sample.rank.index()], static_cast<double>(sample.bytes));
    return most;
  };
  const auto predicted = peaks(run.predicted), measured = peaks(run.steps.back().measured);
  for (const std::size_t r : {0U, 1U}) EXPECT_NEAR(measured[r], predicted[r], 0.05 * predicted[r]) << "rank " << r;
}

TEST(Computing, IsTheSameInEvaluations) {
  const Folder folder;
  for (const char* const model : {"gpt_small", "resnet18_narrow", "hf_bert"}) {
    const std::string plan = planned(folder, {model}, {"--ranks", "2", "--microbatches", "2"});
    const auto loss = [&](const char* precision) {
      const Outcome outcome = finish({"run", plan, "--eval", "--outputs", folder.file("outputs.pt"), "--precision", precision, "--json"});
      EXPECT_EQ(outcome.status, 0) << outcome.err;
      return outcome.status == 0 ? Json::parse(outcome.out).at("loss").get<double>() : 0;
    };
    const double exact = loss("traced");
    EXPECT_NEAR(loss("bf16"), exact, 0.01 * exact) << model;
    EXPECT_NEAR(loss("fp16"), exact, 0.01 * exact) << model;
  }
  expectRefusal(finish({"run", folder.file("plan.json"), "--eval", "--store", folder.file("runs.db")}), 2, {"--eval", "--store"});
}

TEST(Computing, OfAllProfilesOfASearchIsTheSame) {
  const Folder folder;
  const std::string model = sample("gpt_small");
  const auto profile = [&](const std::string& name, const char* microbatch, const char* precision) {
    EXPECT_EQ(finish({"profile", model, "--microbatch", microbatch, "--precision", precision, "--out", folder.file(name)}).status, 0);
    return folder.file(name);
  };
  const std::string two = profile("two", "2", "traced"), lower = profile("lower", "2", "bf16"), four = profile("four", "4", "bf16");
  const Words search{"search", model, "--ranks", "2", "--batch", "8", "--profile"};
  const auto with = [&](const std::string& profiles) {
    Words words = search;
    words.push_back(profiles);
    return finish(words);
  };
  expectRefusal(with(two + "," + lower), 2, {two, lower, "both of microbatch 2"});
  expectRefusal(with(two + "," + four), 2, {two + " was measured on CPUs as traced", four + " on CPUs in bf16"});
  EXPECT_THAT(with(four).out, HasSubstr("in bf16"));
}

/// A copy of the program on a machine that seems to have two GPUs.
class OnGpus : public testing::Test {
 protected:
  OnGpus() {
    for (const char* const folder : {"bin", "lib"}) std::filesystem::create_directories(files_.file(folder));
    options_.program = files_.file("bin/pipewright");
    std::filesystem::copy_file(PIPEWRIGHT, options_.program);
    std::filesystem::copy_file(FAKE_CUDA_MODULE, files_.file("lib/libpw_cuda.so"));
    const auto modules = std::filesystem::path(PIPEWRIGHT).parent_path().parent_path() / "lib";
    for (const char* const module : {"libpw_torch.so", "libpw_ucx.so"})
      std::filesystem::create_symlink(modules / module, files_.file(std::string("lib/") + module));
    const char* const path = std::getenv("LD_LIBRARY_PATH");
    options_.environment = {{"FAKE_NVML", "nvlink"},
                            {"LD_LIBRARY_PATH", FAKE_NVML_FOLDER + (path == nullptr ? std::string() : std::string(":") + path)},
                            {"PIPEWRIGHT_RESOURCES", PW_SOURCE_DIR "/resources"},
                            {"CUDA_VISIBLE_DEVICES", "0,1"}};
  }

  [[nodiscard]] Outcome call(const Words& words) const { return finish(words, options_); }
  [[nodiscard]] std::string file(const std::string& name) const { return files_.file(name); }

 private:
  Folder files_;
  JobOptions options_;
};

TEST_F(OnGpus, APlanIsMeasuredThereAndRunsThere) {
  const std::string plan = file("plan.json"), store = file("runs.db");
  const Outcome planning = call({"plan", sample("gpt_small"), "--device", "cuda", "--tf32", "--microbatches", "4", "--out", plan});
  ASSERT_EQ(planning.status, 0) << planning.err;
  EXPECT_THAT(planning.out, HasSubstr(": 2 ranks, 1f1b")) << "one for each GPU";
  EXPECT_THAT(planning.out, HasSubstr(", 2 processes at once, with TF32\n"));
  const Plan made = parsePlan(contentOf(plan), plan);
  EXPECT_EQ(made.profile.computing, (Computing{.onGpu = true, .precision = DType::Unknown, .tf32 = true, .graphs = true}));
  EXPECT_EQ(made.profile.ranksAtOnce, 2);
  EXPECT_NE(made.profile.topology.sameNode, LinkSpec()) << "measured over the ranks' own communicator";
  const Outcome onGpus = call({"run", plan, "--steps", "4", "--json", "--store", store, "--progress", "json"}),
                onCpus = call({"run", plan, "--steps", "4", "--json", "--backend", "ucx", "--progress", "json"});
  EXPECT_EQ(complaintsOf(onGpus), "");
  EXPECT_THAT(complaintsOf(onCpus), HasSubstr("planned from times on GPUs as traced with TF32, and this run computes on CPUs as traced"));
  const auto there = lossesOf(onGpus), here = lossesOf(onCpus);
  ASSERT_EQ(there.size(), here.size());
  for (std::size_t i = 0; i < here.size(); ++i) EXPECT_NEAR(there[i], here[i], 1e-6 * here[i]) << "by recordings";
  const RunRecord run = wholeRun(store);
  EXPECT_EQ(run.transport, Transport::Nccl);
  EXPECT_TRUE(run.facts.tf32);
  EXPECT_EQ(run.machine.device, "cuda:0");
  EXPECT_EQ(run.machine.processor, "NVIDIA H100 80GB HBM3");
}

TEST_F(OnGpus, AProfileIsTakenByOneProcessAGpuAtMost) {
  const std::string model = sample("gpt_small"), out = file("profile.json");
  for (const auto& [ranks, atOnce] : {std::pair{"1", 1}, std::pair{"2", 2}, std::pair{"4", 2}}) {
    const Outcome outcome =
        call({"profile", model, "--device", "cuda", "--ranks", ranks, "--out", out, "--precision", "bf16", "--no-graphs"});
    ASSERT_EQ(outcome.status, 0) << outcome.err;
    const Profile profile = profileIn(out);
    EXPECT_EQ(profile.ranksAtOnce, atOnce);
    EXPECT_EQ(profile.computing, (Computing{.onGpu = true, .precision = DType::BFloat16, .tf32 = false, .graphs = false}));
    EXPECT_THAT(outcome.out, HasSubstr("in bf16, operator by operator"));
  }
  expectRefusal(call({"profile", model, "--device", "cuda:1", "--ranks", "2"}), 2,
                {"--device cuda:1 names a single GPU", "use --device cuda"});
  expectRefusal(call({"profile", model, "--device", "cuda:2"}), 2, {"There is no GPU 2"});
}

TEST_F(OnGpus, APlanWithoutGraphsRunsWithoutUnlessToldOtherwise) {
  const std::string plan = file("plan.json");
  ASSERT_EQ(
      call({"plan", sample("gpt_small"), "--device", "cuda", "--no-graphs", "--ranks", "1", "--microbatches", "2", "--out", plan}).status,
      0);
  EXPECT_EQ(complaintsOf(call({"run", plan, "--json", "--progress", "json"})), "");
  EXPECT_THAT(complaintsOf(call({"run", plan, "--json", "--graphs"})),
              HasSubstr("planned from times on GPUs as traced operator by operator, and this run computes on GPUs as traced:"));
  expectRefusal(call({"run", plan, "--backend", "ucx", "--no-graphs"}), 2, {"--no-graphs is for GPUs"});
}

TEST_F(OnGpus, CostsOfTheCpuAreSaidToBe) {
  const std::string note = "costs are measured on the CPU; use --device cuda for the GPUs of this machine";
  const Words words{"plan", sample("gpt_small"), "--ranks", "1", "--microbatches", "2"};
  EXPECT_THAT(call(words).err, HasSubstr(note));
  Words meant = words;
  meant.insert(meant.end(), {"--device", "cpu"});
  EXPECT_THAT(call(meant).err, testing::Not(HasSubstr(note)));
}

TEST_F(OnGpus, ARehearsalTakesAtLeastThePlansWork) {
  const std::string plan = file("plan.json"), withoutMessages = file("without_messages.json");
  ASSERT_EQ(
      call({"plan", sample("gpt_small"), "--ranks", "2", "--cluster", "cpu-workstation", "--microbatches", "4", "--out", plan}).status, 0);
  const Outcome outcome = call({"run", plan, "--synthetic", "--backend", "nccl", "--steps", "2", "--json"});
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  // A rehearsal's messages take the time of the real link, which may be faster than the plan's, so only the stages' time is a bound.
  Json work = Json::parse(contentOf(plan));
  for (Json& message : work.at("costs").at("messages")) message["latency_ns"] = message["transfer_ns"] = 0;
  std::ofstream(withoutMessages) << work;
  const Ns bound = Json::parse(call({"simulate", withoutMessages, "--json"}).out).at("makespan_ns");
  ASSERT_GT(bound, 0);
  const Json json = Json::parse(outcome.out);
  for (const Json& step : json.at("steps")) EXPECT_GE(step.at("makespan_ns").get<Ns>(), bound);
}

}  // namespace
}  // namespace pw::test
