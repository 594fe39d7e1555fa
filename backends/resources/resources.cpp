#include "backends/resources/resources.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <thread>
#include <utility>

#include "backends/host/files.h"
#include "backends/host/gpu_inventory.h"
#include "backends/host/installation.h"
#include "backends/host/paths.h"
#include "backends/pt2/read.h"
#include "backends/resources/file_kind.h"
#include "backends/traces/import.h"
#include "schedules/error.h"
#include "simulator/costs/cluster_name.h"
#include "simulator/costs/layer_chain.h"
#include "simulator/job/job_costs.h"
#include "simulator/job/job_json.h"
#include "simulator/job/recover.h"
#include "simulator/model/join.h"

namespace pw {

namespace fs = std::filesystem;

ModelGraph loadModel(const std::vector<std::string>& paths) {
  const auto chain = [&](const LayerTable& table) { return chainOf(table, absolutePath(paths.front())); };
  const FileKind kind = modelKindOf(paths);
  if (kind == FileKind::Trace) return chain(layersOf(jobOf(measuredOf(*importTrace(paths)))));
  if (kind == FileKind::Job) return chain(layersOf(parseJob(readFile(paths.front()), paths.front())));
  if (kind == FileKind::LayerTable) return chain(parseLayerTable(readFile(paths.front()), paths.front()));
  std::vector<ModelGraph> parts;
  parts.reserve(paths.size());
  for (const std::string& path : paths) parts.push_back(readPt2(absolutePath(path)));
  return parts.size() == 1 ? std::move(parts.front()) : joinGraphs(parts);
}

Plan loadPlan(const std::string& path) { return parsePlan(readAs(FileKind::Plan, path), path); }

Profile loadProfile(const std::string& path) { return parseProfile(readAs(FileKind::Profile, path), path); }

std::vector<std::string> clusterPresets() {
  std::vector<std::string> names;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(fs::path(resourceFolder()) / "clusters", ignored))
    names.push_back(entry.path().stem().string());
  std::ranges::sort(names);
  return names;
}

std::optional<Cluster> presetOfGpu(std::string_view cudaName) {
  if (cudaName.empty()) return std::nullopt;
  for (const std::string& name : clusterPresets()) {
    Cluster cluster = loadCluster(name);
    if (cluster.cudaName == cudaName) return cluster;
  }
  return std::nullopt;
}

std::vector<NamedLink> linkPresets() {
  const std::string file = (fs::path(resourceFolder()) / "links.json").string();
  return parseLinks(readFile(file), file);
}

namespace {

/// Profiles that ranks of a cluster name, relative to its folder.
void readRankProfiles(Cluster& cluster, const fs::path& folder) {
  std::map<std::string, std::shared_ptr<const Profile>> read;
  for (RankSpec& rank : cluster.topology.ranks) {
    if (!rank.own.exists()) continue;
    rank.own.file = (folder / rank.own.file).lexically_normal().string();  // an absolute one stays
    const auto [known, isNew] = read.try_emplace(rank.own.file);
    if (isNew) known->second = std::make_shared<const Profile>(loadProfile(rank.own.file));
    rank.own.costs = known->second;
  }
}

}  // namespace

Cluster loadCluster(const std::string& nameOrFile) {
  if (isClusterText(nameOrFile)) {
    Cluster cluster = parseCluster(nameOrFile, "The cluster");
    readRankProfiles(cluster, fs::current_path());
    cluster.origin = toJson(cluster);
    return cluster;
  }
  constexpr std::ptrdiff_t kMostLinks = 8;
  if (std::ranges::count(nameOrFile, '+') > kMostLinks)
    throw UsageError(
        fmt::format("A cluster is named with at most {} links, `h100-nvlink+pcie-5+ethernet-25`; this one has more.", kMostLinks));
  const bool isPath = nameOrFile.find('/') != std::string::npos;  // else a preset, whatever lies in the current folder
  const auto presetOf = [](const std::string& name) { return (fs::path(resourceFolder()) / "clusters" / (name + ".json")).string(); };
  const bool linksPreset = !isPath && pathExists(presetOf(nameOrFile.substr(0, nameOrFile.find('+'))));
  if (const std::size_t plus = nameOrFile.rfind('+'); plus != std::string::npos && (linksPreset || !pathExists(nameOrFile))) {
    Cluster cluster = loadCluster(nameOrFile.substr(0, plus));
    std::string known;
    for (const NamedLink& link : linkPresets()) {
      if (link.name == nameOrFile.substr(plus + 1)) return withLink(std::move(cluster), link);
      known += (known.empty() ? "" : ", ") + link.name;
    }
    throw UsageError(fmt::format("There is no link {} for cluster {}; links are {}.", nameOrFile.substr(plus + 1), cluster.name, known));
  }
  const auto read = [](const std::string& file, std::string origin) {
    Cluster cluster = parseCluster(readAs(FileKind::Cluster, file), file);
    readRankProfiles(cluster, fs::path(absolutePath(file)).parent_path());
    cluster.origin = std::move(origin);
    return cluster;
  };
  if (const std::string preset = presetOf(nameOrFile); !isPath && pathExists(preset)) return read(preset, nameOrFile);
  if (pathExists(nameOrFile)) return read(nameOrFile, absolutePath(nameOrFile));
  std::string known;
  for (const std::string& name : clusterPresets()) known += (known.empty() ? "" : ", ") + name;
  throw UsageError(
      fmt::format("There is no cluster preset or file {}; presets are {}.", nameOrFile, known.empty() ? "not installed" : known));
}

Machine thisMachine() {
  Machine machine;
  std::array<char, 256> host{};
  if (gethostname(host.data(), host.size() - 1) == 0) machine.host = host.data();
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);) {
    if (line.rfind("model name", 0) != 0) continue;
    machine.processor = line.substr(line.find(':') + 2);
    break;
  }
  machine.cores = static_cast<int>(std::thread::hardware_concurrency());
  return machine;
}

Machine gpuMachine(int cudaIndex) {
  Machine machine = thisMachine();
  machine.device = fmt::format("cuda:{}", cudaIndex);
  machine.processor = "a GPU";
  for (const Gpu& gpu : gpuInventory().gpus) {
    if (gpu.cudaIndex == cudaIndex && !gpu.name.empty()) machine.processor = gpu.name;
  }
  return machine;
}

}  // namespace pw
