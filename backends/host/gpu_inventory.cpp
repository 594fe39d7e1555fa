#include "backends/host/gpu_inventory.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>

namespace pw {
namespace {

namespace fs = std::filesystem;

// NVIDIA's management library (NVML), as its reference documents it: all functions are C, return 0 or an error number, and take handles of
// GPUs.
using Handle = void*;

constexpr int kSuccess = 0;
constexpr int kInvalidArgument = 2;
constexpr int kNoPermission = 4;
constexpr int kDriverNotLoaded = 9;
constexpr int kFunctionNotFound = 13;
constexpr int kGpuIsLost = 15;
constexpr int kVersionMismatch = 18;

constexpr std::array kAncestors{
    // nvmlGpuTopologyLevel_t
    std::pair{0, GpuPath::Board},       std::pair{10, GpuPath::PcieSwitch}, std::pair{20, GpuPath::PcieSwitches},
    std::pair{30, GpuPath::HostBridge}, std::pair{40, GpuPath::Cpu},        std::pair{50, GpuPath::Sockets},
};
constexpr unsigned kPeerRead = 0, kPeerWrite = 1, kPeerNvLink = 2;  // nvmlGpuP2PCapsIndex_t
constexpr unsigned kMostNvLinks = 36;                               // NVML_NVLINK_MAX_LINKS, of Blackwell
constexpr unsigned kMostMigInstances = 16;                          // GPUs have at most 7
constexpr std::size_t kTextBytes = 256;                             // names and UUIDs take up to 96

struct Memory {  // nvmlMemory_t
  unsigned long long total, free, used;
};

struct PciInfo {  // nvmlPciInfo_t; version 2 is the same without `address`
  std::array<char, 16> shortAddress;
  unsigned domain, bus, device, deviceId, subsystemId;
  std::array<char, 32> address;
};

/// A function of the library; one that this driver lacks answers so.
template <class... Parameters>
struct Function {
  int (*address)(Parameters...) = nullptr;

  int operator()(Parameters... parameters) const { return address == nullptr ? kFunctionNotFound : address(parameters...); }
};

struct Library {
  Function<> init, shutdown;
  Function<char*, unsigned> driverVersion;
  Function<int*> cudaVersion;
  Function<unsigned*> count;
  Function<unsigned, Handle*> handle;
  Function<Handle, char*, unsigned> name, uuid;
  Function<Handle, Memory*> memory;
  Function<Handle, int*, int*> capability;
  Function<Handle, PciInfo*> pci;
  Function<Handle, unsigned*, unsigned*> migMode;
  Function<Handle, unsigned, Handle*> migInstance;
  Function<Handle, Handle, unsigned*> commonAncestor;
  Function<Handle, Handle, unsigned, unsigned*> peerStatus;
  Function<Handle, unsigned, unsigned*> nvLinkState;
  Function<Handle, unsigned, PciInfo*> nvLinkRemote;
  const char* (*errorString)(int) = nullptr;
};

/// The first of several versions of a function that the library has.
template <class Pointer>
void find(void* library, Pointer& function, std::initializer_list<const char*> names) {
  for (const char* name : names) {
    if (function == nullptr) function = reinterpret_cast<Pointer>(dlsym(library, name));
  }
}

Library functionsOf(void* library) {
  Library f;
  find(library, f.init.address, {"nvmlInit_v2", "nvmlInit"});
  find(library, f.shutdown.address, {"nvmlShutdown"});
  find(library, f.driverVersion.address, {"nvmlSystemGetDriverVersion"});
  find(library, f.cudaVersion.address, {"nvmlSystemGetCudaDriverVersion_v2", "nvmlSystemGetCudaDriverVersion"});
  find(library, f.count.address, {"nvmlDeviceGetCount_v2", "nvmlDeviceGetCount"});
  find(library, f.handle.address, {"nvmlDeviceGetHandleByIndex_v2", "nvmlDeviceGetHandleByIndex"});
  find(library, f.name.address, {"nvmlDeviceGetName"});
  find(library, f.uuid.address, {"nvmlDeviceGetUUID"});
  find(library, f.memory.address, {"nvmlDeviceGetMemoryInfo"});
  find(library, f.capability.address, {"nvmlDeviceGetCudaComputeCapability"});
  find(library, f.pci.address, {"nvmlDeviceGetPciInfo_v3", "nvmlDeviceGetPciInfo_v2"});
  find(library, f.migMode.address, {"nvmlDeviceGetMigMode"});
  find(library, f.migInstance.address, {"nvmlDeviceGetMigDeviceHandleByIndex"});
  find(library, f.commonAncestor.address, {"nvmlDeviceGetTopologyCommonAncestor"});
  find(library, f.peerStatus.address, {"nvmlDeviceGetP2PStatus"});
  find(library, f.nvLinkState.address, {"nvmlDeviceGetNvLinkState"});
  find(library, f.nvLinkRemote.address, {"nvmlDeviceGetNvLinkRemotePciInfo_v2", "nvmlDeviceGetNvLinkRemotePciInfo"});
  find(library, f.errorString, {"nvmlErrorString"});
  return f;
}

/// Text that `call(buffer, bytes)` writes; empty where it fails.
template <class Call>
std::string textOf(const Call& call) {
  std::array<char, kTextBytes> text{};
  if (call(text.data(), static_cast<unsigned>(text.size() - 1)) != kSuccess) return {};
  return text.data();
}

std::string reasonOf(const Library& nvml, int error) {
  const char* text = nvml.errorString == nullptr ? nullptr : nvml.errorString(error);
  return text == nullptr || *text == '\0' ? fmt::format("error {}", error) : fmt::format("{} (error {})", text, error);
}

/// What is known of a GPU beside its number and its links.
Gpu describe(const Library& nvml, Handle handle) {
  Gpu gpu;
  gpu.name = textOf([&](char* text, unsigned bytes) { return nvml.name(handle, text, bytes); });
  gpu.uuid = textOf([&](char* text, unsigned bytes) { return nvml.uuid(handle, text, bytes); });
  Memory memory{};
  const int answer = nvml.memory(handle, &memory);
  if (answer == kSuccess) {
    gpu.memory = static_cast<Bytes>(memory.total);
    gpu.usedMemory = static_cast<Bytes>(memory.used);
  }
  if (answer == kGpuIsLost) gpu.problem = "the driver has lost it; restart the machine";
  int major = 0, minor = 0;
  if (nvml.capability(handle, &major, &minor) == kSuccess) {
    gpu.major = major;
    gpu.minor = minor;
  }
  PciInfo pci{};
  if (nvml.pci(handle, &pci) == kSuccess) gpu.pciAddress = fmt::format("{:04x}:{:02x}:{:02x}.0", pci.domain, pci.bus, pci.device);
  unsigned mode = 0, pending = 0;
  if (nvml.migMode(handle, &mode, &pending) == kSuccess) gpu.mig = mode != 0;
  for (unsigned i = 0; gpu.mig == true && i < kMostMigInstances; ++i) {
    Handle instance = nullptr;
    const int found = nvml.migInstance(handle, i, &instance);
    if (found == kInvalidArgument || found == kFunctionNotFound) break;  // numbers may have gaps
    if (found == kSuccess) gpu.migInstances.push_back(textOf([&](char* text, unsigned bytes) { return nvml.uuid(instance, text, bytes); }));
  }
  if (gpu.mig == true && gpu.migInstances.empty())
    gpu.problem = "it is in MIG mode without an instance; make one or end the mode (nvidia-smi -mig 0)";
  return gpu;
}

/// PCI addresses at the other ends of a GPU's active NVLinks; empty where the driver does not say.
std::vector<std::string> nvLinkEnds(const Library& nvml, Handle handle) {
  std::vector<std::string> ends;
  for (unsigned link = 0; link < kMostNvLinks; ++link) {
    unsigned active = 0;
    const int answer = nvml.nvLinkState(handle, link, &active);
    if (answer != kSuccess && (link == 0 || answer == kInvalidArgument)) break;  // it has none, or no more
    if (answer != kSuccess || active == 0) continue;
    PciInfo pci{};
    const bool known = nvml.nvLinkRemote(handle, link, &pci) == kSuccess;
    ends.push_back(known ? fmt::format("{:04x}:{:02x}:{:02x}.0", pci.domain, pci.bus, pci.device) : "");
  }
  return ends;
}

/// Links of GPUs, whose handles and NVLinks are known.
struct Wiring {
  const Library& nvml;
  const std::vector<Gpu>& gpus;
  const std::vector<Handle>& handles;
  std::vector<std::vector<std::string>> ends;

  [[nodiscard]] bool can(std::size_t a, std::size_t b, unsigned what) const {
    unsigned status = ~0U;
    return nvml.peerStatus(handles[a], handles[b], what, &status) == kSuccess && status == 0;
  }

  /// NVLinks of a GPU that end at no GPU: at NVSwitch, or at an address that a virtual machine hides.
  [[nodiscard]] int toSwitches(std::size_t a) const {
    return static_cast<int>(std::ranges::count_if(ends[a], [&](const std::string& end) {
      return end.empty() || std::ranges::none_of(gpus, [&](const Gpu& gpu) { return gpu.pciAddress == end; });
    }));
  }

  [[nodiscard]] int nvLinks(std::size_t a, std::size_t b) const {
    const auto direct = gpus[b].pciAddress.empty() ? 0 : std::ranges::count(ends[a], gpus[b].pciAddress);
    if (direct > 0) return static_cast<int>(direct);
    return can(a, b, kPeerNvLink) ? std::min(toSwitches(a), toSwitches(b)) : 0;
  }

  [[nodiscard]] GpuLink between(std::size_t a, std::size_t b) const {
    GpuLink link;
    link.first = static_cast<int>(a);
    link.second = static_cast<int>(b);
    if (handles[a] == nullptr || handles[b] == nullptr) return link;
    unsigned status = 0;
    if (nvml.peerStatus(handles[a], handles[b], kPeerRead, &status) == kSuccess) {
      link.peerAccess = can(a, b, kPeerRead) && can(a, b, kPeerWrite) && can(b, a, kPeerRead) && can(b, a, kPeerWrite);
    }
    link.nvLinks = nvLinks(a, b);
    unsigned ancestor = 0;
    if (link.nvLinks > 0) {
      link.path = GpuPath::NvLink;
    } else if (nvml.commonAncestor(handles[a], handles[b], &ancestor) == kSuccess) {
      const auto known = std::ranges::find(kAncestors, static_cast<int>(ancestor), [](const auto& level) { return level.first; });
      if (known != kAncestors.end()) link.path = known->second;
    }
    return link;
  }
};

std::vector<GpuLink> linksOf(const Library& nvml, const std::vector<Gpu>& gpus, const std::vector<Handle>& handles) {
  if (gpus.size() < 2) return {};
  Wiring wiring{nvml, gpus, handles, {}};
  for (const Handle handle : handles) wiring.ends.push_back(handle == nullptr ? std::vector<std::string>() : nvLinkEnds(nvml, handle));
  std::vector<GpuLink> links;
  for (std::size_t a = 0; a < gpus.size(); ++a) {
    for (std::size_t b = a + 1; b < gpus.size(); ++b) links.push_back(wiring.between(a, b));
  }
  return links;
}

/// PCI address of an NVIDIA display or 3D controller (class 03), or nothing.
std::string cardOnBus(const std::string& root) {
  const auto firstLine = [](const fs::path& path) {
    std::string line;
    std::ifstream file(path);
    std::getline(file, line);
    return line;
  };
  std::string first;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(root + "/sys/bus/pci/devices", ignored)) {
    if (firstLine(entry.path() / "vendor") != "0x10de" || !firstLine(entry.path() / "class").starts_with("0x03")) continue;
    const std::string address = entry.path().filename().string();
    if (first.empty() || address < first) first = address;
  }
  return first;
}

bool exists(const std::string& path) {
  std::error_code ignored;
  return fs::exists(path, ignored);
}

constexpr const char* kInContainer = "in a container, start it with its GPUs (docker run --gpus all)";

/// Why there is no GPU where the library is not there (`loadError` says so) or says that no driver is loaded.
std::string withoutDriver(const std::string& library, const std::string& loadError, const std::string& root) {
  const bool runs = exists(root + "/proc/driver/nvidia/version");
  const bool absent = loadError.find("No such file") != std::string::npos;
  if (!loadError.empty() && !absent)
    return fmt::format("NVIDIA's library {} cannot be loaded ({}); install NVIDIA's driver again.", library, loadError);
  if (runs || exists(root + "/dev/nvidiactl")) {
    const std::string_view missing = loadError.empty() ? "its devices /dev/nvidia* are not" : "its library is not";
    return fmt::format("NVIDIA's driver runs on this machine but {} here; {}, else install the driver again.", missing, kInContainer);
  }
  const std::string card = cardOnBus(root);
  const std::string_view state = loadError.empty() ? "is not loaded" : "is not installed";
  if (card.empty() && !loadError.empty())
    return "There is no NVIDIA GPU on this machine: no driver is installed and the PCI bus shows no card.";
  if (card.empty()) return "NVIDIA's driver is not loaded and the PCI bus shows no NVIDIA card; check that the machine has one.";
  const std::string_view cure = loadError.empty() ? "load it (modprobe nvidia)" : "install it (Debian: nvidia-driver) and restart";
  return fmt::format("The machine has an NVIDIA card (PCI {}) but its driver {}; {}.", card, state, cure);
}

/// Why the library could not be started.
std::string withoutStart(const Library& nvml, int error, const std::string& library, const std::string& root) {
  switch (error) {
    case kDriverNotLoaded: return withoutDriver(library, "", root);
    case kNoPermission: return "This user may not use NVIDIA's driver; give it access to /dev/nvidia* (group video or render).";
    case kVersionMismatch: return "NVIDIA's driver and its library are of different versions, as after an update; restart the machine.";
    case kFunctionNotFound:
      return fmt::format("{} lacks the functions of NVIDIA's management library; install NVIDIA's driver again.", library);
    default: return fmt::format("NVIDIA's driver does not start: {}; see what nvidia-smi says.", reasonOf(nvml, error));
  }
}

/// Fills in what a started library knows.
void take(const Library& nvml, GpuInventory& inventory) {
  inventory.driver = textOf([&](char* text, unsigned bytes) { return nvml.driverVersion(text, bytes); });
  int cuda = 0;
  if (nvml.cudaVersion(&cuda) == kSuccess && cuda > 0) inventory.cuda = fmt::format("{}.{}", cuda / 1000, cuda % 1000 / 10);
  unsigned count = 0;
  const int counted = nvml.count(&count);
  std::vector<Handle> handles;
  for (unsigned i = 0; counted == kSuccess && i < count; ++i) {
    Handle handle = nullptr;
    const int error = nvml.handle(i, &handle);
    handles.push_back(error == kSuccess ? handle : nullptr);
    Gpu gpu;
    if (error == kSuccess)
      gpu = describe(nvml, handle);
    else
      gpu.problem = fmt::format("the driver gives no access to it: {}; see what nvidia-smi says", reasonOf(nvml, error));
    gpu.index = static_cast<int>(i);
    inventory.gpus.push_back(gpu);
  }
  inventory.links = linksOf(nvml, inventory.gpus, handles);
  if (!inventory.gpus.empty()) return;
  const std::string driver = inventory.driver.empty() ? "NVIDIA's driver" : "NVIDIA's driver " + inventory.driver;
  inventory.whyNone = counted == kSuccess
                          ? fmt::format("{} finds no GPU; {}, else see what nvidia-smi says.", driver, kInContainer)
                          : fmt::format("{} does not count its GPUs: {}; see what nvidia-smi says.", driver, reasonOf(nvml, counted));
}

/// The number an entry begins with, as strtoul takes it; −1 where there is none or it is negative.
long numberOf(std::string_view entry) {
  if (entry.starts_with('+')) entry.remove_prefix(1);
  long number = -1;
  for (const char c : entry) {
    if (c < '0' || c > '9' || number > 1'000'000) break;
    number = std::max(0L, number) * 10 + (c - '0');
  }
  return number;
}

/// Which GPU an entry of CUDA_VISIBLE_DEVICES means; nothing where none or several.
std::optional<std::size_t> meant(std::string_view entry, std::string_view kind, const std::vector<Gpu>& gpus) {
  if (kind.empty()) {
    const long number = numberOf(entry);
    return number >= 0 && number < static_cast<long>(gpus.size()) ? std::optional(static_cast<std::size_t>(number)) : std::nullopt;
  }
  std::optional<std::size_t> found;
  for (std::size_t g = 0; g < gpus.size(); ++g) {
    const auto begins = [&](const std::string& uuid) { return uuid.starts_with(entry); };
    const bool instance =
        std::ranges::any_of(gpus[g].migInstances, begins) || (!gpus[g].uuid.empty() && entry.starts_with("MIG-" + gpus[g].uuid + "/"));
    if (kind == "GPU-" ? !begins(gpus[g].uuid) : !instance) continue;
    if (found) return std::nullopt;
    found = g;
  }
  return found;
}

}  // namespace

std::string_view nameOf(GpuPath path) {
  switch (path) {
    case GpuPath::NvLink: return "nvlink";
    case GpuPath::Board: return "same_board";
    case GpuPath::PcieSwitch: return "pcie_switch";
    case GpuPath::PcieSwitches: return "pcie_switches";
    case GpuPath::HostBridge: return "host_bridge";
    case GpuPath::Cpu: return "cpu";
    case GpuPath::Sockets: return "sockets";
    case GpuPath::Unknown: return "unknown";
  }
  return "unknown";
}

std::vector<std::size_t> visibleGpus(std::string_view visibleDevices, const std::vector<Gpu>& gpus) {
  std::vector<std::size_t> visible;
  std::optional<std::string_view> kind;  // of all entries: the first one's
  for (std::string_view rest = visibleDevices;;) {
    const std::size_t comma = std::min(rest.find(','), rest.size());
    std::string_view entry = rest.substr(0, comma);
    while (entry.starts_with(' ')) entry.remove_prefix(1);
    while (entry.ends_with(' ')) entry.remove_suffix(1);
    const std::string_view own = entry.starts_with("GPU-") || entry.starts_with("MIG-") ? entry.substr(0, 4) : std::string_view();
    if (!kind) kind = own;
    const std::optional<std::size_t> gpu = own == *kind ? meant(entry, *kind, gpus) : std::nullopt;
    if (!gpu) return visible;
    if (std::ranges::find(visible, *gpu) != visible.end()) {
      if (own != "MIG-") return {};  // instances of one GPU are different devices
    } else {
      visible.push_back(*gpu);
    }
    if (comma == rest.size()) return visible;
    rest.remove_prefix(comma + 1);
  }
}

GpuInventory gpuInventory(const std::string& library, const std::string& root) {
  GpuInventory inventory;
  if (const char* set = std::getenv("CUDA_VISIBLE_DEVICES")) inventory.visibleDevices = set;
  const std::unique_ptr<void, int (*)(void*)> loaded(dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL),
                                                     [](void* l) { return l == nullptr ? 0 : dlclose(l); });
  if (loaded == nullptr) {
    const char* why = dlerror();
    inventory.whyNone = withoutDriver(library, why == nullptr ? "no reason given" : why, root);
    return inventory;
  }
  const Library nvml = functionsOf(loaded.get());
  if (const int error = nvml.init(); error != kSuccess) {
    inventory.whyNone = withoutStart(nvml, error, library, root);
    return inventory;
  }
  take(nvml, inventory);
  nvml.shutdown();
  std::vector<std::size_t> visible(inventory.gpus.size());
  for (std::size_t g = 0; g < visible.size(); ++g) visible[g] = g;
  if (inventory.visibleDevices) visible = visibleGpus(*inventory.visibleDevices, inventory.gpus);
  for (std::size_t v = 0; v < visible.size(); ++v) inventory.gpus[visible[v]].cudaIndex = static_cast<int>(v);
  return inventory;
}

bool isUsable(const Gpu& gpu) { return gpu.cudaIndex.has_value() && gpu.problem.empty(); }

std::string whyUnusable(const GpuInventory& inventory, int cudaIndex) {
  if (inventory.gpus.empty()) return inventory.whyNone;
  const auto found = std::ranges::find(inventory.gpus, std::optional(cudaIndex), &Gpu::cudaIndex);
  if (found != inventory.gpus.end())
    return found->problem.empty() ? std::string() : fmt::format("GPU {} ({}) cannot be used: {}.", cudaIndex, found->name, found->problem);
  const auto shown = std::ranges::count_if(inventory.gpus, [](const Gpu& gpu) { return gpu.cudaIndex.has_value(); });
  if (shown == 0) return fmt::format("CUDA_VISIBLE_DEVICES=\"{}\" hides all GPUs.", inventory.visibleDevices.value_or(""));
  return fmt::format("There is no GPU {}; CUDA shows {} here, see pipewright devices.", cudaIndex, shown);
}

}  // namespace pw
