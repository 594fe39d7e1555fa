// A training as users lead it: their data, checkpoints that PyTorch reads, pauses, evaluation, and calls that cannot work; with real
// processes.

#include <array>
#include <cmath>
#include <cstdio>
#include <filesystem>

#include <nlohmann/json.hpp>

#include "backends/checkpoints/writer.h"
#include "backends/host/files.h"
#include "simulator/step/compile.h"
#include "tests/app/cli/job.h"

namespace pw::test {
namespace {

using Json = nlohmann::json;

Json trainingOf(const std::string& plan, const Words& more, const std::string& note = {}) {
  return Json::parse(outputOf(plan, more, note));
}
using Numbers = std::vector<double>;

constexpr double kRounding = 1e-5;  // relative: float32 sums in another order, over a few steps

/// What a run with AdamW says of a plan that was made without.
std::string adamwNote(const std::string& plan, const std::string& shares = {}) {
  return plan + " accounts for the state of sgd (0 numbers of each parameter), and this run has adamw (2 numbers of each parameter" +
         shares + "): its memory differs";
}

Numbers trainingLosses(const std::string& plan, const Words& more, const std::string& note = {}) {
  return trainingOf(plan, more, note).at("losses").get<Numbers>();
}

/// What checkpoint_user.py printed.
std::string pythonOutput(Words words) {
  words.insert(words.begin(), PW_SOURCE_DIR "/tests/support/python/checkpoint_user.py");
  const Outcome outcome = finish(words, {{}, RLIM_INFINITY, PW_PYTHON});
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  return outcome.out;
}

std::string dataOf(const Folder& folder, int samples) {
  pythonOutput({"data", folder.file("data.pt"), std::to_string(samples)});
  return folder.file("data.pt");
}

/// gpt_small on `ranks`; a folder holds one plan at a time.
std::string planOf(const Folder& folder, int ranks, const Words& more) {
  Words words{"--ranks", std::to_string(ranks)};
  words.insert(words.end(), more.begin(), more.end());
  return planned(folder, {"gpt_small"}, words);
}

void expectNear(const Numbers& actual, const Numbers& expected) {
  ASSERT_EQ(actual.size(), expected.size());
  for (std::size_t i = 0; i < actual.size(); ++i) EXPECT_NEAR(actual[i], expected[i], kRounding * std::abs(expected[i])) << "at " << i;
}

/// Cells of a CSV file.
std::vector<Words> csvRows(const std::string& path) {
  std::istringstream lines(contentOf(path));
  std::vector<Words> rows;
  for (std::string line; std::getline(lines, line);) {
    rows.emplace_back();
    std::istringstream cells(line);
    for (std::string cell; std::getline(cells, cell, ',');) rows.back().push_back(cell);
  }
  return rows;
}

const Words kHeader{"step", "loss", "learning_rate", "gradient_norm", "seconds"};

class UserOfPyTorch : public testing::Test {
 protected:
  void SetUp() override { ASSERT_TRUE(std::filesystem::exists(PW_PYTHON)) << "run ./dev setup"; }
  Folder folder_;
};

TEST_F(UserOfPyTorch, LoadsACheckpointOfThreeRanksAndGetsItsLossAndOutputs) {
  const std::string data = dataOf(folder_, 10), checkpoint = folder_.file("model.pt"), even = folder_.file("even.pt"),
                    uneven = folder_.file("uneven.pt");
  std::string plan = planOf(folder_, 3, {"--batch", "8", "--microbatches", "4", "--schedule", "1f1b"});
  const Json trained =
      trainingOf(plan, {"--data", data, "--optimizer", "adamw", "--lr", "1e-3", "--warmup", "2", "--steps", "3", "--save", checkpoint},
                 adamwNote(plan));
  EXPECT_EQ(trained["checkpoint"], checkpoint);
  const Json ofEight = trainingOf(plan, {"--data", data, "--eval", "--resume", checkpoint, "--outputs", even});
  EXPECT_EQ(ofEight["outputs_file"], even);
  EXPECT_LT(ofEight["loss"], trained["losses"][2]) << "the loss after the last update";
  // Microbatches of 3, 3, 2 and 2 samples: the mean of their losses is not the mean over samples.
  plan = planOf(folder_, 2, {"--batch", "10", "--microbatches", "4"});
  const Json ofTen = trainingOf(plan, {"--data", data, "--eval", "--resume", checkpoint, "--outputs", uneven});
  const Json theirs = Json::parse(pythonOutput({"evaluate", checkpoint, data, even, uneven}));
  ASSERT_EQ(theirs.size(), 2U);
  for (std::size_t i = 0; i < 2; ++i) {
    const Json& ours = i == 0 ? ofEight : ofTen;
    EXPECT_EQ(ours["samples"], theirs[i]["samples"]);
    expectNear({ours["loss"].get<double>()}, {theirs[i]["loss"].get<double>()});
    EXPECT_LT(theirs[i]["difference"].get<double>(), kRounding);
  }
}

TEST_F(UserOfPyTorch, ResumesATrainingUnderTheSamePlanBitForBitAndUnderAnotherOne) {
  // Four batches of 8 in the file, AdamW's state and the rising rate: a training that began again at step 0 would differ from step 3 on.
  const std::string data = dataOf(folder_, 32), checkpoint = folder_.file("model.pt"), log = folder_.file("loss.csv");
  const auto training = [&](const std::string& steps, const Words& more = {}) {
    Words words{"--data", data, "--optimizer", "adamw", "--lr", "3e-3", "--warmup", "5", "--weight-decay", "0.1", "--steps", steps};
    words.insert(words.end(), more.begin(), more.end());
    return words;
  };
  std::string plan = planOf(folder_, 3, {"--microbatches", "4", "--schedule", "1f1b"});
  const Numbers whole = trainingLosses(plan, training("6"), adamwNote(plan));
  Numbers halves = trainingLosses(plan, training("3", {"--save", checkpoint, "--log", log}), adamwNote(plan));
  const Json resumed = trainingOf(plan, training("3", {"--resume", checkpoint, "--log", log}), adamwNote(plan));
  EXPECT_EQ(resumed["steps"][0]["step"], 3);
  for (const Json& loss : resumed["losses"]) halves.push_back(loss.get<double>());
  EXPECT_EQ(halves, whole);

  const std::vector<Words> rows = csvRows(log);
  ASSERT_EQ(rows.size(), 1U + 6U) << "one header for both parts";
  EXPECT_EQ(rows[0], kHeader);
  for (std::size_t s = 0; s < 6; ++s) {
    EXPECT_EQ(rows[1 + s].at(0), std::to_string(s));
    EXPECT_NEAR(std::stod(rows[1 + s].at(2)), s < 5 ? 3e-3 * static_cast<double>(s + 1) / 5 : 3e-3, 1e-8) << "warm-up at step " << s;
  }

  plan = planOf(folder_, 2, {"--microbatches", "4", "--schedule", "zb-h1"});
  expectNear(trainingLosses(plan, training("3", {"--resume", checkpoint}), adamwNote(plan)), {whole.begin() + 3, whole.end()});
}

TEST(GradientNorm, IsReportedLoggedAndClipped) {
  // Plain SGD's first update with the gradient cut to norm c is the one with the rate lr · c / norm, so the second loss is the same.
  const Folder folder;
  const std::string plan = planOf(folder, 2, {"--microbatches", "4"}), log = folder.file("loss.csv");
  constexpr double kNorm = 0.25;
  const Json clipped = trainingOf(plan, {"--steps", "3", "--lr", "0.5", "--clip-norm", "0.25", "--log", log});
  const auto norms = clipped.at("gradient_norms").get<Numbers>(), losses = clipped.at("losses").get<Numbers>();
  ASSERT_EQ(norms.size(), 3U);
  ASSERT_GT(norms[0], kNorm) << "else nothing is clipped";
  std::array<char, 32> rate{};
  std::snprintf(rate.data(), rate.size(), "%.9g", 0.5 * kNorm / norms[0]);
  const Json slower = trainingOf(plan, {"--steps", "2", "--lr", rate.data()});
  EXPECT_FALSE(slower.contains("gradient_norms")) << "nobody asked";
  expectNear({losses[0], losses[1]}, slower.at("losses").get<Numbers>());

  const std::vector<Words> rows = csvRows(log);
  ASSERT_EQ(rows.size(), 1U + 3U);
  EXPECT_EQ(rows[0], kHeader);
  for (std::size_t s = 0; s < 3; ++s) {
    ASSERT_EQ(rows[1 + s].size(), kHeader.size());
    EXPECT_EQ(rows[1 + s][0], std::to_string(s));
    EXPECT_NEAR(std::stod(rows[1 + s][1]), losses[s], 1e-8 * losses[s]);
    EXPECT_EQ(rows[1 + s][2], "0.5");
    EXPECT_NEAR(std::stod(rows[1 + s][3]), norms[s], 1e-5 * norms[s]);
    EXPECT_GT(std::stod(rows[1 + s][4]), 0);
    EXPECT_LE(std::stod(rows[1 + s][4]), clipped["steps"][s]["step_ns"].get<double>() * 1e-9 + 1e-6) << "what rank 0 did is in the step";
  }
}

TEST(Replicas, TrainAsOnePipelineAlsoWithTheOptimizerSpread) {
  const Folder folder;
  const Words training{"--steps", "3", "--optimizer", "adamw", "--lr", "3e-3"};
  Words spread = training;
  spread.push_back("--zero1");
  std::string plan = planOf(folder, 2, {"--batch", "8", "--microbatches", "4"});
  const Numbers one = trainingLosses(plan, training, adamwNote(plan));
  plan = planOf(folder, 2, {"--batch", "8", "--microbatches", "2", "--replicas", "2"});
  const Json two = trainingOf(plan, training, adamwNote(plan));
  EXPECT_EQ(two["processes"].size(), 4U);
  expectNear(two.at("losses").get<Numbers>(), one);
  expectNear(trainingLosses(plan, spread, adamwNote(plan, ", shared by replicas")), one);
}

TEST(Replicas, TrainAsOnePipelineAlsoEachWithItsOwnSplits) {
  const Folder folder;
  Json cluster = Json::parse(readFile(PW_SOURCE_DIR "/resources/clusters/cpu-workstation.json"));
  cluster["ranks"] = Json::parse(R"([{"speed": 1}, {"speed": 0.4}, {"speed": 0.4}, {"speed": 1}])");
  const std::string mixed = folder.with("mixed.json", cluster.dump()), plan = folder.file("own.json");
  const Words shape{"plan", sample("gpt_small"), "--cluster", mixed, "--ranks", "2", "--replicas", "2", "--microbatches", "4"};
  const auto planWith = [&](Words more) {
    more.insert(more.begin(), shape.begin(), shape.end());
    const Outcome outcome = call(more);
    EXPECT_EQ(outcome.status, 0) << outcome.err;
    return outcome.out;
  };
  const Json own = Json::parse(planWith({"--out", plan, "--json"})), same = Json::parse(planWith({"--same-splits", "--json"}));
  EXPECT_EQ(own["replica_splits"].size(), 2U);
  EXPECT_NE(own["replica_splits"][0], own["replica_splits"][1]);
  EXPECT_EQ(own["step_with_same_splits_ns"], same["step_ns"]);
  EXPECT_LT(own["step_ns"], same["step_ns"]);
  EXPECT_FALSE(same.contains("replica_splits"));
  EXPECT_NE(planWith({}).find("each has splits for its own ranks: with the same for all the step would take"), std::string::npos);
  const Words training{"--steps", "3", "--optimizer", "adamw", "--lr", "3e-3"};
  Words spread = training;
  spread.insert(spread.end(), {"--zero1", "--verify"});
  const std::string common = planOf(folder, 2, {"--batch", "16", "--microbatches", "8"});
  const Numbers one = trainingLosses(common, training, adamwNote(common));
  expectNear(trainingLosses(plan, training, adamwNote(plan)), one);
  expectNear(trainingLosses(plan, spread, adamwNote(plan, ", shared by replicas")), one);
  const Outcome exported = call({"export", plan, "--to", "torch", "--out", folder.file("torch")});
  EXPECT_NE(exported.err.find("plan with --same-splits"), std::string::npos) << exported.err;
}

TEST(Optimizer, IsThePlansUnlessAnotherIsNamed) {
  const Folder folder;
  const std::string plan = planOf(folder, 2, {"--microbatches", "2", "--optimizer", "rmsprop", "--momentum", "0.9"});
  const Words steps{"--steps", "3"}, named{"--steps", "3", "--optimizer", "rmsprop", "--momentum", "0.9"};
  const Numbers own = trainingLosses(plan, steps);
  EXPECT_EQ(own, trainingLosses(plan, named));
  const std::string note = plan +
                           " accounts for the state of rmsprop (2 numbers of each parameter), and this run has sgd (0 numbers of each "
                           "parameter): its memory differs";
  EXPECT_NE(own, trainingLosses(plan, {"--steps", "3", "--optimizer", "sgd"}, note));
  EXPECT_NE(own,
            trainingLosses(plan, {"--steps", "3", "--momentum", "0"},
                           plan + " accounts for the state of rmsprop (2 numbers of each parameter), and this run has rmsprop (1 number of "
                                  "each parameter): its memory differs"));
}

TEST(WrongCall, OfATrainingIsRefusedInOneSentence) {
  const Folder folder;
  const std::string plan = planOf(folder, 2, {"--microbatches", "4", "--schedule", "1f1b"}), outputs = folder.file("outputs.pt");
  const auto refusal = [&](Words more) {
    more.insert(more.begin(), {"run", plan});
    return finish(more);
  };
  expectRefusal(refusal({"--outputs", outputs}), 2, {"--outputs", "--eval"});
  EXPECT_FALSE(std::filesystem::exists(outputs));
  expectRefusal(refusal({"--order", "ready", "--backend", "gloo"}), 2, {"Gloo", "--order ready", "--backend ucx"});
  expectRefusal(refusal({"--loss-over", "batch"}), 2, {"plan.json", "gpipe"});
  expectRefusal(refusal({"--betas", "0.9,0.99"}), 2, {"--betas", "sgd"});
  expectRefusal(refusal({"--optimizer", "lion"}), 2, {"lion", "adamw"});
  expectRefusal(refusal({"--optimizer", "adam", "--momentum", "0.9"}), 2, {"--momentum", "sgd"});
  expectRefusal(refusal({"--save-every", "2"}), 2, {"--save-every", "--save"});
  expectRefusal(refusal({"--eval", "--save", folder.file("model.pt")}), 2, {"--eval", "--save"});
  expectRefusal(refusal({"--backend", "nccl"}), 2, {"nccl", "GPUs", "ucx"});
}

TEST(WrongCall, NamesACheckpointThatCannotBeResumed) {
  const Folder folder;
  const std::string plan = planOf(folder, 2, {"--microbatches", "4"});
  const auto refusal = [&](const std::string& checkpoint) { return finish({"run", plan, "--resume", checkpoint}); };
  expectRefusal(refusal(folder.file("none.pt")), 2, {"none.pt", "does not exist"});
  expectRefusal(refusal(folder.with("text.pt", "no checkpoint")), 2, {"text.pt", "torch.save"});
  CheckpointWriter other(folder.file("other.pt"));
  const float value = 1;
  other.add("weight", DType::Float32, {1}, reinterpret_cast<const std::byte*>(&value));
  other.finish({});
  expectRefusal(refusal(folder.file("other.pt")), 2, {"The checkpoint lacks", "another model"});
}

TEST(UnwritableCheckpoint, IsRefusedBeforeTheTraining) {
  const Folder folder;
  const std::string plan = planOf(folder, 2, {"--microbatches", "4"});
  for (const std::string& path : {std::string("/proc/model.pt"), folder.file("none/model.pt")}) {  // even root may write no file in /proc
    expectRefusal(finish({"run", plan, "--save", path}), 1, {path, "cannot be written"});
  }
  expectRefusal(finish({"run", plan, "--save", std::filesystem::path(folder.file("x")).parent_path().string()}), 2, {"is a folder"});
}

TEST(TrainingCli, InFloat16ScalesTheLossAndKeepsTheScaleInItsCheckpoint) {
  const Folder folder;
  const std::string plan = planOf(folder, 2, {"--microbatches", "4"}), saved = folder.file("model.pt");
  const std::string note =
      plan + " was planned for computing as traced, and this run computes in fp16: predicted times and memory are not its own";
  const Json traced = trainingOf(plan, {"--steps", "1"}),
             first = trainingOf(plan, {"--steps", "2", "--precision", "fp16", "--save", saved}, note);
  EXPECT_FALSE(traced.contains("loss_scale"));
  EXPECT_NEAR(first.at("losses")[0].get<double>(), traced.at("losses")[0].get<double>(), 0.01) << "the loss is not scaled";
  const auto halvings = [](const Json& run) { return std::ldexp(1.0, -run.at("skipped_steps").get<int>()); };
  EXPECT_EQ(first.at("loss_scale").get<double>(), 65536 * halvings(first));
  const Json next = trainingOf(plan, {"--steps", "1", "--precision", "fp16", "--resume", saved}, note);
  EXPECT_EQ(next.at("loss_scale").get<double>(), first.at("loss_scale").get<double>() * halvings(next));
}

}  // namespace
}  // namespace pw::test
