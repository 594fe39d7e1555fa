// Every transport that connects hosts, by the contract that all keep.

#include <unistd.h>

#include <memory>

#include "backends/messages/meeting.h"
#include "backends/torch/backend.h"
#include "engine/processes/connect.h"
#include "tests/support/channel_contract.h"
#include "tests/support/communicator_contract.h"
#include "tests/support/host_transports.h"
#include "tests/support/loopback.h"

namespace pw {
namespace {

using test::Listener;

Rendezvous meetingAt(const Listener& listener, JobRank rank, int ranks, std::chrono::milliseconds deadline) {
  Rendezvous meeting;
  meeting.rank = rank;
  meeting.size = ranks;
  meeting.masterPort = listener.port;
  if (rank == JobRank(0)) meeting.listenFd = ::dup(listener.fd.get());  // the store closes it
  meeting.deadline = deadline;
  return meeting;
}

std::vector<TestedTransport> testedTransports() {
  std::vector<TestedTransport> all;
  for (const Transport transport : test::hostTransports()) {
    const TransportFacts facts = factsOf(transport);
    all.push_back({.name = std::string(facts.name),
                   .tellsDone = facts.tellsArrivals,
                   .checksSizes = transport != Transport::Gloo,
                   .newJob = [transport](int ranks, std::chrono::milliseconds deadline) -> Connect {
                     return [transport, ranks, deadline, listener = std::make_shared<Listener>()](JobRank rank) {
                       return connectRanks(transport, meetingAt(*listener, rank, ranks, deadline), torchBackend());
                     };
                   }});
  }
  return all;
}

INSTANTIATE_TEST_SUITE_P(Connected, CommunicatorContract, testing::ValuesIn(testedTransports()), testing::PrintToStringParamName());

/// Over the meeting of the ranks, as in a job.
std::vector<TestedLink> hostLinks() {
  std::vector<TestedLink> all;
  for (const Transport transport : valuesOf<Transport>()) {
    if (factsOf(transport).onGpu) continue;
    all.push_back({.name = std::string(factsOf(transport).name), .newJob = [transport](int ranks) {
                     const auto listener = std::make_shared<Listener>();
                     std::vector<LinkMaker> links;
                     for (int r = 0; r < ranks; ++r) {
                       const Rendezvous meeting = meetingAt(*listener, JobRank(r), ranks, kPatience);
                       links.push_back(
                           {.rank = JobRank(r), .size = ranks, .connect = [=](LinkEvents events) {
                              static_cast<void>(listener);  // lives until then
                              return linkRanks(transport, meeting, meet(meeting).dictionary(), torchBackend()).connect(std::move(events));
                            }});
                     }
                     return links;
                   }});
  }
  return all;
}

INSTANTIATE_TEST_SUITE_P(Connected, MessageChannelContract, testing::ValuesIn(hostLinks()), testing::PrintToStringParamName());

TEST(ConnectRanks, RefusesTransportsOfGpusWithoutAGpu) {
  EXPECT_THAT(failureOf([] { (void)connectRanks(Transport::Nccl, {}, {}, torchBackend()); }),
              testing::HasSubstr("the transport nccl is for GPUs; use ucx or gloo"));
}

TEST(ConnectRanks, ARankThatDoesNotComeIsAnErrorNamingTheMeetingPlace) {
  for (const Transport transport : test::hostTransports()) {
    const Listener listener;
    const Rendezvous meeting = meetingAt(listener, JobRank(0), 2, std::chrono::milliseconds(300));
    const std::string place = "127.0.0.1:" + std::to_string(listener.port);
    EXPECT_THAT(failureOf([&] { (void)connectRanks(transport, meeting, torchBackend()); }), testing::HasSubstr(place)) << nameOf(transport);
  }
}

}  // namespace
}  // namespace pw
