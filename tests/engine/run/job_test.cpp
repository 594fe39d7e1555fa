// What a run is made of before its ranks train: the plan as it is run, notes, files, and the record in the store.
#include "engine/run/job.h"

#include <gtest/gtest.h>

#include <fstream>

#include "engine/run/record.h"
#include "schedules/error.h"
#include "tests/support/folder.h"
#include "tests/support/two_stages.h"

namespace pw {
namespace {

using test::Folder;

RunRequest requestIn(const Folder& folder) {
  RunRequest request;
  request.plan = folder.with("plan.json", toJson(test::planOfTwoStages()));
  request.synthetic = true;
  return request;
}

std::string refusalOf(const auto& work) {
  try {
    work();
  } catch (const UsageError& e) {
    return e.what();
  }
  return "";
}

TEST(PlanToRun, SettlesWhatIsNotGivenByHowThePlanWasProfiled) {
  const Folder folder;
  RunRequest request = requestIn(folder);
  const auto [plan, settings] = planToRun(request);
  EXPECT_EQ(plan.schedule, test::planOfTwoStages().schedule);
  EXPECT_EQ(settings.transport, defaultTransport(false));
  EXPECT_FALSE(settings.computing.onGpu);
  EXPECT_EQ(settings.threads, plan.profile.threads);
  request.optimizer = OptimizerSpec::Kind::Adam;
  request.betas = {0.8, 0.9};
  EXPECT_NE(refusalOf([&] { static_cast<void>(planToRun(request)); }).find("--synthetic updates no parameters"), std::string::npos);
  request.synthetic = false;
  const RunSettings trained = settle(request, plan);
  EXPECT_EQ(trained.update.kind, OptimizerSpec::Kind::Adam);
  EXPECT_EQ(trained.update.beta1, 0.8);
  EXPECT_EQ(trained.update.beta2, 0.9);
}

TEST(Settle, TakesThePlansOptimizerAndWhatIsGivenInItsPlace) {
  Plan plan = test::planOfTwoStages();
  plan.optimizer.emplace();
  plan.optimizer->update.momentum = 0.9;
  plan.optimizer->zero1 = true;
  plan.profile.threads = 3;
  RunRequest request;
  request.update.learningRate = 0.5;
  const RunSettings planned = settle(request, plan);
  EXPECT_EQ(planned.update.kind, OptimizerSpec::Kind::Sgd);
  EXPECT_EQ(planned.update.momentum, 0.9);
  EXPECT_EQ(planned.update.learningRate, 0.5);
  EXPECT_TRUE(planned.zero1);
  EXPECT_EQ(planned.threads, 3);
  request.momentum = 0.25;
  request.zero1 = false;
  request.threads = 2;
  const RunSettings given = settle(request, plan);
  EXPECT_EQ(given.update.momentum, 0.25);
  EXPECT_FALSE(given.zero1);
  EXPECT_EQ(given.threads, 2);
  request.momentum.reset();
  request.optimizer = OptimizerSpec::Kind::Sgd;
  EXPECT_EQ(settle(request, plan).update.momentum, 0) << "another optimizer has no momentum of the plan's";
}

TEST(Settle, ComputesAsThePlanWasProfiledUnlessToldOtherwise) {
  Plan plan = test::planOfTwoStages();
  plan.profile.computing = {.onGpu = true, .precision = DType::BFloat16, .tf32 = true, .graphs = false};
  const RunSettings there = settle({}, plan);
  EXPECT_TRUE(factsOf(there.transport).onGpu);
  EXPECT_EQ(there.computing, plan.profile.computing);
  RunRequest onHosts;
  onHosts.transport = Transport::Ucx;
  onHosts.precision = DType::Unknown;
  EXPECT_EQ(settle(onHosts, plan).computing, (Computing{.onGpu = false, .precision = DType::Unknown, .tf32 = false, .graphs = false}));
  plan.profile.computing.precision = DType::Float8;
  EXPECT_NE(refusalOf([&] { static_cast<void>(settle({}, plan)); }).find("run it with --precision bf16"), std::string::npos);
}

TEST(PlanToRun, RefusesAModelThatIsNoLongerThereAndTakesAnother) {
  const Folder folder;
  RunRequest request = requestIn(folder);
  request.synthetic = false;
  EXPECT_NE(refusalOf([&] { static_cast<void>(planToRun(request)); }).find("/nowhere/small.pt2, does not exist"), std::string::npos);
  Plan plan = test::planOfTwoStages();
  request.models = {"/a.pt2", "/b.pt2"};
  EXPECT_NE(refusalOf([&] { takeModels(request, plan); }).find("is of 1 archive, and --model names 2"), std::string::npos);
  request.models = {"/a.pt2"};
  takeModels(request, plan);
  EXPECT_EQ(plan.modelFiles, std::vector<std::string>{"/a.pt2"});
}

TEST(NotesOn, TellThatAPlanDoesNotIdentifyItsModel) {
  const Folder folder;
  auto [plan, settings] = planToRun(requestIn(folder));
  EXPECT_TRUE(notesOn(settings, plan).empty()) << "nothing is computed";
  settings.request.synthetic = false;
  ASSERT_EQ(notesOn(settings, plan).size(), 1U);
  EXPECT_NE(notesOn(settings, plan).front().find("older version"), std::string::npos);
}

TEST(PrepareFiles, RefusesAFolderAsACheckpoint) {
  const Folder folder;
  RunSettings settings;
  std::string& save = settings.request.save = folder.file("");
  while (save.ends_with('/')) save.pop_back();
  EXPECT_NE(refusalOf([&] { prepareFiles(settings); }).find("is a folder"), std::string::npos);
}

TEST(FlightNote, NamesARecordThatWasWrittenSinceTheStart) {
  const Folder folder;
  RunRequest request;
  request.store = folder.file("runs.db");
  const FileTime before = FileTime::clock::now() - std::chrono::hours(1);
  EXPECT_EQ(flightNote(request, before, 0, 2), "");
  const std::string file = flightFiles(request) + "1.json";
  std::ofstream(file) << "{}";
  EXPECT_EQ(flightNote(request, before, 1, 1), "; see " + file + " for what it did last and waited for");
  EXPECT_EQ(flightNote(request, FileTime::clock::now() + std::chrono::hours(1), 1, 1), "") << "of an earlier run";
}

TEST(StoredRun, IsUnfinishedUntilItEndsAndDoesNothingWithoutAStore) {
  const Folder folder;
  auto [plan, settings] = planToRun(requestIn(folder));
  const std::string& store = settings.request.store;
  StoredRun nowhere(settings, plan);
  nowhere.begin();
  nowhere.fail("cause");
  EXPECT_FALSE(nowhere.id().has_value());
  settings.request.store = folder.file("runs.db");
  StoredRun stored(settings, plan);
  stored.begin();
  ASSERT_TRUE(stored.id().has_value());
  const auto state = [&] { return RunStore(store, RunStore::Mode::ReadOnly).load(stored.id()).state; };
  EXPECT_EQ(state(), RunState::Unfinished);
  stored.fail("Rank 1: cause");
  EXPECT_EQ(state(), RunState::Failed);
  EXPECT_EQ(RunStore(store, RunStore::Mode::ReadOnly).load(stored.id()).failure, "Rank 1: cause");
}

}  // namespace
}  // namespace pw
