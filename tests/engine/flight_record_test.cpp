#include "engine/flight_record.h"
#include "backends/messages/in_memory_communicator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <filesystem>

#include "schedules/generate.h"
#include "schedules/lower.h"
#include "tests/support/collective_communicator.h"
#include "tests/support/folder.h"
#include "tests/support/number_stage.h"

namespace pw {
namespace {

using nlohmann::json;
using test::chainPlan;
using test::NumberJob;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::MatchesRegex;
using testing::Not;

/// Says of all that was not waited for how far it is, and never waits.
class StandingCommunicator final : public Communicator {
 public:
  [[nodiscard]] JobRank rank() const override { return JobRank(1); }
  [[nodiscard]] int size() const override { return 2; }
  Request send(JobRank, std::uint32_t, Buffer) override { return 0; }
  Request receive(JobRank, std::uint32_t, Buffer) override { return 0; }
  void wait(Request request) override {
    if (states.at(request) != MessageState::Done) throw Error("too late");
  }
  [[nodiscard]] std::optional<bool> isDone(Request) override { return std::nullopt; }
  [[nodiscard]] std::size_t waitAny(std::span<const Request>) override { return 0; }
  void progress() override {}
  [[nodiscard]] MessageState stateOf(Request request) noexcept override { return states.at(request); }
  void barrier() override {}
  void abort() noexcept override {}

  std::vector<MessageState> states;
};

FlightEntry value(int stage, ActionKind kind, int microbatch, int peer, bool sending, Communicator::Request request) {
  return {.what = FlightEntry::What::Value,
          .sending = sending,
          .action = {Stage(stage), kind, Microbatch(microbatch)},
          .peer = JobRank(peer),
          .tag = 9,
          .bytes = 8,
          .request = request};
}

FlightEntry computing(int microbatch) {
  return {.what = FlightEntry::What::Compute, .action = {Stage(1), ActionKind::Forward, Microbatch(microbatch)}};
}

std::vector<std::string> namesOf(const json& report) {
  std::vector<std::string> names;
  for (const auto& entry : report.at("entries")) names.push_back(entry.at("what"));
  return names;
}

const json* entryOf(const json& report, const std::string& what) {
  for (const auto& entry : report.at("entries")) {
    if (entry.at("what") == what) return &entry;
  }
  return nullptr;
}

TEST(FlightRecord, TellsFirstWhatTheRankWaitsForAndWhatIsOpenLongest) {
  const Plan plan = chainPlan(lower(generate("1f1b", {2, 2, 4})));
  StandingCommunicator communicator;
  communicator.states = {MessageState::Done, MessageState::Moving, MessageState::Waiting, MessageState::Unknown};
  FlightRecord flights;
  flights.begin(3);
  static_cast<void>(flights.add(value(1, ActionKind::Backward, 0, 0, true, 0)));
  static_cast<void>(flights.add(value(1, ActionKind::Backward, 1, 0, true, 1)));
  const auto awaited = flights.add(value(0, ActionKind::Forward, 2, 0, false, 2));
  flights.end(flights.add(computing(1)));
  static_cast<void>(flights.add(computing(2)));
  EXPECT_EQ(flights.awaited(plan, communicator), "");
  EXPECT_THROW(flights.await(communicator, 2, awaited), Error);
  EXPECT_THAT(flights.awaited(plan, communicator), MatchesRegex("waited for 0F2 from rank 0 \\(posted .+ ago, not begun\\)"));
  const auto report = nlohmann::ordered_json::parse(flights.toJson(plan, communicator, false, "why"));
  EXPECT_EQ(report.begin().key(), "awaited");
  EXPECT_EQ(report["awaited"]["what"], "0F2 from rank 0");
  EXPECT_EQ(report["awaited"]["state"], "waiting");
  EXPECT_EQ(report["oldest_open"]["what"], "SEND 1B1 to rank 0") << "the one before it is done";
  EXPECT_EQ(report["oldest_open"]["state"], "moving");
  EXPECT_EQ(report["step"], 3);
  EXPECT_EQ(report["rank"], 1);
  EXPECT_EQ(report["failure"], "why");
  EXPECT_THAT(namesOf(report), ElementsAre("SEND 1B0 to rank 0", "SEND 1B1 to rank 0", "0F2 from rank 0", "1F1", "1F2"));
  EXPECT_EQ(report["entries"][3]["state"], "done");
  EXPECT_EQ(report["entries"][4]["state"], "begun");
  EXPECT_EQ(report["entries"][0]["tag"], 9);
  EXPECT_EQ(report["entries"][0]["bytes"], 8);
  EXPECT_GE(report["failed_ns"], report["entries"][4]["enqueued_ns"]);
}

TEST(FlightRecord, KeepsTheLast256EntriesAndAllThatIsOpen) {
  const Plan plan = chainPlan(lower(generate("1f1b", {2, 2, 4})));
  StandingCommunicator communicator;
  communicator.states = {MessageState::Waiting, MessageState::Done};
  FlightRecord flights;
  flights.begin(0);
  static_cast<void>(flights.add(value(0, ActionKind::Forward, 0, 0, false, 0)));
  const auto ends = flights.add(value(0, ActionKind::Forward, 1, 0, false, 1));
  for (int m = 0; m < 1000; ++m) flights.end(flights.add(computing(m)));
  const auto names = [&] { return namesOf(json::parse(flights.toJson(plan, communicator, false, ""))); };
  ASSERT_EQ(names().size(), 258U);
  EXPECT_EQ(names()[0], "0F0 from rank 0");
  EXPECT_EQ(names()[1], "0F1 from rank 0");
  EXPECT_EQ(names()[2], "1F744");
  EXPECT_EQ(names().back(), "1F999");
  flights.await(communicator, 1, ends);
  ASSERT_EQ(names().size(), 257U) << "what has ended long ago is forgotten";
  EXPECT_EQ(names()[0], "0F0 from rank 0");
  EXPECT_EQ(json::parse(flights.toJson(plan, communicator, false, ""))["entries_before"], 1002 - 256);
  flights.begin(1);
  EXPECT_TRUE(names().empty()) << "a step tells of itself alone";
}

TEST(FlightRecord, NamesTheHalfOfASplitBackwardThatSends) {
  StandingCommunicator communicator;
  communicator.states = {MessageState::Waiting};
  FlightRecord flights;
  flights.begin(0);
  static_cast<void>(flights.add(value(1, ActionKind::Backward, 0, 1, false, 0)));
  const auto nameIn = [&](const char* family) {
    return namesOf(json::parse(flights.toJson(chainPlan(lower(generate(family, {2, 2, 4}))), communicator, false, ""))).front();
  };
  EXPECT_EQ(nameIn("1f1b"), "1B0 from rank 1");
  EXPECT_EQ(nameIn("zb-h1"), "1I0 from rank 1");
}

/// Ranks that fail write their records into a folder.
class FailedStep : public testing::Test {
 protected:
  ExecutorOptions options() const { return {.flightFiles = folder_.file("flight-rank-")}; }
  [[nodiscard]] bool wrote(int rank) const { return std::filesystem::exists(flightFile(folder_.file("flight-rank-"), JobRank(rank))); }
  [[nodiscard]] json report(int rank) const {
    return json::parse(test::contentOf(flightFile(folder_.file("flight-rank-"), JobRank(rank))));
  }
  test::Folder folder_;
};

TEST_F(FailedStep, OfARankWhosePeerNeverSendsTellsWhatItWaitedFor) {
  const Plan plan = chainPlan(lower(generate("gpipe", {2, 2, 2})));
  NumberJob job = test::prepareJob(plan);
  auto communicators = inMemoryCommunicators(2, std::chrono::milliseconds(50));
  test::runJob(job, plan, communicators, options(), [&](Executor& executor, std::size_t r) {
    if (r == 0) return executor.step(7, {});
    communicators[1]->barrier();  // and stays away
    return StepLog{};
  });
  EXPECT_THAT(job.errors[0], AllOf(HasSubstr("action 0B0"), HasSubstr("it waited for 1B0 from rank 1 (posted ")));
  ASSERT_TRUE(wrote(0));
  const json told = report(0);
  EXPECT_EQ(told["failure"], job.errors[0]);
  EXPECT_EQ(told["step"], 7);
  EXPECT_EQ(told["awaited"]["what"], "1B0 from rank 1");
  EXPECT_EQ(told["awaited"]["ended_ns"], nullptr);
  EXPECT_EQ(told["oldest_open"]["what"], "1B0 from rank 1");
  EXPECT_THAT(namesOf(told), ElementsAre("all ranks at a barrier", "0F0", "SEND 0F0 to rank 1", "1B0 from rank 1", "0F1",
                                         "SEND 0F1 to rank 1", "1B1 from rank 1"));
  EXPECT_GE(told["failed_ns"].get<Ns>() - told["awaited"]["enqueued_ns"].get<Ns>(), 50'000'000) << "the deadline";
  EXPECT_FALSE(wrote(1));
}

TEST_F(FailedStep, IsWrittenByAllRanksThatNoticeAFailure) {
  const Plan plan = chainPlan(lower(generate("1f1b", {3, 3, 4})));
  NumberJob job = test::prepareJob(plan);
  job.stages[1].at(Stage(1))->failAt = "B1";
  auto communicators = inMemoryCommunicators(3, std::chrono::seconds(20));
  test::runJob(job, plan, communicators, options(), [](Executor& executor, std::size_t) { return executor.step(0, {}); });
  for (int r = 0; r < 3; ++r) {
    ASSERT_TRUE(wrote(r)) << "rank " << r;
    EXPECT_EQ(report(r)["failure"], job.errors[static_cast<std::size_t>(r)]);
  }
  EXPECT_EQ(report(1)["awaited"], nullptr) << "it failed by itself";
  EXPECT_EQ((*entryOf(report(1), "1B1"))["state"], "begun");
  EXPECT_THAT(report(0)["awaited"]["what"], HasSubstr("from rank 1"));
}

TEST_F(FailedStep, NamesReductionsByTheirStageAndTheOtherRanks) {
  // One stage, three replicas; the third stays away once it has sent its gradients to nobody.
  for (const bool collective : {false, true}) {
    const Plan plan = chainPlan(withReductions(lower(generate("gpipe", {1, 1, 1}))), {}, 3);
    NumberJob job = test::prepareJob(plan);
    auto communicators = inMemoryCommunicators(3, std::chrono::milliseconds(100));
    for (auto& communicator : communicators)
      communicator = std::make_unique<test::CollectiveCommunicator>(std::move(communicator), collective);
    test::runJob(job, plan, communicators, options(), [&](Executor& executor, std::size_t r) {
      if (r < 2) return executor.step(0, {});
      communicators[2]->barrier();
      return StepLog{};
    });
    EXPECT_THAT(job.errors[0], HasSubstr(collective ? "it waited for gradients of stage 0 with ranks 0 1 2"
                                                    : "it waited for gradients of stage 0 from rank 2"));
    const json told = report(0);
    ASSERT_NE(entryOf(told, collective ? "gradients of stage 0 with ranks 0 1 2" : "SEND gradients of stage 0 to rank 2"), nullptr);
    EXPECT_EQ(entryOf(told, collective ? "SEND gradients of stage 0 to rank 2" : "gradients of stage 0 with ranks 0 1 2"), nullptr);
  }
}

TEST_F(FailedStep, IsTheSameFailureWhereItsRecordCannotBeWritten) {
  const Plan plan = chainPlan(lower(generate("gpipe", {1, 1, 2})));
  for (const std::string& files : {folder_.file("no/such/folder/flight-rank-"), std::string()}) {
    NumberJob job = test::prepareJob(plan);
    job.stages[0].at(Stage(0))->failAt = "B1";
    auto communicators = inMemoryCommunicators(1, std::chrono::seconds(20));
    test::runJob(job, plan, communicators, {.flightFiles = files}, [](Executor& executor, std::size_t) { return executor.step(0, {}); });
    EXPECT_THAT(job.errors[0], AllOf(HasSubstr("Rank 0 failed in step 0, action 0B1: out of memory"), Not(HasSubstr("folder"))));
  }
}

TEST_F(FailedStep, ReplacesTheRecordOfTheFailureBefore) {
  const Plan plan = chainPlan(lower(generate("gpipe", {1, 1, 2})));
  for (const char* failing : {"F1", "B1"}) {
    NumberJob job = test::prepareJob(plan);
    job.stages[0].at(Stage(0))->failAt = failing;
    auto communicators = inMemoryCommunicators(1, std::chrono::seconds(20));
    test::runJob(job, plan, communicators, options(), [](Executor& executor, std::size_t) { return executor.step(0, {}); });
    EXPECT_EQ(report(0)["oldest_open"]["what"], "0" + std::string(failing));
  }
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(std::filesystem::path(folder_.file("x")).parent_path()), {}), 1)
      << "no other file is left";
}

}  // namespace
}  // namespace pw
