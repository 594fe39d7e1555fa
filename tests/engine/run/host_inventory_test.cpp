// What this host has. Whatever that is, the parts must agree; tests/app/cli/devices_test.cpp has hosts with stand-ins for GPUs.
#include "engine/run/host_inventory.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace pw {
namespace {

TEST(HostInventory, KnowsWhatThisProcessMayUse) {
  const HostMachine host = hostInventory().host;
  EXPECT_GE(host.machine.cores, 1);
  EXPECT_GE(host.allCores, host.machine.cores);
  EXPECT_GT(host.memory, 0);
  EXPECT_GE(host.allMemory, host.memory);
  EXPECT_GE(host.memory, host.availableMemory);
}

TEST(HostInventory, HasEachTransportAndSaysOfEachWhatItOffersOrLacks) {
  const HostInventory inventory = hostInventory();
  ASSERT_EQ(inventory.transports.size(), valuesOf<Transport>().size());
  for (std::size_t t = 0; t < inventory.transports.size(); ++t) {
    EXPECT_EQ(inventory.transports[t].transport, valuesOf<Transport>()[t]);
    EXPECT_FALSE(inventory.transports[t].note.empty());
  }
}

TEST(HostInventory, OffersNoGpusTransportWithoutAUsableGpu) {
  const HostInventory inventory = hostInventory();
  if (std::ranges::any_of(inventory.gpus.gpus, isUsable)) GTEST_SKIP() << "this host has a GPU";
  for (const TransportHere& here : inventory.transports) EXPECT_FALSE(factsOf(here.transport).onGpu && here.available);
}

TEST(HostInventory, SaysOfEachModuleWhereItIsOrWhatIsTheProblem) {
  for (const ModuleHere& module : hostInventory().modules) EXPECT_FALSE(module.path.empty() && module.problem.empty()) << module.name;
}

}  // namespace
}  // namespace pw
