#include "engine/run/host_inventory.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include <fmt/format.h>

#include "backends/host/installation.h"
#include "backends/resources/resources.h"
#include "backends/torch/wheel.h"
#include "simulator/text/counted.h"

namespace pw {
namespace {

namespace fs = std::filesystem;

/// Number after `name:` in /proc/meminfo [kB], in bytes.
Bytes memoryInfo(const std::string& name) {
  std::ifstream file("/proc/meminfo");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with(name + ":")) return Bytes(std::strtoll(line.c_str() + name.size() + 1, nullptr, 10) * 1024);
  }
  return 0;
}

/// The folders of this process's control group and of those around it, which limit it too (Linux, "Control Group v2").
std::vector<fs::path> controlGroups() {
  const fs::path top = "/sys/fs/cgroup";
  std::vector<fs::path> folders{top};
  std::ifstream file("/proc/self/cgroup");
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with("0::/")) continue;
    fs::path folder = top;
    for (const fs::path& part : fs::path(line.substr(4))) folders.push_back(folder /= part);
  }
  return folders;
}

HostMachine thisHost() {
  HostMachine host;
  host.machine = thisMachine();
  host.allCores = std::max(host.machine.cores, static_cast<int>(::sysconf(_SC_NPROCESSORS_ONLN)));
  cpu_set_t usable;
  if (::sched_getaffinity(0, sizeof usable, &usable) == 0) host.machine.cores = CPU_COUNT(&usable);
  host.memory = host.allMemory = memoryInfo("MemTotal");
  for (const fs::path& folder : controlGroups()) {
    double quota = 0, period = 0;
    std::ifstream cpu(folder / "cpu.max"), memory(folder / "memory.max");  // a word, "max", where there is no limit
    if (cpu >> quota >> period && period > 0)
      host.machine.cores = std::min(host.machine.cores, std::max(1, static_cast<int>(quota / period)));
    Bytes limit = 0;
    if (memory >> limit.value) host.memory = std::min(host.memory, limit);
  }
  host.availableMemory = std::min(memoryInfo("MemAvailable"), host.memory);
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator("/sys/devices/system/node", ignored)) {
    const std::string name = entry.path().filename().string();
    host.numaNodes += name.size() > 4 && name.starts_with("node") && name.find_first_not_of("0123456789", 4) == std::string::npos ? 1 : 0;
  }
  return host;
}

/// Whether ranks can exchange messages by a transport of GPUs; `problem`: why a module that it needs cannot be loaded.
TransportHere onGpus(Transport transport, const GpuInventory& found, const std::string& problem) {
  TransportHere here{transport, false, ""};
  const auto usable = std::ranges::count_if(found.gpus, isUsable);
  if (found.gpus.empty()) {
    here.note = fmt::format("it needs an NVIDIA GPU and its driver; use {} here", hostTransports(" or "));
  } else if (std::ranges::none_of(found.gpus, [](const Gpu& gpu) { return gpu.cudaIndex.has_value(); })) {
    here.note = fmt::format("CUDA_VISIBLE_DEVICES=\"{}\" hides every GPU; unset it or name one there", found.visibleDevices.value_or(""));
  } else if (usable == 0) {
    here.note = fmt::format("no GPU here can be used; use {}", hostTransports(" or "));
  } else if (!problem.empty()) {
    here.note = problem;
  } else {
    here.available = true;
    here.note = usable == 1
                    ? "1 GPU; several ranks would share it, which rehearses a plan but is no faster"
                    : fmt::format("{} GPUs, one per rank; more ranks would share them, which rehearses a plan but is no faster", usable);
  }
  return here;
}

/// `cure`: of a module that is not there.
ModuleHere moduleOf(const char* file, const char* purpose, const std::string& cure) {
  const std::optional<std::string> path = modulePath(file);
  return {file, purpose, path.value_or(""), path ? "" : fmt::format("{} is not beside the program; {}", file, cure)};
}

std::vector<ModuleHere> modulesHere() {
  ModuleHere torch = moduleOf("libpw_torch.so", "runs models", "build it with ./dev build");
  if (torch.problem.empty() && mustFindTorch()) {
    torch.problem = findTorch().problem;
    if (torch.problem.ends_with('.')) torch.problem.pop_back();
  }
  return {torch, moduleOf("libpw_ucx.so", "messages between processes and hosts", "build it with ./dev build"),
          moduleOf("libpw_cuda.so", "GPUs and NCCL", "./dev build makes it where nvcc and PyTorch's CUDA wheel are")};
}

/// Why the LibTorch module, or the other one that this transport needs, cannot be loaded; empty: nothing speaks against them.
std::string problemOf(Transport transport, const std::vector<ModuleHere>& modules) {
  for (const ModuleHere& module : modules) {
    const bool isNeeded = &module == &modules.front() || module.name == factsOf(transport).module;
    if (isNeeded && !module.problem.empty()) return module.problem;
  }
  return "";
}

std::vector<TransportHere> transportsOf(const GpuInventory& gpus, const std::vector<ModuleHere>& modules) {
  std::vector<TransportHere> all;
  for (const Transport transport : valuesOf<Transport>()) {
    const TransportFacts facts = factsOf(transport);
    const std::string problem = problemOf(transport, modules);
    const char* prefix = transport == defaultTransport(false) ? "the default: " : "";
    all.push_back(facts.onGpu
                      ? onGpus(transport, gpus, problem)
                      : TransportHere{transport, problem.empty(), problem.empty() ? fmt::format("{}{}", prefix, facts.links) : problem});
  }
  return all;
}

}  // namespace

std::string crowdingNote(int ranks, int cores) {
  if (cores < 1 || ranks <= cores) return "";
  return fmt::format("{} ranks share {} and take turns: a step takes longer than where each rank has a core", ranks,
                     counted(cores, "core"));
}

HostInventory hostInventory() {
  HostInventory found;
  found.host = thisHost();
  found.gpus = gpuInventory();
  found.modules = modulesHere();
  found.transports = transportsOf(found.gpus, found.modules);
  return found;
}

void measureGpus(HostInventory& result, const MeasureProgress& progress) {
  const GpuInventory& found = result.gpus;
  const auto usable = static_cast<int>(std::ranges::count_if(found.gpus, isUsable));
  const CudaBackend& cuda = cudaBackend();
  const int all = usable * usable;  // each, and each pair both ways
  std::map<int, GpuRates> rates;
  for (const Gpu& gpu : found.gpus) {
    if (!isUsable(gpu)) continue;
    progress(static_cast<int>(rates.size()), all, fmt::format("GPU {}", gpu.index));
    rates[gpu.index] = cuda.measureRates(*gpu.cudaIndex);
  }
  for (const Gpu& from : found.gpus) {
    for (const Gpu& to : found.gpus) {
      if (&from == &to || !isUsable(from) || !isUsable(to)) continue;
      progress(usable + static_cast<int>(result.linkRates.size()), all, fmt::format("GPU {} to {}", from.index, to.index));
      result.linkRates[{from.index, to.index}] = cuda.measureLink(*from.cudaIndex, *to.cudaIndex);
    }
  }
  progress(all, all, "");
  result.rates = std::move(rates);
}

}  // namespace pw
