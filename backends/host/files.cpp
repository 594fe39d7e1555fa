#include "backends/host/files.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <vector>

#include <fmt/format.h>

#include "backends/host/part_file.h"
#include "schedules/error.h"

namespace pw {
namespace {

constexpr std::size_t kLargestText = std::size_t{2} << 30U;

std::string reason() { return std::strerror(errno); }

Error cannotWrite(const std::string& path) {
  return Error(fmt::format("cannot write {} ({}); give a path in an existing folder you may write to, with space left", path, reason()));
}

/// Writes into a device or a pipe.
void writeTo(const std::string& file, std::string_view text, const std::string& shown) {
  const int descriptor = ::open(file.c_str(), O_WRONLY | O_CLOEXEC);
  if (descriptor < 0) throw cannotWrite(shown);
  const bool written = writeAll(descriptor, text);
  const int kept = errno;
  const bool closed = ::close(descriptor) == 0;
  if (!written) errno = kept;
  if (!written || !closed) throw cannotWrite(shown);
}

}  // namespace

bool writeAll(int descriptor, std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = ::write(descriptor, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return false;
    text.remove_prefix(static_cast<std::size_t>(written));
  }
  return true;
}

std::string headOf(const std::string& path, std::size_t bytes) {
  std::error_code problem;
  if (!std::filesystem::is_regular_file(path, problem)) return {};
  std::ifstream file(path, std::ios::binary);
  std::string text(bytes, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<std::size_t>(std::max<std::streamsize>(0, file.gcount())));
  return text;
}

std::string readFile(const std::string& path) {
  const auto fail = [&] { throw UsageError(fmt::format("cannot read {} ({}); give the path of a readable file", path, reason())); };
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path.c_str(), "rbe"), &std::fclose);
  if (file == nullptr) fail();
  std::string text;
  std::vector<char> buffer(std::size_t{1} << 16);
  while (const std::size_t got = std::fread(buffer.data(), 1, buffer.size(), file.get())) {
    if (text.size() + got > kLargestText)
      throw UsageError(fmt::format("{} is larger than 2 GiB, which no such file is; give another", path));
    text.append(buffer.data(), got);
  }
  if (std::ferror(file.get()) != 0) fail();
  return text;
}

void writeFile(const std::string& path, std::string_view text) {
  std::error_code problem;
  const std::filesystem::path real = std::filesystem::weakly_canonical(path, problem);  // a link stays a link
  const std::string target = problem || path.empty() ? path : real.string();
  const auto status = std::filesystem::status(target, problem);
  if (std::filesystem::exists(status) && !std::filesystem::is_regular_file(status)) {
    writeTo(target, text, path);
    return;
  }
  PartFile part(target);
  if (part.descriptor() < 0 || !writeAll(part.descriptor(), text) || !part.replace()) throw cannotWrite(path);
}

}  // namespace pw
