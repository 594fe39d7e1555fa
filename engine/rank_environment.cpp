#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <charconv>
#include <cstdlib>
#include <cstring>

#include <fmt/format.h>

#include "engine/launcher.h"
#include "schedules/error.h"

namespace pw {
namespace {

/// The number of an environment variable; UsageError when it is missing or not in [low, high].
int numberFrom(const char* name, int low, int high) {
  const char* text = ::getenv(name);
  if (text == nullptr) throw UsageError(fmt::format("RANK is set but {} is not; set both as torchrun does, or neither", name));
  int value = 0;
  const char* end = text + std::strlen(text);
  const auto parsed = std::from_chars(text, end, value);
  if (parsed.ec != std::errc{} || parsed.ptr != end || value < low || value > high) {
    throw UsageError(fmt::format("{} in the environment is '{}'; it must be a number from {} to {}", name, text, low, high));
  }
  return value;
}

/// A descriptor our launcher passed, −1 without one. Programs the rank starts do not get it.
int inheritedFd(const char* name) {
  if (::getenv(name) == nullptr) return -1;
  const int fd = numberFrom(name, 0, 1 << 20);
  ::fcntl(fd, F_SETFD, FD_CLOEXEC);
  return fd;
}

}  // namespace

std::optional<RankEnvironment> rankEnvironment() {
  if (::getenv("RANK") == nullptr) return std::nullopt;
  constexpr int kMostRanks = 1 << 20;
  RankEnvironment environment;
  environment.worldSize = numberFrom("WORLD_SIZE", 1, kMostRanks);
  environment.rank = Rank(numberFrom("RANK", 0, environment.worldSize - 1));
  const char* address = ::getenv("MASTER_ADDR");
  if (address == nullptr || *address == '\0') {
    throw UsageError("RANK is set but MASTER_ADDR is not; set both as torchrun does, or neither");
  }
  environment.masterAddress = address;
  environment.masterPort = numberFrom("MASTER_PORT", 1, 65535);
  environment.listenFd = inheritedFd("PIPEWRIGHT_LISTEN_FD");
  environment.statusFd = inheritedFd("PIPEWRIGHT_STATUS_FD");
  return environment;
}

void reportFailure(const RankEnvironment& environment, const std::string& sentence, bool unusable) noexcept {
  if (environment.statusFd < 0) return;
  // One write of at most PIPE_BUF bytes arrives whole. The time lets the launcher tell who failed first.
  const auto now = std::chrono::steady_clock::now();
  std::array<char, 4096> line{};
  const auto time = std::to_chars(line.data(), line.data() + 32, now.time_since_epoch().count()).ptr;
  auto length = static_cast<std::size_t>(time - line.data());
  line[length++] = unusable ? '!' : ' ';
  for (const char c : sentence) {
    if (length + 1 == line.size()) break;
    line[length++] = static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
  }
  line[length++] = '\n';
  [[maybe_unused]] const auto written = ::write(environment.statusFd, line.data(), length);
}

}  // namespace pw
