// A library with the functions of NVIDIA's management library that answers as the machine named in FAKE_NVML would:
//   nvlink     two H100, 18 NVLinks between them
//   switch     three H100 whose 18 NVLinks go to NVSwitch
//   idle       the same, the switches not set up: PCIe only
//   virtual    two V100 with 6 NVLinks, whose other ends a virtual machine reports under addresses of the host
//   pcie       an L4 and an A100 on different sockets, without access to each other's memory
//   mig        one A100 cut into two instances
//   uncut      one A100 in that mode without instances
//   lost       two L4, of which the driver lost the second
//   refused    two L4, of which the driver hands out the first only
//   long       one GPU whose name and UUID fill the buffers
//   none       a driver without GPUs
//   uncounted  a driver that cannot count them
//   N          a number: what nvmlInit answers
// FAKE_NVML_OLD at build: a driver of old, with the first versions of few functions.
#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

namespace {

constexpr int kSuccess = 0, kInvalidArgument = 2, kNotSupported = 3, kNotFound = 6, kInsufficientSize = 7, kLost = 15, kUnknown = 999;

struct Card {
  const char* name;
  unsigned long long memory;
  int major, minor;
  unsigned bus;
};
constexpr Card kH100{"NVIDIA H100 80GB HBM3", 85'520'809'984, 9, 0, 0x18}, kH100Second{kH100.name, kH100.memory, 9, 0, 0x2a},
    kH100Third{kH100.name, kH100.memory, 9, 0, 0x3a}, kV100{"Tesla V100-SXM2-16GB", 17'179'869'184, 7, 0, 0x05},
    kV100Second{kV100.name, kV100.memory, 7, 0, 0x06}, kL4{"NVIDIA L4", 24'152'899'584, 8, 9, 0x03},
    kL4Second{kL4.name, kL4.memory, 8, 9, 0x04}, kA100{"NVIDIA A100-PCIE-40GB", 42'949'672'960, 8, 0, 0xca};

std::string machine() {
  const char* name = std::getenv("FAKE_NVML");
  return name == nullptr ? "none" : name;
}

std::vector<Card> cards() {
  const std::string m = machine();
  if (m == "nvlink") return {kH100, kH100Second};
  if (m == "switch" || m == "idle") return {kH100, kH100Second, kH100Third};
  if (m == "virtual") return {kV100, kV100Second};
  if (m == "pcie") return {kL4, kA100};
  if (m == "lost" || m == "refused") return {kL4, kL4Second};
  if (m == "mig" || m == "uncut") return {kA100};
  if (m == "long") return {{"", 1, 9, 0, 1}};
  return {};
}

// Handles: 1 + the number of a GPU; from 100 on those of instances.
std::size_t numberOf(void* handle) { return reinterpret_cast<std::size_t>(handle) - 1; }
Card cardOf(void* handle) { return cards().at(numberOf(handle)); }

int write(const std::string& text, char* into, unsigned bytes) {
  if (text.size() + 1 > bytes) return kInsufficientSize;
  std::memcpy(into, text.c_str(), text.size() + 1);
  return kSuccess;
}

struct PciInfo {
  std::array<char, 16> shortAddress;
  unsigned domain, bus, device, deviceId, subsystemId;
  std::array<char, 32> address;
};

}  // namespace

extern "C" {

int nvmlShutdown() { return kSuccess; }
int nvmlSystemGetDriverVersion(char* text, unsigned bytes) { return write("580.65.06", text, bytes); }
int nvmlDeviceGetUUID(void* device, char* uuid, unsigned bytes) {
  if (machine() == "long") return write("GPU-" + std::string(91, 'u'), uuid, bytes);
  if (numberOf(device) >= 99)
    return write("MIG-" + std::to_string(numberOf(device) - 99) + "1111111-2222-3333-4444-555555555555", uuid, bytes);
  return write("GPU-" + std::to_string(numberOf(device)) + "aaaaaaa-bbbb-cccc-dddd-eeeeeeeeeeee", uuid, bytes);
}
int nvmlDeviceGetName(void* device, char* name, unsigned bytes) {
  if (machine() == "long") return write(std::string(95, 'n'), name, bytes);
  return write(cardOf(device).name, name, bytes);
}

#ifdef FAKE_NVML_OLD

int nvmlInit() { return kSuccess; }
int nvmlDeviceGetCount(unsigned* count) {
  *count = 2;
  return kSuccess;
}
int nvmlDeviceGetHandleByIndex(unsigned index, void** device) {
  *device = reinterpret_cast<void*>(static_cast<std::size_t>(index) + 1);
  return kSuccess;
}

#else

int nvmlInit_v2() { return machine().find_first_not_of("0123456789") == std::string::npos ? std::stoi(machine()) : kSuccess; }
int nvmlSystemGetCudaDriverVersion_v2(int* version) {
  *version = 13'000;
  return kSuccess;
}
const char* nvmlErrorString(int error) { return error == kUnknown ? "Unknown Error" : "Insufficient Permissions"; }
int nvmlDeviceGetCount_v2(unsigned* count) {
  *count = static_cast<unsigned>(cards().size());
  return machine() == "uncounted" ? kUnknown : kSuccess;
}
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void** device) {
  if (machine() == "refused" && index == 1) return 4;
  *device = reinterpret_cast<void*>(static_cast<std::size_t>(index) + 1);
  return kSuccess;
}
int nvmlDeviceGetMemoryInfo(void* device, unsigned long long* memory) {  // total, free, used
  if (machine() == "lost" && numberOf(device) == 1) return kLost;
  memory[0] = cardOf(device).memory;
  memory[2] = 1ULL << 29;
  memory[1] = memory[0] - memory[2];
  return kSuccess;
}
int nvmlDeviceGetCudaComputeCapability(void* device, int* major, int* minor) {
  *major = cardOf(device).major;
  *minor = cardOf(device).minor;
  return kSuccess;
}
int nvmlDeviceGetPciInfo_v3(void* device, PciInfo* pci) {
  *pci = {};
  pci->bus = cardOf(device).bus;
  return kSuccess;
}
int nvmlDeviceGetMigMode(void* device, unsigned* mode, unsigned* pending) {
  if (cardOf(device).name == kL4.name) return kNotSupported;
  *mode = *pending = machine() == "mig" || machine() == "uncut" ? 1 : 0;
  return kSuccess;
}
int nvmlDeviceGetMigDeviceHandleByIndex(void*, unsigned index, void** instance) {
  if (index >= 7) return kInvalidArgument;
  if ((index != 0 && index != 2) || machine() == "uncut") return kNotFound;
  *instance = reinterpret_cast<void*>(static_cast<std::size_t>(100 + index));
  return kSuccess;
}
int nvmlDeviceGetTopologyCommonAncestor(void* one, void* other, unsigned* level) {
  const auto [low, high] = std::minmax({numberOf(one), numberOf(other)});
  *level = machine() == "pcie" ? 50 : machine() != "idle" ? 10 : low == 0 && high == 1 ? 20 : low == 0 ? 30 : 40;
  return kSuccess;
}
int nvmlDeviceGetP2PStatus(void*, void*, unsigned what, unsigned* status) {
  const bool nvLink = machine() == "nvlink" || machine() == "switch" || machine() == "virtual";
  *status = (what == 2 && !nvLink) || machine() == "pcie" ? 1 : 0;
  return kSuccess;
}
int nvmlDeviceGetNvLinkState(void* device, unsigned link, unsigned* active) {
  const std::string name = cardOf(device).name;
  const unsigned links = name == kH100.name ? 18 : name == kV100.name ? 6 : 0;
  if (links == 0) return kNotSupported;
  if (link >= links) return kInvalidArgument;
  *active = machine() == "switch" && numberOf(device) == 2 && link < 2 ? 0 : 1;  // two of the third GPU's are down
  return kSuccess;
}
int nvmlDeviceGetNvLinkRemotePciInfo_v2(void* device, unsigned link, PciInfo* pci) {
  *pci = {};
  const Card other = machine() == "nvlink" ? cards().at(1 - numberOf(device)) : Card{"", 0, 0, 0, 0xb0 + link % 4};
  pci->bus = other.bus;
  return kSuccess;
}

#endif
}
