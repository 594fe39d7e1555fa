#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "schedules/ids.h"

namespace pw {

/// One NVIDIA GPU of this machine. Fields that the driver did not report are empty or 0.
struct Gpu {
  int index = 0;                 ///< NVIDIA's number, in the order of PCI addresses; its position in GpuInventory::gpus
  std::optional<int> cudaIndex;  ///< CUDA's number in a process started like this one; nothing: CUDA_VISIBLE_DEVICES hides it
  std::string name, uuid;
  std::string pciAddress;  ///< `0000:18:00.0`, as Linux writes it
  Bytes memory = 0, usedMemory = 0;
  int major = 0, minor = 0;               ///< compute capability
  std::optional<bool> mig;                ///< whether it is divided into instances (MIG); nothing: not supported
  std::vector<std::string> migInstances;  ///< their UUIDs
  std::string problem;                    ///< why it cannot be used, as a clause; empty: no known reason

  bool operator==(const Gpu&) const = default;
};

/// The best way between two GPUs, the fastest first.
enum class GpuPath : std::uint8_t {
  NvLink,        ///< directly or through NVSwitch
  Board,         ///< two GPUs of one board
  PcieSwitch,    ///< one PCIe switch
  PcieSwitches,  ///< several, without a host bridge
  HostBridge,    ///< one PCIe host bridge
  Cpu,           ///< several host bridges of one NUMA node
  Sockets,       ///< the interconnect between NUMA nodes
  Unknown,       ///< not reported by the driver
};

/// `nvlink`, `same_board`, `pcie_switch`, `pcie_switches`, `host_bridge`, `cpu`, `sockets`, `unknown`.
[[nodiscard]] std::string_view nameOf(GpuPath path);

struct GpuLink {
  int first = 0, second = 0;  ///< indices of two GPUs, first < second
  GpuPath path = GpuPath::Unknown;
  int nvLinks = 0;                 ///< active NVLinks of the pair; those to NVSwitch are shared with the other pairs
  std::optional<bool> peerAccess;  ///< whether each can read and write the other's memory; else messages go through the host's

  bool operator==(const GpuLink&) const = default;
};

struct GpuInventory {
  std::string driver;  ///< version of NVIDIA's driver
  std::string cuda;    ///< newest CUDA it can run: `13.0`
  std::vector<Gpu> gpus;
  std::vector<GpuLink> links;                 ///< every pair once, by (first, second)
  std::optional<std::string> visibleDevices;  ///< CUDA_VISIBLE_DEVICES
  std::string whyNone;                        ///< if there is no GPU: why and what to do, one sentence

  bool operator==(const GpuInventory&) const = default;
};

/// Queries NVIDIA's management library, which comes with the driver; it is loaded for the duration of the call. CUDA is not needed or
/// started, and no GPU is used. Takes milliseconds if the driver keeps the GPUs ready (persistence mode), otherwise up to seconds to wake
/// them. Never fails: with no library, an old one or one that returns errors, the inventory has what is known. `root` is a prefix for /dev,
/// /proc and /sys, which distinguish a missing driver from a missing GPU.
[[nodiscard]] GpuInventory gpuInventory(const std::string& library = "libnvidia-ml.so.1", const std::string& root = "");

/// Whether CUDA shows the GPU to a process started like this one, and there is no known reason against using it.
[[nodiscard]] bool isUsable(const Gpu& gpu);

/// Why CUDA's GPU of that number cannot be used in a process started like this one, a sentence; empty: no known reason.
[[nodiscard]] std::string whyUnusable(const GpuInventory& inventory, int cudaIndex);

/// Positions in `gpus` that CUDA shows for a value of CUDA_VISIBLE_DEVICES, in CUDA's order. It lists numbers or (beginnings of) UUIDs, of
/// the kind of its first entry; what is not there ends the list, what is there twice empties it. CUDA Programming Guide, "Environment
/// Variables", and torch.cuda._parse_visible_devices. Numbers are interpreted as NVIDIA's: CUDA's own order of different GPUs is not the
/// same, see CUDA_DEVICE_ORDER.
[[nodiscard]] std::vector<std::size_t> visibleGpus(std::string_view visibleDevices, const std::vector<Gpu>& gpus);

}  // namespace pw
