#include "backends/messages/local_address.h"

#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "schedules/error.h"
#include "tests/support/shared_store.h"

namespace pw {
namespace {

using ::testing::HasSubstr;

TEST(LocalAddress, TowardsThisHostIsItsLoopback) {
  EXPECT_EQ(localAddressTowards("127.0.0.1"), "127.0.0.1");
  EXPECT_EQ(localAddressTowards("127.0.1.1"), "127.0.0.1") << "what Debian gives a host's own name";
  EXPECT_TRUE(isLoopback(localAddressTowards("localhost")));
}

TEST(LocalAddress, SaysWhichHostCannotBeFound) {
  try {
    static_cast<void>(localAddressTowards("no-such-host.invalid"));  // RFC 6761: never resolves
    FAIL() << "found";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("no-such-host.invalid could not be found"));
  }
}

TEST(Loopback, IsToldFromOtherAddresses) {
  for (const char* address : {"127.0.0.1", "127.8.0.3", "::1"}) EXPECT_TRUE(isLoopback(address)) << address;
  for (const char* address : {"126.255.255.255", "128.0.0.1", "10.0.0.1", "::2", "fe80::1", "127.0.0", "host", ""})
    EXPECT_FALSE(isLoopback(address)) << address;
}

TEST(AddressForPeers, IsTheLoopbackWhereAllRanksAreHere) {
  const KeyValueStore store = sharedStore(std::chrono::seconds(20));
  std::vector<std::string> addresses(3);
  std::vector<std::thread> ranks;
  for (int r = 0; r < 3; ++r) {
    ranks.emplace_back([&, r] {
      Rendezvous rendezvous;
      rendezvous.rank = JobRank(r);
      rendezvous.size = 3;
      rendezvous.masterAddress = "127.0.1.1";
      addresses[static_cast<std::size_t>(r)] = addressForPeers(rendezvous, store);
    });
  }
  for (std::thread& rank : ranks) rank.join();
  for (const std::string& address : addresses) EXPECT_EQ(address, "127.0.0.1");
}

TEST(AddressForPeers, OfTheMastersHostIsTheOneTowardsAnother) {
  // Rank 1 says it has another address; 0.0.0.0 stands for this host, so that the way there exists on every machine.
  const KeyValueStore store = sharedStore(std::chrono::seconds(20));
  store.set("address/1", "0.0.0.0");
  Rendezvous rendezvous;
  rendezvous.size = 2;
  rendezvous.masterAddress = "127.0.1.1";
  EXPECT_EQ(addressForPeers(rendezvous, store), localAddressTowards("0.0.0.0"));
  EXPECT_EQ(store.get("address/0"), "127.0.0.1");
}

}  // namespace
}  // namespace pw
