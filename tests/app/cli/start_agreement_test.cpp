// Ranks that others start with different calls: both end at once, and say what differs.

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <map>

#include <nlohmann/json.hpp>

#include "backends/checkpoints/zip_writer.h"
#include "backends/pt2/zip.h"
#include "tests/app/cli/job.h"
#include "tests/support/loopback.h"

namespace pw::test {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;
using std::chrono::seconds;

/// Two ranks started by hand; the deadline of their waits is far beyond that of the test's.
class TwoRanks : public testing::TestWithParam<const char*> {
 protected:
  [[nodiscard]] Words call(const Words& more) const {
    Words words{"run", plan_, "--backend", GetParam(), "--timeout", "80"};
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }
  [[nodiscard]] static JobOptions place(int rank, int port) {
    JobOptions options;
    options.environment = {
        {"RANK", std::to_string(rank)}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "127.0.0.1"}, {"MASTER_PORT", std::to_string(port)}};
    return options;
  }
  /// Starts the ranks with these calls; both must refuse with `parts`, long before their deadline.
  static void expectBothRefuse(const Words& first, const Words& second, const Words& parts, const std::string& secondProgram = PIPEWRIGHT) {
    const int port = freePort();
    JobOptions there = place(1, port);
    there.program = secondProgram;
    Job zero(first, place(0, port)), one(second, there);
    expectRefusal(zero.wait(kLong), 2, parts);
    expectRefusal(one.wait(kLong), 2, parts);
  }
  void expectDifference(const Words& second, const std::string& field, const std::string& values) {
    expectBothRefuse(call({}), call(second), {"Rank 0 and rank 1 differ in " + field + ": " + values, "start all ranks with the same"});
  }
  /// A copy of the sample whose entry of that name has another byte.
  [[nodiscard]] std::string changedCopy(const std::string& name, const std::string& entry,
                                        const std::function<void(std::string&)>& change) const {
    const pt2::Archive archive = pt2::openArchive(sample("gpt_small"));
    const std::string bytes = contentOf(archive.path);
    ZipWriter zip(folder_.file(name));
    for (const auto& [key, place] : archive.entries) {
      std::string text = bytes.substr(static_cast<std::size_t>(place.offset), static_cast<std::size_t>(place.bytes));
      if (key == entry) change(text);
      zip.add(archive.top + "/" + key, text);
    }
    zip.finish();
    return folder_.file(name);
  }

  Folder folder_;
  std::string plan_ = planned(folder_, {"gpt_small"}, {"--ranks", "2", "--microbatches", "4"});
};

TEST_P(TwoRanks, TrainWhereNothingDiffers) {
  const int port = freePort();
  std::filesystem::copy_file(sample("gpt_small"), folder_.file("same.pt2"));
  const Words moved = call({"--model", folder_.file("same.pt2")});  // the same contents at another place
  Job zero(call({}), place(0, port)), one(moved, place(1, port));
  const Outcome first = zero.wait(), second = one.wait();
  EXPECT_EQ(first.status, 0) << first.err;
  EXPECT_EQ(second.status, 0) << second.err;
}

TEST_P(TwoRanks, RefuseOptionsThatDiffer) {
  expectDifference({"--lr", "0.5"}, "--lr", "0.01 and 0.5");
  expectDifference({"--seed", "7"}, "--seed", "0 and 7");
  expectDifference({"--optimizer", "adamw"}, "--optimizer", "sgd and adamw");
  expectDifference({"--steps", "2"}, "--steps", "1 and 2");
  expectDifference({"--loss", "sum"}, "--loss", "cross_entropy and sum");
  const std::string other = GetParam() == std::string("ucx") ? "gloo" : "ucx";
  Words second = call({});
  second[3] = other;
  expectBothRefuse(call({}), second,
                   {fmt::format("Rank 0 and rank 1 differ in --backend: {} and {}", GetParam(), other), "start all ranks with the same"});
}

TEST_P(TwoRanks, RefuseFilesThatDiffer) {
  const std::string weights =
      changedCopy("tuned.pt2", "data/weights/weight_0", [](std::string& bytes) { bytes[100] = static_cast<char>(bytes[100] ^ 1); });
  expectBothRefuse(call({}), call({"--model", weights}), {"Rank 0 and rank 1 differ in the weights of gpt_small: "});
  const std::string one = folder_.with("one.pt", "data"), two = folder_.with("two.pt", "date");
  expectBothRefuse(call({"--data", one}), call({"--data", two}), {"Rank 0 and rank 1 differ in the data file: one.pt ", " and two.pt "});
  Json plan = Json::parse(contentOf(plan_));
  plan["costs"]["stages"][0]["forward_ns"] = 1;
  Words second = call({});
  second[1] = folder_.with("other.json", plan.dump());
  expectBothRefuse(call({}), second, {"Rank 0 and rank 1 differ in the plan: plan.json ", " and other.json "});
}

TEST_P(TwoRanks, RefuseModelsThatDiffer) {
  const std::string other = changedCopy("other.pt2", "models/model.json", [](std::string& text) {
    const std::size_t at = text.find("1e-05");
    ASSERT_NE(at, std::string::npos) << "the epsilon of a layer norm";
    text.replace(at, 5, "1e-06");
  });
  expectBothRefuse(call({}), call({"--model", other}),
                   {"Rank 1: The plan for gpt_small was not made for this model, other: operator ", "--model"});
  Json plan = Json::parse(contentOf(plan_));
  plan.erase("model_fingerprint");  // as older versions wrote it: nothing but the ranks can tell
  plan_ = folder_.with("old.json", plan.dump());
  const int port = freePort();
  Job zero(call({}), place(0, port)), one(call({"--model", other}), place(1, port));
  for (Job* job : {&zero, &one}) {
    const Outcome outcome = job->wait(kLong);
    EXPECT_EQ(outcome.status, 2);
    EXPECT_NE(outcome.err.find("Rank 0 and rank 1 differ in the model: gpt_small "), std::string::npos) << outcome.err;
  }
}

TEST_P(TwoRanks, RefuseBuildsThatDiffer) {
  fs::create_directory(folder_.file("bin"));
  fs::create_symlink(fs::path(PIPEWRIGHT).parent_path().parent_path() / "lib", folder_.file("lib"));
  std::string program = contentOf(PIPEWRIGHT);
  const std::string note("\x04\0\0\0\x14\0\0\0\x03\0\0\0GNU\0", 16);  // a build id of 20 bytes
  const std::size_t at = program.find(note);
  ASSERT_NE(at, std::string::npos);
  program[at + note.size()] = static_cast<char>(program[at + note.size()] ^ 1);
  const std::string other = folder_.with("bin/pipewright", program);
  fs::permissions(other, fs::perms::owner_all);
  expectBothRefuse(call({}), call({}), {"Rank 0 and rank 1 differ in the build of pipewright: "}, other);
}

TEST_P(TwoRanks, EndTogetherWhereOneCannotTakePart) {
  expectBothRefuse(call({}), call({"--data", folder_.file("none.pt")}), {"Rank 1: ", "none.pt"});
  expectBothRefuse(call({"--model", folder_.file("none.pt2")}), call({}), {"none.pt2"});
  Words larger = call({});
  const Folder elsewhere;
  larger[1] = planned(elsewhere, {"gpt_small"}, {"--ranks", "4", "--microbatches", "4"});
  expectBothRefuse(call({}), larger, {"is for 4 ranks and WORLD_SIZE is 2"});
}

INSTANTIATE_TEST_SUITE_P(Over, TwoRanks, testing::Values("ucx", "gloo"), [](const auto& tested) { return std::string(tested.param); });

TEST(RunModel, TakesAnArchiveThatMoved) {
  const Folder folder;
  fs::copy_file(sample("gpt_small"), folder.file("model.pt2"));
  const std::string plan = folder.file("plan.json");
  ASSERT_EQ(finish({"plan", folder.file("model.pt2"), "--ranks", "2", "--microbatches", "2", "--cluster", "cpu-workstation", "--out", plan})
                .status,
            0);
  fs::rename(folder.file("model.pt2"), folder.file("moved.pt2"));
  expectRefusal(finish({"run", plan}), 2, {"model.pt2, does not exist any more", "--model"});
  EXPECT_EQ(finish({"run", plan, "--model", folder.file("moved.pt2"), "--json"}).status, 0);
  expectRefusal(finish({"run", plan, "--model", sample("vit_small")}), 2, {"was not made for this model, vit_small", "plan it again"});
  expectRefusal(finish({"run", plan, "--model", "a.pt2", "--model", "b.pt2"}), 2, {"is of 1 archive, and --model names 2"});
}

TEST(OldPlan, RunsWithANote) {
  const Folder folder;
  Json plan = Json::parse(contentOf(planned(folder, {"gpt_small"}, {"--ranks", "2", "--microbatches", "2"})));
  plan.erase("model_fingerprint");
  const Outcome outcome = finish({"run", folder.with("old.json", plan.dump())});
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_NE(outcome.err.find("old.json is of an older version and does not tell which model it is for"), std::string::npos) << outcome.err;
}

}  // namespace
}  // namespace pw::test
