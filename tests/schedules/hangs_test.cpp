#include <fstream>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "schedules/check.h"
#include "schedules/csv.h"
#include "schedules/error.h"
#include "schedules/generate.h"
#include "schedules/lower.h"
#include "tests/schedules/blocking_executor.h"

namespace pw {
namespace {

using test::Transport;

Schedule fixture(const std::string& name) {
  const std::string path = PW_SOURCE_DIR "/tests/data/hangs/" + name + ".csv";
  std::ifstream file(path);
  EXPECT_TRUE(file.is_open()) << path;
  std::ostringstream text;
  text << file.rdbuf();
  return parseCsv(text.str(), name, path);
}

/// What is said of the schedule: for each problem the transport it stops, and the sentence.
std::vector<std::pair<Stops, std::string>> sentences(const std::vector<Problem>& problems) {
  std::vector<std::pair<Stops, std::string>> all;
  for (const Problem& p : problems) all.emplace_back(p.stops, p.message);
  return all;
}
using Sentences = std::vector<std::pair<Stops, std::string>>;

/// Whether threads, one per rank, get through the schedule.
bool runs(const Schedule& schedule, Transport transport) {
  std::vector<std::unique_ptr<test::BlockingRun>> one;
  one.push_back(std::make_unique<test::BlockingRun>(schedule, transport));
  test::runAll(one);
  return one[0]->finished();
}

TEST(Hangs, AReceiveBeforeIndependentWorkLetsBothRanksWaitInSend) {
  const Schedule schedule = fixture("both_wait_in_send");
  EXPECT_EQ(sentences(check(schedule)),
            (Sentences{{Stops::OneChannel,
                        "deadlock where ranks 0 and 1 share one channel for both directions (separate channels avoid it): "
                        "operation 2 on it is 0SEND_F1 of rank 0 (position 3), but 1SEND_B0 of rank 1 (position 5)"},
                       {Stops::Blocking,
                        "deadlock only under blocking sends (buffered sends avoid it): rank 0 at position 3 (0SEND_F1) waits "
                        "for 1RECV_F1 of rank 1; rank 1 at position 5 (1SEND_B0) waits for 0RECV_B0 of rank 0"}}));
  EXPECT_TRUE(runs(schedule, Transport::Buffered));
  EXPECT_FALSE(runs(schedule, Transport::Rendezvous));
}

TEST(Hangs, ReceivesBeforeIndependentWorkOnBothRanksStopEveryTransport) {
  const Schedule schedule = fixture("both_wait_in_receive");
  EXPECT_EQ(sentences(check(schedule)),
            (Sentences{{Stops::Always,
                        "deadlock: rank 0 at position 2 (0RECV_B0) waits for 1SEND_B0 of rank 1; rank 1 at position 2 "
                        "(1RECV_F1) waits for 0SEND_F1 of rank 0"}}));
  EXPECT_FALSE(runs(schedule, Transport::Buffered));
}

TEST(Hangs, AnInvertedOrderOnOneChannelIsNamedAtBothEnds) {
  const Schedule schedule = fixture("inverted_order");
  EXPECT_EQ(sentences(check(schedule)),
            (Sentences{{Stops::Always,
                        "1RECV_F1 is receive 1 from rank 0, but rank 0's send 1 to rank 1 is 0SEND_F0 (position 1); a channel "
                        "hands messages over in the order they are sent"}}));
  EXPECT_FALSE(runs(schedule, Transport::Buffered));
}

TEST(Hangs, OneCommunicatorForBothDirectionsStopsWhatTwoLetRun) {
  const Schedule schedule = fixture("one_communicator");
  const Sentences said = sentences(check(schedule));
  ASSERT_EQ(said.size(), 2U);
  EXPECT_EQ(said[0], (std::pair{Stops::OneChannel,
                                std::string("deadlock where ranks 0 and 1 share one channel for both directions (separate channels avoid "
                                            "it): operation 2 on it is 0SEND_F1 of rank 0 (position 3), but 1SEND_B0 of rank 1 "
                                            "(position 3)")}));
  EXPECT_EQ(said[1].first, Stops::Blocking);
  EXPECT_TRUE(runs(schedule, Transport::Buffered));
  EXPECT_FALSE(runs(schedule, Transport::OneChannel));
}

TEST(Hangs, LoweringTheSameComputeActionsAgainCuresEveryOrderOfMessages) {
  for (const char* name : {"both_wait_in_send", "both_wait_in_receive", "inverted_order", "one_communicator"}) {
    const Schedule cured = lower(computeOnly(fixture(name)));
    EXPECT_TRUE(check(cured).empty()) << name << "\n" << toCsv(cured);
    for (const Transport t : {Transport::Buffered, Transport::OneChannel, Transport::Rendezvous}) EXPECT_TRUE(runs(cured, t)) << name;
  }
}

TEST(Hangs, SizesThatDifferBetweenSenderAndReceiverAreNamed) {
  // 8 samples of 128 × 512 numbers: sent as float, expected as bfloat16.
  constexpr Bytes kNumbers = 8 * 128 * 512;
  const Schedule schedule = lower(generate("1f1b", {2, 2, 4}));
  EXPECT_TRUE(checkSizes(schedule, {{4 * kNumbers, 0}, {0, 4 * kNumbers}}).empty());
  EXPECT_EQ(sentences(checkSizes(schedule, {{4 * kNumbers, 0}, {0, 2 * kNumbers}})),
            (Sentences{{Stops::Always,
                        "stage 0 sends 2097152 bytes to stage 1, which expects 1048576 bytes (1RECV_F0): the receive hangs or reads wrong "
                        "values, and so does that of the gradient"}}));
}

/// What `generate` refuses a shape with.
std::string refusal(const char* name, const Shape& shape) {
  try {
    (void)generate(name, shape);
  } catch (const UsageError& error) {
    return error.what();
  }
  return "nothing refused";
}

TEST(Hangs, FewerMicrobatchesThanTheRuleNeedsAreRefusedBeforeThereIsASchedule) {
  EXPECT_EQ(refusal("zb-h2", {4, 4, 6}),
            "schedule zb-h2 needs at least 7 microbatches on 4 ranks (you have 6); use 7, or the schedule zb-h1");
  EXPECT_EQ(refusal("zb-h2", {4, 4, 7}), "nothing refused");
  EXPECT_EQ(refusal("dualpipe", {4, 4, 6}),
            "schedule dualpipe needs an even number of microbatches, at least two per rank, but there are 6 "
            "on 4 ranks; use 8");
  EXPECT_EQ(refusal("dualpipev", {4, 8, 7}),
            "schedule dualpipev needs at least two microbatches per rank, but there are 7 on 4 ranks; use 8");
  EXPECT_EQ(generatorOf("1f1b").torchRefusal({4, 4, 3}),
            "torch's 1F1B needs at least as many microbatches as stages, but there are 3 and 4; use 4 microbatches");
  EXPECT_EQ(generatorOf("1f1b").torchRefusal({4, 4, 4}), std::nullopt);
  EXPECT_TRUE(check(lower(generate("1f1b", {4, 4, 3}))).empty()) << "ours runs it all the same";
}

}  // namespace
}  // namespace pw
