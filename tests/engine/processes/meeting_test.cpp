#include "engine/processes/meeting.h"

#include <chrono>
#include <functional>
#include <vector>

#include <gmock/gmock.h>

#include "engine/worker.h"
#include "tests/support/rank_threads.h"

namespace pw {
namespace {

using namespace std::chrono_literals;
using testing::AllOf;
using testing::Each;
using testing::HasSubstr;
using testing::StartsWith;

constexpr auto kLong = std::chrono::milliseconds(20s);

JobFields fields(const std::string& rate = "0.01", const std::string& seed = "0", const std::string& plan = "aaaa") {
  return {{"the plan", plan, "plan.json " + plan}, {"--lr", rate, rate}, {"--seed", seed, seed}, {"the data", "", ""}};
}

using Act = std::function<void(int, const Rendezvous&)>;

/// What each rank of a job ended with.
std::vector<std::string> outcomes(int ranks, std::chrono::milliseconds deadline, const Act& act) {
  return test::endsOf(ranks, [&](const RankEnvironment& mine) { act(mine.rank.value, rendezvousOf(mine, deadline)); });
}

/// Rank 0 serves until all have heard, as in a job whose ranks then connect.
void agreeAndStay(int rank, const Rendezvous& place, const JobFields& mine) {
  const Meeting meeting = openMeeting(place);
  requireSameFields(meeting, place, mine);
  meeting.set("done/" + std::to_string(rank), "");
  for (int r = 0; rank == 0 && r < place.size; ++r) static_cast<void>(meeting.dictionary().get("done/" + std::to_string(r)));
}

TEST(Agree, LetsRanksGoOnThatAreAboutToDoTheSame) {
  EXPECT_THAT(outcomes(3, kLong, [](int r, const Rendezvous& place) { agreeAndStay(r, place, fields()); }), Each("well"));
}

TEST(Agree, EndsAllRanksWhereOneDiffers) {
  const auto said = outcomes(
      3, kLong, [](int r, const Rendezvous& place) { requireSameFields(openMeeting(place), place, fields(r == 2 ? "0.1" : "0.01")); });
  EXPECT_THAT(said, Each(std::string("usage: Rank 0 and rank 2 differ in --lr: 0.01 and 0.1; start all ranks with the same")));
}

TEST(Agree, NamesTheRankThatDoesNotCome) {
  const auto said = outcomes(3, 200ms, [](int r, const Rendezvous& place) {
    if (r != 1) requireSameFields(openMeeting(place), place, fields());
  });
  EXPECT_EQ(said[1], "well") << "it was not there";
  EXPECT_THAT(said[0], AllOf(StartsWith("error: rank 1 did not come"), HasSubstr("within 200 ms")));
  EXPECT_EQ(said[2], said[0]) << "rank 0 tells the others who is missing";
}

TEST(Agree, EndsAllRanksWithTheReasonOfTheOneThatCannotTakePart) {
  for (const int victim : {0, 1, 2}) {
    const auto said = outcomes(3, kLong, [&](int r, const Rendezvous& place) {
      if (r == victim)
        reportAbsence(place, "Rank " + std::to_string(victim) + ": no such file", true);
      else
        requireSameFields(openMeeting(place), place, fields());
    });
    for (int r = 0; r < 3; ++r)
      EXPECT_EQ(said[static_cast<std::size_t>(r)], r == victim ? "well" : "usage: Rank " + std::to_string(victim) + ": no such file")
          << victim;
  }
}

TEST(DifferenceBetween, NamesTheFirstFieldAndCountsTheOthers) {
  EXPECT_EQ(differenceBetween(fields(), fields(), JobRank(1)), "");
  EXPECT_EQ(
      differenceBetween(fields(), fields("0.1", "7", "bbbb"), JobRank(5)),
      "Rank 0 and rank 5 differ in the plan: plan.json aaaa and plan.json bbbb (and in --lr and 1 more); start all ranks with the same");
  EXPECT_EQ(differenceBetween({{"--clip", "1", "1"}}, {}, JobRank(1)),
            "Rank 0 and rank 1 differ in --clip: 1 and none; start all ranks with the same");
  EXPECT_EQ(differenceBetween({}, {{"--clip", "1", ""}}, JobRank(1)), "Rank 0 and rank 1 differ in --clip; start all ranks with the same");
}

}  // namespace
}  // namespace pw
