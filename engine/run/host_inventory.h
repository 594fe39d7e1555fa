#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "backends/cuda/backend.h"
#include "backends/host/gpu_inventory.h"
#include "backends/messages/transport.h"
#include "simulator/costs/profile.h"

namespace pw {

/// This machine's processors and memory, and how much of them this process may use.
struct HostMachine {
  Machine machine;  ///< its `cores` are those that are usable
  int allCores = 0;
  int numaNodes = 0;                                     ///< 0: not known
  Bytes memory = 0, allMemory = 0, availableMemory = 0;  ///< `memory`: what may be used of all
};

/// A module of ours that is loaded on demand.
struct ModuleHere {
  const char* name;
  const char* purpose;
  std::string path;     ///< empty: not beside the program
  std::string problem;  ///< why it cannot be loaded, and the cure; empty: nothing speaks against it
};

/// Whether a transport can be used here.
struct TransportHere {
  Transport transport;
  bool available = false;
  std::string note;  ///< what it offers, or why it cannot be used and the cure
};

struct HostInventory {
  HostMachine host;
  GpuInventory gpus;
  std::vector<ModuleHere> modules;
  std::vector<TransportHere> transports;
  std::optional<std::map<int, GpuRates>> rates;          ///< by Gpu::index, of those that can be used; nothing: not measured
  std::map<std::pair<int, int>, GpuLinkRate> linkRates;  ///< by Gpu::index of sender and receiver
};

/// What this host has, and what of it a run can use. Loads no module and starts no CUDA; takes milliseconds.
[[nodiscard]] HostInventory hostInventory();

/// Of ranks that compute on a host's cores, one thread each: `8 ranks share 2 cores and take turns: …`; empty where each has a core.
[[nodiscard]] std::string crowdingNote(int ranks, int cores);

/// Called with how many of all measurements are done and what is measured next.
using MeasureProgress = std::function<void(int done, int all, const std::string& what)>;

/// Measures each usable GPU, and each pair of them both ways; takes seconds for each. Throws Error if one fails.
void measureGpus(HostInventory& inventory, const MeasureProgress& progress);

}  // namespace pw
