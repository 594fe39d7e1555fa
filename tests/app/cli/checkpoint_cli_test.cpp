// Checkpoints of `pipewright run` and PyTorch: all of the model's state dict, and an optimizer's state that torch.optim can continue from.

#include <array>
#include <cmath>
#include <filesystem>

#include <nlohmann/json.hpp>

#include "backends/checkpoints/tensor_file.h"
#include "tests/app/cli/job.h"

namespace pw::test {
namespace {

using Json = nlohmann::json;
namespace fs = std::filesystem;

Json python(Words words) {
  words.insert(words.begin(), PW_SOURCE_DIR "/tests/support/python/checkpoint_user.py");
  const Outcome outcome = finish(words, {{}, RLIM_INFINITY, PW_PYTHON});
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  return outcome.out.empty() ? Json() : Json::parse(outcome.out);
}

Outcome run(const std::string& plan, const Words& more) {
  Words words{"run", plan};
  words.insert(words.end(), more.begin(), more.end());
  return finish(words);
}

/// Of each step.
Json lossesOfAdamW(const std::string& plan, const Words& more) {
  Words words{"--optimizer", "adamw", "--lr", "3e-3", "--json"};
  words.insert(words.end(), more.begin(), more.end());
  const Outcome outcome = run(plan, words);
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  return Json::parse(outcome.out).at("losses");
}

TEST(CheckpointHistory, HasEveryEntryOfTheStateDictAndTheNewestFiles) {
  const Folder folder;
  const std::string plan = folder.file("plan.json"), data = folder.file("data.pt"), model = PW_SOURCE_DIR "/tests/data/faulty.pt2";
  python({"faulty", data, "24"});
  ASSERT_EQ(finish({"plan", model, "--ranks", "2", "--batch", "8", "--microbatches", "4", "--split", "middle", "--loss", "mse", "--cluster",
                    "cpu-workstation", "--out", plan})
                .status,
            0);
  const Outcome trained = run(plan, {"--data", data, "--steps", "3", "--optimizer", "adamw", "--save", folder.file("ck-{step}.pt"),
                                     "--save-every", "1", "--keep", "2", "--json"});
  ASSERT_EQ(trained.status, 0) << trained.err;
  EXPECT_EQ(Json::parse(trained.out).at("checkpoint"), folder.file("ck-3.pt"));
  EXPECT_FALSE(fs::exists(folder.file("ck-1.pt")));
  EXPECT_TRUE(fs::exists(folder.file("ck-2.pt")));
  const Json loaded = python({"keys", folder.file("ck-3.pt")});  // strictly, or it fails
  EXPECT_EQ(loaded.at("keys").size(), 19U) << "weight and bias of 4 linear layers and 2 norms, 2 x 3 statistics, and 1 buffer";
  // The norm that trains counts microbatches: 3 steps of 4. What nothing reads or changes is as the archive has it.
  EXPECT_EQ(loaded.at("buffers").at("norm.num_batches_tracked"), Json::array({12}));
  EXPECT_EQ(loaded.at("buffers").at("frozen.num_batches_tracked"), Json::array({0}));
  EXPECT_EQ(loaded.at("buffers").at("seen"), Json::array({5}));
  EXPECT_GT(loaded.at("unused").get<double>(), 0);
}

TEST(OptimizerState, LetsTorchOptimGoOnAsResumeDoes) {
  const Folder folder;
  const std::string data = folder.file("data.pt"), saved = folder.file("model.pt");
  python({"data", data, "32"});
  const std::string plan = planned(folder, {"gpt_small"}, {"--ranks", "2", "--batch", "8", "--microbatches", "2"});
  for (const Words& optimizer :
       {Words{"--optimizer", "sgd", "--momentum", "0.9", "--lr", "0.1"}, Words{"--optimizer", "adam", "--lr", "3e-3"},
        Words{"--optimizer", "adamw", "--lr", "3e-3", "--weight-decay", "0.2"},
        Words{"--optimizer", "rmsprop", "--lr", "1e-3", "--momentum", "0.5"}}) {
    Words first{"--data", data, "--steps", "2", "--save", saved}, second{"--data", data, "--steps", "2", "--resume", saved, "--json"};
    first.insert(first.end(), optimizer.begin(), optimizer.end());
    second.insert(second.end(), optimizer.begin(), optimizer.end());
    ASSERT_EQ(run(plan, first).status, 0);
    const Json ours = Json::parse(run(plan, second).out).at("losses"), theirs = python({"continue", saved, data, "8", "2", "2"});
    ASSERT_EQ(theirs.size(), 2U);
    for (std::size_t i = 0; i < 2; ++i)
      EXPECT_NEAR(ours[i].get<double>(), theirs[i].get<double>(), 1e-5 * ours[i].get<double>()) << optimizer[1] << ", step " << 2 + i;
  }
}

TEST(SafetensorsCheckpoint, IsResumedAsIfTheTrainingHadGoneOn) {
  const Folder folder;
  const std::string saved = folder.file("model.safetensors"),
                    plan = planned(folder, {"gpt_small"}, {"--ranks", "2", "--microbatches", "2"});
  const auto losses = [&](const Words& more) { return lossesOfAdamW(plan, more); };
  const Json whole = losses({"--steps", "3"});
  EXPECT_EQ(losses({"--steps", "2", "--save", saved}).at(1), whole.at(1));
  EXPECT_EQ(losses({"--steps", "1", "--resume", saved}).at(0), whole.at(2)) << "bit for bit";
  fs::remove(folder.file("model.optimizer.safetensors"));
  const Outcome weights = run(plan, {"--resume", saved, "--reset-optimizer", "--eval"});
  EXPECT_EQ(weights.status, 0) << weights.err;
}

/// hf_gpt2 has dropout: resumed without a seed, it draws what the training would have drawn.
TEST(SeedOfACheckpoint, IsThatOfTheResumedTraining) {
  const Folder folder;
  const std::string saved = folder.file("model.pt"), plan = planned(folder, {"hf_gpt2"}, {"--ranks", "1", "--microbatches", "2"});
  const auto losses = [&](const Words& more) { return lossesOfAdamW(plan, more); };
  const std::string seed = "9223372036854775807";  // more bits than a double has
  const Json whole = losses({"--steps", "3", "--seed", seed});
  EXPECT_NE(whole, losses({"--steps", "3"}));
  losses({"--steps", "2", "--seed", seed, "--save", saved});
  EXPECT_EQ(losses({"--resume", saved, "--save", saved}).at(0), whole.at(2)) << "bit for bit";
  EXPECT_NE(losses({"--resume", saved, "--seed", "1"}).at(0), losses({"--resume", saved}).at(0)) << "unless another is given";
}

TEST(GoodStepsOfACheckpoint, AreCountedOnByTheResumedTraining) {
  const Folder folder;
  const std::string saved = folder.file("model.pt"), plan = planned(folder, {"gpt_small"}, {"--ranks", "2", "--microbatches", "2"});
  const auto goodSteps = [&](const Words& more) {
    Words words{"--precision", "fp16", "--save", saved};
    words.insert(words.end(), more.begin(), more.end());
    const Outcome outcome = run(plan, words);
    EXPECT_EQ(outcome.status, 0) << outcome.err;
    return TensorFile(saved).numbers().at("loss_scale_good_steps");
  };
  EXPECT_EQ(goodSteps({"--steps", "2"}), 2);
  EXPECT_EQ(goodSteps({"--steps", "3", "--resume", saved}), 5);
}

TEST(CheckpointFolder, IsReadAndWrittenAsTorchDistributedCheckpointDoes) {
  const Folder folder;
  const std::string data = folder.file("data.pt"), ours = folder.file("ours-{step}/"), theirs = folder.file("theirs");
  python({"data", data, "32"});
  const std::string plan = planned(folder, {"gpt_small"}, {"--ranks", "2", "--batch", "8", "--microbatches", "2"});
  const Words adamw{"--data", data, "--steps", "2", "--optimizer", "adamw", "--lr", "3e-3", "--weight-decay", "0.01", "--json"};
  const auto losses = [&](const Words& more) {
    Words words = adamw;
    words.insert(words.end(), more.begin(), more.end());
    const Outcome outcome = run(plan, words);
    EXPECT_EQ(outcome.status, 0) << outcome.err;
    return outcome.status == 0 ? Json::parse(outcome.out).at("losses") : Json();
  };
  const auto expectNear = [](const Json& found, const Json& wanted) {
    ASSERT_EQ(found.size(), wanted.size());
    for (std::size_t i = 0; i < found.size(); ++i)
      EXPECT_NEAR(found[i].get<double>(), wanted[i].get<double>(), 1e-5 * wanted[i].get<double>()) << i;
  };
  losses({"--save", ours, "--save-every", "1", "--keep", "1"});
  EXPECT_FALSE(fs::exists(folder.file("ours-1")));
  const std::string saved = folder.file("ours-2");
  const Json next = losses({"--resume", saved});
  expectNear(next, python({"load-folder", saved, data, "8", "2", "2"}));
  losses({"--save", folder.file("file.pt")});
  EXPECT_EQ(losses({"--resume", folder.file("file.pt")}), next) << "bit for bit, whatever the format";

  const Json further = python({"save-folder", theirs, data, "8", "2", "2"});
  expectNear(losses({"--resume", theirs}), further);
  losses({"--resume", theirs, "--save", theirs + "/"});
  EXPECT_EQ(std::distance(fs::directory_iterator(theirs), fs::directory_iterator()), 2)
      << "metadata and data; the two ranks' files are gone";
}

TEST(CheckpointFolder, IsRefusedWhereItIsNone) {
  const Folder folder;
  const std::string plan = planned(folder, {"gpt_small"}, {"--ranks", "2", "--microbatches", "2"});
  const std::string empty = folder.file("empty");
  fs::create_directory(empty);
  expectRefusal(run(plan, {"--resume", empty}), 2, {empty, "no .metadata"});
  expectRefusal(run(plan, {"--save", empty}), 2, {"is a folder", empty + "/"});
}

TEST(Resume, RefusesTheStateOfAnotherOptimizerUnlessItIsToBeginAnew) {
  const Folder folder;
  const std::string saved = folder.file("model.pt"), plan = planned(folder, {"gpt_small"}, {"--ranks", "2", "--microbatches", "2"});
  ASSERT_EQ(run(plan, {"--optimizer", "adamw", "--save", saved}).status, 0);
  expectRefusal(run(plan, {"--resume", saved}), 2, {"model.pt", "adamw", "sgd", "--reset-optimizer"});
  expectRefusal(run(plan, {"--resume", saved, "--optimizer", "adam"}), 2, {"adamw", "adam"});
  expectRefusal(run(plan, {"--reset-optimizer"}), 2, {"--resume"});
  expectRefusal(run(plan, {"--save", saved, "--keep", "2"}), 2, {"--keep", "{step}"});
  const Outcome anew = run(plan, {"--resume", saved, "--reset-optimizer", "--save", saved, "--json"});
  ASSERT_EQ(anew.status, 0) << anew.err;
  EXPECT_EQ(Json::parse(anew.out).at("steps").at(0).at("step"), 0);
  expectRefusal(run(plan, {"--resume", saved, "--momentum", "0.9"}), 2, {"trained with sgd, and this run uses sgd with momentum"});
}

}  // namespace
}  // namespace pw::test
