#include "app/cli/model.h"

#include <fmt/format.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "app/cli/output.h"
#include "engine/failure.h"
#include "engine/launcher.h"
#include "schedules/error.h"

namespace pw::cli {

namespace fs = std::filesystem;

std::vector<std::string> ownCall() {
  std::ifstream file("/proc/self/cmdline", std::ios::binary);
  std::vector<std::string> call;
  for (std::string argument; std::getline(file, argument, '\0');) call.push_back(argument);
  if (call.empty()) throw Error("This program cannot find its own arguments in /proc/self/cmdline; mount /proc.");
  call.front() = ownPath();
  return call;
}

Profile measureWithRanks(const std::vector<std::string>& models, std::int64_t microbatch, int ranks, int threads, const std::string& loss, const std::string& progressStyle) {
  const std::string out = fmt::format("{}/pipewright-profile-{}.json", fs::temp_directory_path().string(), getpid());
  std::vector<std::string> argv{ownPath(), "profile"};
  argv.insert(argv.end(), models.begin(), models.end());
  argv.insert(argv.end(), {"--microbatch", std::to_string(microbatch), "--threads", std::to_string(threads), "--loss", loss, "--out", out, "--progress", progressStyle, "--quiet"});
  const LaunchResult result = launch(ranks, argv, threads, {}, std::chrono::minutes(30));
  if (!result.ok) fs::remove(out);
  throwUnlessOk(result);
  Profile profile = parseProfile(readFile(out), out);
  fs::remove(out);
  return profile;
}

}  // namespace pw::cli
