#include "backends/host/part_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <string_view>
#include <utility>

#include "backends/host/random_bytes.h"
#include "simulator/text/digest.h"

namespace pw {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kEnd = ".part";
constexpr std::size_t kHostDigits = 8, kRandomDigits = 8;

/// Locks do not reach other hosts: each removes what its own processes left.
const std::string& hostMark() {
  static const std::string mark = [] {
    std::array<char, 256> name{};
    static_cast<void>(::gethostname(name.data(), name.size() - 1));
    return hex(sha256(name.data())).substr(0, kHostDigits);
  }();
  return mark;
}

/// `plan.json.1f3a9c02d47be651.part`
bool isOurs(std::string_view name) {
  constexpr std::size_t kDigits = kHostDigits + kRandomDigits, kTail = 1 + kDigits + kEnd.size();
  if (name.size() <= kTail || !name.ends_with(kEnd)) return false;
  const std::string_view digits = name.substr(name.size() - kTail + 1, kDigits);
  return name[name.size() - kTail] == '.' && digits.starts_with(hostMark()) &&
         digits.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

enum class Lock { Taken, Held, Unknown };  ///< Held: by another; Unknown: this file system has none

Lock tryLock(int fd) {
  while (::flock(fd, LOCK_EX | LOCK_NB) != 0) {
    if (errno != EINTR) return errno == EWOULDBLOCK ? Lock::Held : Lock::Unknown;
  }
  return Lock::Taken;
}

/// Whether the file still has a name.
bool isThere(int fd) {
  struct stat status {};
  return ::fstat(fd, &status) == 0 && S_ISREG(status.st_mode) && status.st_nlink > 0;
}

void removeLeftovers(const fs::path& folder) {
  std::error_code problem;
  for (fs::directory_iterator entry(folder, problem), end; !problem && entry != end; entry.increment(problem)) {
    if (!isOurs(entry->path().filename().string())) continue;
    const Fd fd(::open(entry->path().c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
    if (fd.get() >= 0 && tryLock(fd.get()) == Lock::Taken && isThere(fd.get())) ::unlink(entry->path().c_str());
  }
}

}  // namespace

PartFile::PartFile(const std::string& path) : path_(path) {
  const fs::path folder = fs::path(path).parent_path();
  removeLeftovers(folder.empty() ? "." : folder);
  constexpr int kAttempts = 16;
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    beside_ = path + "." + hostMark() + hex(randomBytes(kRandomDigits / 2)) + std::string(kEnd);
    Fd fd(::open(beside_.c_str(), O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666));
    if (fd.get() < 0 && errno == EEXIST) continue;
    if (fd.get() < 0) return;
    // Before we had the lock, another process may have taken the file for a leftover.
    if (tryLock(fd.get()) == Lock::Held || !isThere(fd.get())) continue;
    fd_ = std::move(fd);
    return;
  }
  errno = EEXIST;
}

PartFile::~PartFile() {
  if (fd_.get() >= 0) ::unlink(beside_.c_str());
}

bool PartFile::replace() {
  const int copy = ::dup(fd_.get());  // closing one tells, as with NFS, whether all was written, and leaves the lock
  if (copy < 0 || ::close(copy) != 0) return false;
  if (std::rename(beside_.c_str(), path_.c_str()) != 0) return false;
  fd_.close();
  return true;
}

bool PartFile::replaceDurably() {
  if (::fsync(fd_.get()) != 0 || !replace()) return false;
  const fs::path folder = fs::path(path_).parent_path();
  const Fd directory(::open(folder.empty() ? "." : folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (directory.get() >= 0) static_cast<void>(::fsync(directory.get()));  // the new name; not every file system can
  return true;
}

}  // namespace pw
