#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <CLI/App.hpp>
#include <nlohmann/json.hpp>

#include "app/cli/commands.h"
#include "app/cli/options/shared.h"
#include "app/cli/text/output.h"
#include "backends/host/gpu_inventory.h"
#include "backends/messages/transport.h"
#include "engine/run/host_inventory.h"
#include "schedules/error.h"
#include "schedules/units.h"

namespace pw::cli {
namespace {

using Json = nlohmann::ordered_json;

std::string hostText(const HostInventory& found) {
  const HostMachine& host = found.host;
  std::string text;
  const auto line = [&](std::string_view what, std::string_view value) { text += fmt::format("{:<11}{}\n", what, value); };
  if (!host.machine.host.empty()) line("machine", host.machine.host);
  const std::string cores = counted(host.machine.cores, "core");
  const std::string usable = host.machine.cores < host.allCores ? fmt::format("{} of {} usable", cores, host.allCores) : cores;
  const std::string nodes = host.numaNodes > 1 ? fmt::format(", {}", counted(host.numaNodes, "NUMA node")) : "";
  line("processor", fmt::format("{}, {}{}", host.machine.processor.empty() ? "unknown" : host.machine.processor, usable, nodes));
  const std::string all = host.memory < host.allMemory ? fmt::format(" of {} usable", formatSize(host.allMemory)) : "";
  line("memory", fmt::format("{}{}, {} available", formatSize(host.memory), all, formatSize(host.availableMemory)));
  if (!found.gpus.driver.empty()) {
    line("driver", fmt::format("NVIDIA {}{}", found.gpus.driver, found.gpus.cuda.empty() ? "" : ", for CUDA up to " + found.gpus.cuda));
  }
  if (found.gpus.gpus.empty()) line("GPUs", fmt::format("none\n\n{}", found.gpus.whyNone));
  return text;
}

std::string gpuTable(const GpuInventory& found) {
  const bool numbered = found.visibleDevices.has_value();
  std::vector<std::vector<std::string>> rows{{"GPU", "name", "memory", "used", "compute", "PCI", "MIG"}};
  if (numbered) rows.front().insert(rows.front().begin() + 1, "for CUDA");
  for (const Gpu& gpu : found.gpus) {
    const std::string mig = !gpu.mig ? "" : !*gpu.mig ? "off" : counted(static_cast<std::int64_t>(gpu.migInstances.size()), "instance");
    std::vector<std::string> row{fmt::format("{}", gpu.index),
                                 orDash(gpu.name),
                                 gpu.memory > 0 ? formatSize(gpu.memory) : "–",
                                 gpu.memory > 0 ? formatSize(gpu.usedMemory) : "–",
                                 gpu.major > 0 ? fmt::format("{}.{}", gpu.major, gpu.minor) : "–",
                                 orDash(gpu.pciAddress),
                                 orDash(mig)};
    if (numbered) row.insert(row.begin() + 1, gpu.cudaIndex ? fmt::format("{}", *gpu.cudaIndex) : "hidden");
    rows.push_back(row);
  }
  return table(rows);
}

/// Notes about the GPUs for below their table, one sentence per line.
std::string gpuNotes(const GpuInventory& found) {
  std::string text;
  for (const Gpu& gpu : found.gpus) {
    if (!gpu.problem.empty()) text += fmt::format("GPU {} cannot be used: {}.\n", gpu.index, gpu.problem);
  }
  const auto hidden = std::ranges::count_if(found.gpus, [](const Gpu& gpu) { return !gpu.cudaIndex.has_value(); });
  if (hidden > 0) text += fmt::format("CUDA_VISIBLE_DEVICES=\"{}\" hides {}.\n", found.visibleDevices.value_or(""), counted(hidden, "GPU"));
  if (std::ranges::any_of(found.gpus, [](const Gpu& gpu) { return !gpu.migInstances.empty(); })) {
    text += "A GPU in MIG mode gives each process one isolated instance; nvidia-smi -mig 0 turns that off.\n";
  }
  const char* order = std::getenv("CUDA_DEVICE_ORDER");
  const auto differs = [&](const Gpu& gpu) { return !gpu.name.empty() && gpu.name != found.gpus.front().name; };
  if (std::ranges::any_of(found.gpus, differs) && (order == nullptr || std::string_view(order) != "PCI_BUS_ID")) {
    text += "CUDA numbers different GPUs by speed; set CUDA_DEVICE_ORDER=PCI_BUS_ID to get the numbers shown here.\n";
  }
  return text;
}

std::string words(const GpuLink& link) {
  switch (link.path) {
    case GpuPath::NvLink: return fmt::format("NVLink ×{}", link.nvLinks);
    case GpuPath::Board: return "same board";
    case GpuPath::PcieSwitch: return "PCIe switch";
    case GpuPath::PcieSwitches: return "PCIe switches";
    case GpuPath::HostBridge: return "host bridge";
    case GpuPath::Cpu: return "CPU";
    case GpuPath::Sockets: return "other socket";
    case GpuPath::Unknown: return "unknown";
  }
  return "unknown";
}

std::string linkText(const GpuInventory& found) {
  const std::size_t count = found.gpus.size();
  std::vector<std::vector<std::string>> rows(count + 1, std::vector<std::string>(count + 1, "–"));
  rows[0][0] = "link";
  for (std::size_t g = 0; g < count; ++g) rows[0][g + 1] = rows[g + 1][0] = fmt::format("GPU {}", g);
  std::string apart;
  for (const GpuLink& link : found.links) {
    const auto a = static_cast<std::size_t>(link.first) + 1, b = static_cast<std::size_t>(link.second) + 1;
    rows[a][b] = rows[b][a] = words(link);
    if (link.peerAccess == false) apart += fmt::format("{}{}–{}", apart.empty() ? "" : ", ", link.first, link.second);
  }
  if (!apart.empty()) apart = fmt::format("No access to each other's memory ({}): messages go through the host's memory.\n", apart);
  return table(rows) + apart;
}

/// Rows are senders, columns receivers.
std::string linkRateText(const std::map<std::pair<int, int>, GpuLinkRate>& rates) {
  std::map<int, std::size_t> places;
  for (const auto& [pair, rate] : rates) places.emplace(pair.first, places.size() + 1);
  std::vector<std::vector<std::string>> rows(places.size() + 1, std::vector<std::string>(places.size() + 1, "–"));
  rows[0][0] = "from \\ to";
  for (const auto& [gpu, place] : places) rows[0][place] = rows[place][0] = fmt::format("GPU {}", gpu);
  for (const auto& [pair, rate] : rates) {
    rows[places.at(pair.first)][places.at(pair.second)] =
        fmt::format("{:.1f} GB/s, {}", rate.bytesPerSecond * 1e-9, formatDuration(rate.latency));
  }
  return table(rows) + "Measured: large copies from one GPU's memory to another's, and the time of a copy of 8 bytes.\n";
}

std::string rateText(const std::map<int, GpuRates>& rates) {
  const auto tera = [](double rate) { return fmt::format("{:.1f} TFLOP/s", rate * 1e-12); };
  const auto giga = [](double rate) { return fmt::format("{:.1f} GB/s", rate * 1e-9); };
  std::vector<std::vector<std::string>> rows{{"GPU", "bf16", "TF32", "float32", "memory", "from host", "to host", "launch"}};
  for (const auto& [gpu, r] : rates) {
    rows.push_back({fmt::format("{}", gpu), tera(r.matmulFlopsPerSecond), tera(r.tf32FlopsPerSecond), tera(r.floatFlopsPerSecond),
                    giga(r.copyBytesPerSecond), giga(r.hostToDeviceBytesPerSecond), giga(r.deviceToHostBytesPerSecond),
                    formatDuration(r.launch)});
  }
  return table(rows) +
         "Measured: matrix products; memory read and written together; pinned memory of the host; launches of an empty kernel, back to "
         "back.\n";
}

std::string inventoryText(const HostInventory& found) {
  std::string text = hostText(found) + "\n";
  if (!found.gpus.gpus.empty()) text += gpuTable(found.gpus) + gpuNotes(found.gpus) + "\n";
  if (found.gpus.gpus.size() > 1) text += linkText(found.gpus) + "\n";
  if (found.rates) text += rateText(*found.rates) + "\n";
  if (!found.linkRates.empty()) text += linkRateText(found.linkRates) + "\n";
  std::vector<std::vector<std::string>> rows{{"run --backend", "here", "note"}};
  for (const TransportHere& here : found.transports)
    rows.push_back({std::string(nameOf(here.transport)), here.available ? "yes" : "no", here.note});
  text += table(rows) + "\n";
  rows = {{"module", "for", "file"}};
  for (const ModuleHere& module : found.modules)
    rows.push_back({module.name, module.purpose, module.path.empty() ? "not here" : module.path});
  return text + table(rows);
}

template <class Value>
Json orNull(const std::optional<Value>& value) {
  return value ? Json(*value) : Json(nullptr);
}

Json gpuJson(const Gpu& gpu) {
  return {{"index", gpu.index},
          {"cuda_index", orNull(gpu.cudaIndex)},
          {"name", gpu.name},
          {"uuid", gpu.uuid},
          {"pci_address", gpu.pciAddress},
          {"memory_bytes", gpu.memory},
          {"memory_used_bytes", gpu.usedMemory},
          {"compute_capability", gpu.major > 0 ? fmt::format("{}.{}", gpu.major, gpu.minor) : ""},
          {"mig", orNull(gpu.mig)},
          {"mig_instances", gpu.migInstances},
          {"problem", gpu.problem}};
}

Json rateJson(const GpuRates& rates) {
  return {{"bf16_flops_per_s", rates.matmulFlopsPerSecond},
          {"tf32_flops_per_s", rates.tf32FlopsPerSecond},
          {"float32_flops_per_s", rates.floatFlopsPerSecond},
          {"memory_bytes_per_s", rates.copyBytesPerSecond},
          {"host_to_device_bytes_per_s", rates.hostToDeviceBytesPerSecond},
          {"device_to_host_bytes_per_s", rates.deviceToHostBytesPerSecond},
          {"launch_ns", rates.launch}};
}

/// Both ways; null where one of the two cannot be used.
Json linkRateJson(const HostInventory& found, const GpuLink& link) {
  const auto there = found.linkRates.find({link.first, link.second}), back = found.linkRates.find({link.second, link.first});
  if (there == found.linkRates.end() || back == found.linkRates.end()) return nullptr;
  return {{"bytes_per_s", there->second.bytesPerSecond},
          {"latency_ns", there->second.latency},
          {"back_bytes_per_s", back->second.bytesPerSecond},
          {"back_latency_ns", back->second.latency}};
}

std::string inventoryDocument(const HostInventory& found) {
  const HostMachine& host = found.host;
  Json json{{"host", host.machine.host},
            {"cpu",
             {{"model", host.machine.processor},
              {"cores", host.machine.cores},
              {"all_cores", host.allCores},
              {"numa_nodes", host.numaNodes},
              {"memory_bytes", host.memory},
              {"all_memory_bytes", host.allMemory},
              {"available_memory_bytes", host.availableMemory}}},
            {"driver", found.gpus.driver},
            {"cuda", found.gpus.cuda},
            {"cuda_visible_devices", orNull(found.gpus.visibleDevices)},
            {"gpus", Json::array()},
            {"why_no_gpus", found.gpus.whyNone},
            {"links", Json::array()},
            {"backends", Json::array()},
            {"modules", Json::array()}};
  for (const Gpu& gpu : found.gpus.gpus) {
    json["gpus"].push_back(gpuJson(gpu));
    if (found.rates)
      json["gpus"].back()["measured"] = found.rates->contains(gpu.index) ? rateJson(found.rates->at(gpu.index)) : Json(nullptr);
  }
  for (const GpuLink& link : found.gpus.links) {
    json["links"].push_back({{"first", link.first},
                             {"second", link.second},
                             {"path", nameOf(link.path)},
                             {"nvlinks", link.nvLinks},
                             {"peer_access", orNull(link.peerAccess)}});
    if (found.rates) json["links"].back()["measured"] = linkRateJson(found, link);
  }
  for (const TransportHere& t : found.transports)
    json["backends"].push_back({{"name", nameOf(t.transport)}, {"available", t.available}, {"note", t.note}});
  for (const ModuleHere& m : found.modules)
    json["modules"].push_back({{"file", m.name}, {"path", m.path.empty() ? Json(nullptr) : Json(m.path)}});
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace

Command addDevices(CLI::App& app) {
  struct Options {
    bool json = false, measure = false;
    ProgressStyle progressStyle = ProgressStyle::Automatic;
  };
  auto o = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand("devices", "List processors, GPUs, their links and the available transports");
  command->add_flag("--json", o->json, "One JSON document on stdout");
  command->add_flag("--measure", o->measure, "Measure each GPU, which takes some seconds each");
  addProgress(*command, o->progressStyle);
  command->footer(
      "Examples:\n"
      "  pipewright devices\n"
      "  pipewright devices --measure\n\n"
      "GPUs are NVIDIA GPUs as listed by the driver; only --measure starts CUDA. NVLink ×N: N links between two GPUs.\n"
      "The other entries say what PCIe traffic between them passes, from near to far: PCIe switch, PCIe switches, host bridge,\n"
      "CPU, other socket.");
  return [o] {
    const ProgressStyle style = o->progressStyle;
    HostInventory found = hostInventory();
    if (o->measure) {
      if (std::ranges::none_of(found.gpus.gpus, isUsable))
        throw UsageError(fmt::format("--measure needs a GPU. {}", whyUnusable(found.gpus, 0)));
      measureGpus(found, progress("measure", style));
    }
    print(o->json ? versioned(inventoryDocument(found)) : inventoryText(found));
    return kYes;
  };
}

}  // namespace pw::cli
