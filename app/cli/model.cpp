#include "app/cli/model.h"

#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <thread>

#include "app/cli/output.h"
#include "backends/pt2.h"
#include "engine/failure.h"
#include "engine/launcher.h"
#include "schedules/error.h"

namespace pw::cli {

namespace fs = std::filesystem;

ModelGraph loadModel(const std::vector<std::string>& paths) {
  std::vector<ModelGraph> parts;
  for (const std::string& path : paths) parts.push_back(readPt2(fs::absolute(path).string()));
  return parts.size() == 1 ? std::move(parts.front()) : join(parts);
}

std::string defaultLoss(const ModelGraph& graph) {
  const auto isNumber = [&](std::size_t i) {
    const Value& output = graph.value(graph.outputs[i]);
    return output.tensor && output.tensor->sizes.empty() && isDifferentiable(output.tensor->dtype);
  };
  for (std::size_t i = 0; i < graph.outputs.size(); ++i) {
    if (graph.outputNames[i] == "loss" && isNumber(i)) return "output:loss";
  }
  return !graph.outputs.empty() && isNumber(0) ? "output:" + graph.outputNames.front() : "cross_entropy";
}

std::string ownPath() {
  std::array<char, 4096> path{};
  const ssize_t length = readlink("/proc/self/exe", path.data(), path.size() - 1);
  if (length <= 0) throw Error("This program cannot find its own path in /proc/self/exe; mount /proc.");
  return path.data();
}

std::vector<std::string> ownCall() {
  std::ifstream file("/proc/self/cmdline", std::ios::binary);
  std::vector<std::string> call;
  for (std::string argument; std::getline(file, argument, '\0');) call.push_back(argument);
  if (call.empty()) throw Error("This program cannot find its own arguments in /proc/self/cmdline; mount /proc.");
  call.front() = ownPath();
  return call;
}

std::string resourceFolder() {
  if (const char* folder = std::getenv("PIPEWRIGHT_RESOURCES")) return folder;
  return (fs::path(ownPath()).parent_path().parent_path().parent_path() / "resources").string();
}

Cluster loadCluster(const std::string& nameOrFile) {
  if (fs::exists(nameOrFile)) return parseCluster(readFile(nameOrFile), nameOrFile);
  const fs::path folder = fs::path(resourceFolder()) / "clusters";
  const fs::path preset = folder / (nameOrFile + ".json");
  if (fs::exists(preset)) return parseCluster(readFile(preset.string()), preset.string());
  std::string known;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(folder, ignored)) known += (known.empty() ? "" : ", ") + entry.path().stem().string();
  throw UsageError(fmt::format("There is no cluster preset or file {}; presets are {}.", nameOrFile, known.empty() ? "not installed" : known));
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

Profile measureWithRanks(const std::vector<std::string>& models, std::int64_t microbatch, int ranks, int threads, const std::string& loss) {
  const std::string out = fmt::format("{}/pipewright-profile-{}.json", fs::temp_directory_path().string(), getpid());
  std::vector<std::string> argv{ownPath(), "profile"};
  argv.insert(argv.end(), models.begin(), models.end());
  argv.insert(argv.end(), {"--microbatch", std::to_string(microbatch), "--threads", std::to_string(threads), "--loss", loss, "--out", out, "--quiet"});
  const LaunchResult result = launch(ranks, argv, threads, {}, std::chrono::minutes(30));
  if (!result.ok) fs::remove(out);
  throwUnlessOk(result);
  Profile profile = parseProfile(readFile(out), out);
  fs::remove(out);
  return profile;
}

}  // namespace pw::cli
