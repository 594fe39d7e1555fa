// The inventory of GPUs against a library that answers as machines of all kinds would: see fake_nvml.cpp.
#include "backends/host/gpu_inventory.h"

#include <cstdlib>
#include <filesystem>
#include <ostream>

#include <gmock/gmock.h>

#include "tests/support/folder.h"

namespace pw {

void PrintTo(const GpuLink& link, std::ostream* out) {
  *out << link.first << '-' << link.second << ' ' << nameOf(link.path) << " x" << link.nvLinks << ", peer access "
       << (!link.peerAccess   ? "unknown"
           : *link.peerAccess ? "yes"
                              : "no");
}

}  // namespace pw

namespace pw::test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr const char* kNoLibrary = "libpipewright-has-no-such-library.so.1";

class GpuInventoryTest : public testing::Test {
 protected:
  GpuInventoryTest() { ::unsetenv("CUDA_VISIBLE_DEVICES"); }
  ~GpuInventoryTest() override {
    ::unsetenv("CUDA_VISIBLE_DEVICES");
    ::unsetenv("FAKE_NVML");
  }

  /// The inventory of one of the fake's machines.
  [[nodiscard]] GpuInventory of(const std::string& machine) const {
    ::setenv("FAKE_NVML", machine.c_str(), 1);
    return gpuInventory(FAKE_NVML_LIBRARY, root_.file(""));
  }

  /// Writes a file into the folder that stands for "/".
  void has(const std::string& path, const std::string& text) const {
    std::filesystem::create_directories(std::filesystem::path(root_.file(path)).parent_path());
    static_cast<void>(root_.with(path, text));
  }
  void hasCard(const std::string& address, const std::string& vendor, const std::string& deviceClass) const {
    has("sys/bus/pci/devices/" + address + "/vendor", vendor + "\n");
    has("sys/bus/pci/devices/" + address + "/class", deviceClass + "\n");
  }
  [[nodiscard]] std::string whyNone(const std::string& library) const { return gpuInventory(library, root_.file("")).whyNone; }

  Folder root_;
};

/// One sentence that ends in a full stop.
void expectSentence(const std::string& text) {
  ASSERT_FALSE(text.empty());
  EXPECT_EQ(text.back(), '.') << text;
  EXPECT_EQ(text.find(". "), std::string::npos) << text;
  EXPECT_EQ(text.find('\n'), std::string::npos) << text;
}

TEST_F(GpuInventoryTest, SaysOfEachGpuWhatTheDriverKnows) {
  const GpuInventory found = of("nvlink");
  EXPECT_EQ(found.driver, "580.65.06");
  EXPECT_EQ(found.cuda, "13.0");
  EXPECT_EQ(found.whyNone, "");
  EXPECT_EQ(found.visibleDevices, std::nullopt);
  ASSERT_EQ(found.gpus.size(), 2U);
  Gpu expected;
  expected.index = 1;
  expected.cudaIndex = 1;
  expected.name = "NVIDIA H100 80GB HBM3";
  expected.uuid = "GPU-1aaaaaaa-bbbb-cccc-dddd-eeeeeeeeeeee";
  expected.pciAddress = "0000:2a:00.0";
  expected.memory = Bytes(85'520'809'984);
  expected.usedMemory = 1 << 29;
  expected.major = 9;
  expected.mig = false;
  EXPECT_EQ(found.gpus[1], expected);
}

TEST_F(GpuInventoryTest, CountsTheNvLinksBetweenTwoGpus) {
  const GpuInventory found = of("nvlink");
  ASSERT_EQ(found.links.size(), 1U);
  EXPECT_EQ(found.links[0], (GpuLink{0, 1, GpuPath::NvLink, 18, true}));
}

TEST_F(GpuInventoryTest, ThroughNvSwitchAPairHasAsManyLinksAsItsGpuWithFewer) {
  // The third GPU has 16 of its 18 links up.
  EXPECT_THAT(of("switch").links, ElementsAre(GpuLink{0, 1, GpuPath::NvLink, 18, true}, GpuLink{0, 2, GpuPath::NvLink, 16, true},
                                              GpuLink{1, 2, GpuPath::NvLink, 16, true}));
}

TEST_F(GpuInventoryTest, NvLinksThatDoNotConnectAPairLeaveItToPcie) {
  EXPECT_THAT(of("idle").links, ElementsAre(GpuLink{0, 1, GpuPath::PcieSwitches, 0, true}, GpuLink{0, 2, GpuPath::HostBridge, 0, true},
                                            GpuLink{1, 2, GpuPath::Cpu, 0, true}));
}

TEST_F(GpuInventoryTest, FindsNvLinksThatEndAtAddressesOfTheHostOfAVirtualMachine) {
  EXPECT_THAT(of("virtual").links, ElementsAre(GpuLink{0, 1, GpuPath::NvLink, 6, true}));
}

TEST_F(GpuInventoryTest, GpusOfTwoSocketsWithoutPeerAccess) {
  const GpuInventory found = of("pcie");
  EXPECT_THAT(found.links, ElementsAre(GpuLink{0, 1, GpuPath::Sockets, 0, false}));
  ASSERT_EQ(found.gpus.size(), 2U);
  EXPECT_EQ(found.gpus[0].mig, std::nullopt);  // an L4 has no such mode
  EXPECT_EQ(found.gpus[1].mig, false);
}

TEST_F(GpuInventoryTest, ListsTheInstancesOfAGpuThoughTheirNumbersHaveGaps) {
  const GpuInventory found = of("mig");
  ASSERT_EQ(found.gpus.size(), 1U);
  EXPECT_EQ(found.gpus[0].mig, true);
  EXPECT_THAT(found.gpus[0].migInstances,
              ElementsAre("MIG-01111111-2222-3333-4444-555555555555", "MIG-21111111-2222-3333-4444-555555555555"));
  EXPECT_THAT(found.links, IsEmpty());
}

TEST_F(GpuInventoryTest, AGpuInMigModeWithoutInstancesCannotBeUsed) {
  const GpuInventory found = of("uncut");
  ASSERT_EQ(found.gpus.size(), 1U);
  EXPECT_EQ(found.gpus[0].mig, true);
  EXPECT_THAT(found.gpus[0].problem, HasSubstr("without an instance"));
}

TEST_F(GpuInventoryTest, AGpuThatIsLostIsListedWithItsProblem) {
  const GpuInventory found = of("lost");
  ASSERT_EQ(found.gpus.size(), 2U);
  EXPECT_EQ(found.gpus[0].problem, "");
  EXPECT_THAT(found.gpus[1].problem, HasSubstr("lost"));
  EXPECT_EQ(found.gpus[1].name, "NVIDIA L4");
  EXPECT_EQ(found.gpus[1].memory, 0);
}

TEST_F(GpuInventoryTest, AGpuThatTheDriverRefusesIsListedWithTheDriversReason) {
  const GpuInventory found = of("refused");
  ASSERT_EQ(found.gpus.size(), 2U);
  EXPECT_EQ(found.gpus[1].index, 1);
  EXPECT_THAT(found.gpus[1].problem, HasSubstr("Insufficient Permissions (error 4)"));
  EXPECT_EQ(found.gpus[1].name, "");
  EXPECT_THAT(found.links, ElementsAre(GpuLink{0, 1, GpuPath::Unknown, 0, std::nullopt}));
}

TEST_F(GpuInventoryTest, TakesTheLongestNamesTheLibraryDocuments) {
  const GpuInventory found = of("long");
  ASSERT_EQ(found.gpus.size(), 1U);
  EXPECT_EQ(found.gpus[0].name, std::string(95, 'n'));
  EXPECT_EQ(found.gpus[0].uuid, "GPU-" + std::string(91, 'u'));
}

TEST_F(GpuInventoryTest, OfAnOldDriverItSaysWhatThatKnows) {
  ::setenv("FAKE_NVML", "pcie", 1);
  const GpuInventory found = gpuInventory(FAKE_NVML_OLD_LIBRARY, root_.file(""));
  EXPECT_EQ(found.driver, "580.65.06");
  EXPECT_EQ(found.cuda, "");
  ASSERT_EQ(found.gpus.size(), 2U);
  EXPECT_EQ(found.gpus[1].name, "NVIDIA A100-PCIE-40GB");
  EXPECT_EQ(found.gpus[1].pciAddress, "");
  EXPECT_EQ(found.gpus[1].memory, 0);
  EXPECT_EQ(found.gpus[1].major, 0);
  EXPECT_EQ(found.gpus[1].problem, "");
  EXPECT_THAT(found.links, ElementsAre(GpuLink{0, 1, GpuPath::Unknown, 0, std::nullopt}));
}

TEST_F(GpuInventoryTest, ADriverWithoutGpusOrThatCannotStartIsASentenceWithACure) {
  const std::pair<const char*, const char*> machines[] = {
      {"none", "580.65.06 finds no GPU"}, {"uncounted", "Unknown Error (error 999)"}, {"4", "may not use"}, {"9", "is not loaded"},
      {"18", "restart the machine"},      {"999", "Unknown Error (error 999)"},
  };
  for (const auto& [machine, words] : machines) {
    SCOPED_TRACE(machine);
    const GpuInventory found = of(machine);
    EXPECT_THAT(found.gpus, IsEmpty());
    EXPECT_THAT(found.links, IsEmpty());
    EXPECT_THAT(found.whyNone, HasSubstr(words));
    expectSentence(found.whyNone);
  }
}

TEST_F(GpuInventoryTest, ALibraryWithoutItsFunctionsIsASentence) {
  const std::string why = whyNone("libm.so.6");
  EXPECT_THAT(why, HasSubstr("libm.so.6 lacks the functions"));
  expectSentence(why);
}

TEST_F(GpuInventoryTest, AFileThatIsNoLibraryIsASentence) {
  const std::string why = whyNone(root_.with("libbroken.so.1", "not a library"));
  EXPECT_THAT(why, HasSubstr("cannot be loaded"));
  expectSentence(why);
}

TEST_F(GpuInventoryTest, TellsAMissingDriverFromAMissingGpu) {
  hasCard("0000:00:02.0", "0x8086", "0x030000");  // another maker's
  hasCard("0000:41:00.1", "0x10de", "0x040300");  // the sound of a graphics card
  const std::string noCard = whyNone(kNoLibrary);
  EXPECT_THAT(noCard, HasSubstr("no NVIDIA GPU"));
  expectSentence(noCard);

  hasCard("0000:81:00.0", "0x10de", "0x030200");
  hasCard("0000:41:00.0", "0x10de", "0x030000");
  const std::string noDriver = whyNone(kNoLibrary);
  EXPECT_THAT(noDriver, HasSubstr("(PCI 0000:41:00.0) but its driver is not installed"));  // the first of the two
  expectSentence(noDriver);
  EXPECT_THAT(of("9").whyNone, HasSubstr("(PCI 0000:41:00.0) but its driver is not loaded"));
}

TEST_F(GpuInventoryTest, TellsAContainerThatWasGivenNoGpus) {
  has("proc/driver/nvidia/version", "NVRM version: 580.65.06");
  for (const std::string& why : {whyNone(kNoLibrary), of("9").whyNone}) {
    EXPECT_THAT(why, HasSubstr("container"));
    EXPECT_THAT(why, HasSubstr("--gpus all"));
    expectSentence(why);
  }
}

TEST_F(GpuInventoryTest, NumbersGpusAsCudaDoesAndSaysWhichAreHidden) {
  ::setenv("CUDA_VISIBLE_DEVICES", "2,0", 1);
  const GpuInventory found = of("switch");
  EXPECT_EQ(found.visibleDevices, "2,0");
  ASSERT_EQ(found.gpus.size(), 3U);
  EXPECT_EQ(found.gpus[0].cudaIndex, 1);
  EXPECT_EQ(found.gpus[1].cudaIndex, std::nullopt);
  EXPECT_EQ(found.gpus[2].cudaIndex, 0);
  EXPECT_EQ(found.links.size(), 3U);
}

TEST(VisibleGpus, AreThoseOfTheListAsCudaReadsIt) {
  std::vector<Gpu> gpus(3);
  gpus[0].uuid = "GPU-12ab";
  gpus[1].uuid = "GPU-12cd";
  gpus[2].uuid = "GPU-34ef";
  gpus[2].migInstances = {"MIG-77", "MIG-78"};
  using Positions = std::vector<std::size_t>;
  const std::pair<const char*, Positions> lists[] = {
      {"0,1,2", {0, 1, 2}},
      {"2, 0", {2, 0}},
      {"", {}},
      {"-1", {}},
      {"1,-1,0", {1}},  // the first that is not there ends the list
      {"1,3,0", {1}},
      {"0,99999999999999999999", {0}},
      {"1,1", {}},        // one twice empties it
      {"1x,0y", {1, 0}},  // as strtoul reads numbers
      {"all", {}},
      {"0,", {0}},
      {"GPU-34ef,GPU-12ab", {2, 0}},
      {"GPU-3", {2}},
      {"GPU-12", {}},  // two begin so
      {"GPU-34,GPU-99", {2}},
      {"GPU-34,0", {2}},  // of one kind
      {"0,GPU-34", {0}},
      {"GPU-3,GPU-34", {}},
      {"MIG-77", {2}},
      {"MIG-77,MIG-78", {2}},
      {"MIG-GPU-12cd/7/0", {1}},
  };
  for (const auto& [list, positions] : lists) EXPECT_EQ(visibleGpus(list, gpus), positions) << list;
  EXPECT_THAT(visibleGpus("0", {}), IsEmpty());
}

TEST_F(GpuInventoryTest, SaysWhyAGpuCannotBeUsed) {
  EXPECT_EQ(whyUnusable(of("nvlink"), 0), "");
  EXPECT_EQ(whyUnusable(of("nvlink"), 1), "");
  EXPECT_EQ(whyUnusable(of("nvlink"), 2), "There is no GPU 2; CUDA shows 2 here, see pipewright devices.");
  ::setenv("CUDA_VISIBLE_DEVICES", "1", 1);
  EXPECT_EQ(whyUnusable(of("nvlink"), 0), "") << "GPU 1 is CUDA's 0";
  EXPECT_EQ(whyUnusable(of("nvlink"), 1), "There is no GPU 1; CUDA shows 1 here, see pipewright devices.");
  ::setenv("CUDA_VISIBLE_DEVICES", "", 1);
  EXPECT_EQ(whyUnusable(of("nvlink"), 0), "CUDA_VISIBLE_DEVICES=\"\" hides all GPUs.");
  expectSentence(whyUnusable(gpuInventory(kNoLibrary, root_.file("")), 0));
}

}  // namespace
}  // namespace pw::test
