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

RunSettings settingsIn(const Folder& folder) {
  RunSettings settings;
  settings.plan = folder.with("plan.json", toJson(test::planOfTwoStages()));
  settings.synthetic = true;
  return settings;
}

std::string refusalOf(const auto& work) {
  try {
    work();
  } catch (const UsageError& e) {
    return e.what();
  }
  return "";
}

TEST(PlanToRun, CompletesTheSettingsByHowThePlanWasProfiled) {
  const Folder folder;
  RunSettings settings = settingsIn(folder);
  settings.optimizer = OptimizerSpec::Kind::Adam;
  settings.betas = {0.8, 0.9};
  const Plan plan = planToRun(settings);
  EXPECT_EQ(plan.schedule, test::planOfTwoStages().schedule);
  EXPECT_EQ(settings.transport, defaultTransport(false));
  EXPECT_FALSE(settings.computing.onGpu);
  EXPECT_EQ(settings.threads, plan.profile.threads);
  EXPECT_EQ(settings.update.beta1, 0.8);
  EXPECT_EQ(settings.update.beta2, 0.9);
}

TEST(PlanToRun, RefusesAModelThatIsNoLongerThereAndTakesAnother) {
  const Folder folder;
  RunSettings settings = settingsIn(folder);
  settings.synthetic = false;
  EXPECT_NE(refusalOf([&] { static_cast<void>(planToRun(settings)); }).find("/nowhere/small.pt2, does not exist"), std::string::npos);
  Plan plan = test::planOfTwoStages();
  settings.models = {"/a.pt2", "/b.pt2"};
  EXPECT_NE(refusalOf([&] { takeModels(settings, plan); }).find("is of 1 archive, and --model names 2"), std::string::npos);
  settings.models = {"/a.pt2"};
  takeModels(settings, plan);
  EXPECT_EQ(plan.modelFiles, std::vector<std::string>{"/a.pt2"});
}

TEST(NotesOn, TellThatAPlanDoesNotIdentifyItsModel) {
  const Folder folder;
  RunSettings settings = settingsIn(folder);
  const Plan plan = planToRun(settings);
  EXPECT_TRUE(notesOn(settings, plan).empty()) << "nothing is computed";
  settings.synthetic = false;
  ASSERT_EQ(notesOn(settings, plan).size(), 1U);
  EXPECT_NE(notesOn(settings, plan).front().find("older version"), std::string::npos);
}

TEST(PrepareFiles, RefusesAFolderAsACheckpoint) {
  const Folder folder;
  RunSettings settings;
  settings.save = folder.file("");
  while (settings.save.ends_with('/')) settings.save.pop_back();
  EXPECT_NE(refusalOf([&] { prepareFiles(settings); }).find("is a folder"), std::string::npos);
}

TEST(FlightNote, NamesARecordThatWasWrittenSinceTheStart) {
  const Folder folder;
  RunSettings settings;
  settings.store = folder.file("runs.db");
  const FileTime before = FileTime::clock::now() - std::chrono::hours(1);
  EXPECT_EQ(flightNote(settings, before, 0, 2), "");
  const std::string file = flightFiles(settings) + "1.json";
  std::ofstream(file) << "{}";
  EXPECT_EQ(flightNote(settings, before, 1, 1), "; see " + file + " for what it did last and waited for");
  EXPECT_EQ(flightNote(settings, FileTime::clock::now() + std::chrono::hours(1), 1, 1), "") << "of an earlier run";
}

TEST(StoredRun, IsUnfinishedUntilItEndsAndDoesNothingWithoutAStore) {
  const Folder folder;
  RunSettings settings = settingsIn(folder);
  const Plan plan = planToRun(settings);
  StoredRun nowhere(settings, plan);
  nowhere.begin();
  nowhere.fail("cause");
  EXPECT_FALSE(nowhere.id().has_value());
  settings.store = folder.file("runs.db");
  StoredRun stored(settings, plan);
  stored.begin();
  ASSERT_TRUE(stored.id().has_value());
  const auto state = [&] { return RunStore(settings.store, RunStore::Mode::ReadOnly).load(stored.id()).state; };
  EXPECT_EQ(state(), RunState::Unfinished);
  stored.fail("Rank 1: cause");
  EXPECT_EQ(state(), RunState::Failed);
  EXPECT_EQ(RunStore(settings.store, RunStore::Mode::ReadOnly).load(stored.id()).failure, "Rank 1: cause");
}

}  // namespace
}  // namespace pw
