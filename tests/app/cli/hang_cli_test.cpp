#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/app/cli/call.h"

namespace pw {
namespace {

using test::call;
using test::Outcome;
using testing::HasSubstr;

const std::string kData = std::string(PW_SOURCE_DIR) + "/tests/data/torch_hangs/";

TEST(Hang, NamesTheSilentRankAndTheActionThatWaitsForIt) {
  const Outcome text = call({"hang", kData + "killed", "--schedule", kData + "killed/schedule.csv"});
  EXPECT_EQ(text.status, 1);
  EXPECT_THAT(text.out, HasSubstr("silent_rank: rank 2 is silent: it left no dump, and the schedule has 2F1 (position 3) next; "
                                  "rank 1 waits in 1RECV_B0 (position 6) for rank 2\n"));
  EXPECT_THAT(text.out, HasSubstr("2 dumps of 3 ranks; missing: 2\n"));
  const Outcome json = call({"hang", kData + "killed", "--schedule", kData + "killed/schedule.csv", "--json"});
  EXPECT_EQ(json.status, 1);
  const auto document = nlohmann::json::parse(json.out);
  EXPECT_EQ(document["version"], 1);
  EXPECT_EQ(document["verdict"], "silent_rank");
  EXPECT_EQ(document["first_stuck"]["rank"], 1);
  EXPECT_EQ(document["first_stuck"]["action"], "1RECV_B0");
  EXPECT_EQ(document["first_stuck"]["position"], 6);
  EXPECT_EQ(document["silent_ranks"][0]["rank"], 2);
  EXPECT_EQ(document["missing_ranks"], nlohmann::json::array({2}));
  EXPECT_EQ(document["check_would_catch"], false);
}

TEST(Hang, SaysThatCheckWouldHaveCaughtADeadlock) {
  const Outcome outcome = call({"hang", kData + "inverted_order", "--schedule", kData + "inverted_order/schedule.csv", "--json"});
  EXPECT_EQ(outcome.status, 1);
  const auto document = nlohmann::json::parse(outcome.out);
  EXPECT_EQ(document["verdict"], "cycle");
  EXPECT_EQ(document["cycle"].size(), 2U);
  EXPECT_EQ(document["check_would_catch"], true);
  EXPECT_EQ(document["problems"][0]["stops"], "always");
}

TEST(Hang, DumpsWithoutSendsAndReceivesCannotTell) {
  const test::Folder folder;
  for (const int rank : {0, 1}) {
    // As torch 2.11 writes it for a job on Gloo that hangs in a receive.
    static_cast<void>(
        folder.with("rank" + std::to_string(rank) + ".json",
                    R"({"comm_lib_version":"","nccl_comm_state":{},"pg_config":{"":{"desc":"","name":"","ranks":"[0, 1]"}},"pg_status":{},)"
                    R"("version":"2.10"})"));
  }
  const Outcome text = call({"hang", folder.file("")});
  EXPECT_EQ(text.status, 2);
  EXPECT_THAT(text.out, HasSubstr("cannot_tell: the dumps hold no send or receive"));
  EXPECT_THAT(text.out, HasSubstr("dump a job on NCCL"));
  const Outcome json = call({"hang", folder.file(""), "--schedule", kData + "inverted_order/schedule.csv", "--json"});
  EXPECT_EQ(json.status, 2);
  const auto document = nlohmann::json::parse(json.out);
  EXPECT_EQ(document["verdict"], "cannot_tell");
  EXPECT_EQ(document["check_would_catch"], nullptr);
}

TEST(Hang, DoesNotSayThatARankLeftNoDumpWhereOneIsDamaged) {
  const test::Folder folder;
  const std::string rank0 = test::contentOf(kData + "inverted_order/nccl_trace_rank_0.json");
  const std::string rank1 = test::contentOf(kData + "inverted_order/nccl_trace_rank_1.json");
  static_cast<void>(folder.with("nccl_trace_rank_0.json", rank0));
  static_cast<void>(folder.with("nccl_trace_rank_1.json", rank1.substr(0, rank1.size() / 2)));
  const Outcome outcome = call({"hang", folder.file("")});
  EXPECT_EQ(outcome.status, 1);
  EXPECT_THAT(outcome.out, HasSubstr("rank 1 is silent: none of the dumps that could be read is its; rank 0 waits in gloo:recv"));
  EXPECT_THAT(outcome.out, HasSubstr("nccl_trace_rank_1.json is left out: it is damaged"));
}

TEST(Hang, RefusesWhatIsNoDump) {
  EXPECT_EQ(call({"hang", kData + "truths.json"}).status, 2);
  EXPECT_EQ(call({"hang", kData + "none"}).status, 2);
  EXPECT_THAT(call({"hang", "nosuch"}).err, testing::StartsWith("pipewright: nosuch cannot be read: ")) << "a name keeps its letters";
  EXPECT_EQ(call({"hang"}).status, 2);
}

}  // namespace
}  // namespace pw
