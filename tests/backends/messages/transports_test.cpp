// The transports of the LibTorch module, and UCX meeting at its store.

#include <unistd.h>

#include <memory>

#include "backends/torch/backend.h"
#include "engine/connect.h"
#include "tests/support/communicator_contract.h"
#include "tests/support/loopback.h"

namespace pw {
namespace {

using test::Listener;

Rendezvous meetingAt(const Listener& listener, Rank rank, int ranks, std::chrono::milliseconds deadline) {
  Rendezvous meeting;
  meeting.rank = rank;
  meeting.size = ranks;
  meeting.masterPort = listener.port;
  if (rank == Rank(0)) meeting.listenFd = ::dup(listener.fd.get());  // the store closes it
  meeting.deadline = deadline;
  return meeting;
}

Transport transport(const std::string& name, bool tellsDone, bool checksSizes) {
  return {.name = name,
          .tellsDone = tellsDone,
          .checksSizes = checksSizes,
          .newJob = [name](int ranks, std::chrono::milliseconds deadline) -> Connect {
            return [name, ranks, deadline, listener = std::make_shared<Listener>()](Rank rank) {
              return connectRanks(name, meetingAt(*listener, rank, ranks, deadline), torchBackend());
            };
          }};
}

INSTANTIATE_TEST_SUITE_P(Gloo, CommunicatorContract, testing::Values(transport("gloo", false, false)), testing::PrintToStringParamName());
INSTANTIATE_TEST_SUITE_P(UcxAtTheStore, CommunicatorContract, testing::Values(transport("ucx", true, true)),
                         testing::PrintToStringParamName());

TEST(ConnectRanks, RefusesTransportsThatAreNotThere) {
  EXPECT_THAT(failureOf([] { (void)connectRanks("carrier_pigeon", {}, torchBackend()); }), testing::HasSubstr("'carrier_pigeon'"));
}

TEST(ConnectRanks, ARankThatDoesNotComeIsAnErrorNamingTheMeetingPlace) {
  for (const char* name : {"ucx", "gloo"}) {
    const Listener listener;
    const Rendezvous meeting = meetingAt(listener, Rank(0), 2, std::chrono::milliseconds(300));
    const std::string place = "127.0.0.1:" + std::to_string(listener.port);
    EXPECT_THAT(failureOf([&] { (void)connectRanks(name, meeting, torchBackend()); }), testing::HasSubstr(place)) << name;
  }
}

}  // namespace
}  // namespace pw
