#include "backends/messages/channel/shared_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cassert>
#include <cstring>
#include <fstream>
#include <string>
#include <utility>

#include "simulator/text/digest.h"

namespace pw {
namespace {

constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;  // or a write to it could end the writer by SIGBUS

/// Processes of the same number see each other's descriptors in /proc.
std::uint64_t hostNumber() {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string boot;
  std::getline(file, boot);
  std::array<char, 64> space{};
  if (boot.empty() || ::readlink("/proc/self/ns/pid", space.data(), space.size() - 1) < 0) return 0;
  const std::string digest = Sha256().addField(boot).addField(space.data()).finish();
  std::uint64_t number = 0;
  std::memcpy(&number, digest.data(), sizeof number);
  return number;
}

std::byte* mapped(int fd, std::size_t bytes) {
  void* data = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, 0);
  return data == MAP_FAILED ? nullptr : static_cast<std::byte*>(data);
}

}  // namespace

std::shared_ptr<SharedMemory> SharedMemory::make(std::size_t space) {
  rlimit file{};
  if (::getrlimit(RLIMIT_FSIZE, &file) != 0 || file.rlim_cur < space) return nullptr;  // else SIGXFSZ ends the process
  Fd fd(::memfd_create("pipewright", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (fd.get() < 0 || ::ftruncate(fd.get(), static_cast<off_t>(space)) != 0 || ::fcntl(fd.get(), F_ADD_SEALS, kSeals) != 0) return nullptr;
  std::byte* data = mapped(fd.get(), space);
  if (data == nullptr) return nullptr;
  ::madvise(data, space, MADV_HUGEPAGE);  // a hint
  return std::shared_ptr<SharedMemory>(new SharedMemory(std::move(fd), data, space));
}

SharedMemory::SharedMemory(Fd fd, std::byte* data, std::size_t bytes) : fd_(std::move(fd)), data_(data), free_{{0, bytes}} {
  name_ = {.host = hostNumber(), .process = ::getpid(), .descriptor = fd_.get(), .bytes = bytes};
}

SharedMemory::~SharedMemory() { ::munmap(data_, name_.bytes); }

std::byte* SharedMemory::take(std::size_t bytes) {
  assert(bytes > 0 && bytes % kUnit == 0);
  std::size_t offset = 0;
  {
    const std::lock_guard lock(mutex_);
    const auto found = std::ranges::find_if(free_, [&](const auto& piece) { return piece.second >= bytes; });
    if (found == free_.end()) return nullptr;
    const auto [first, room] = *found;
    free_.erase(found);
    if (room > bytes) free_.emplace(first + bytes, room - bytes);
    offset = first;
  }
  if (::fallocate(fd_.get(), 0, static_cast<off_t>(offset), static_cast<off_t>(bytes)) == 0) return data_ + offset;
  put(data_ + offset, bytes);
  return nullptr;
}

void SharedMemory::put(const std::byte* piece, std::size_t bytes) {
  if (::getpid() != name_.process) return;  // a forked process drops what it inherited, which its parent still uses
  std::size_t first = static_cast<std::size_t>(piece - data_), count = bytes;
  ::fallocate(fd_.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(first), static_cast<off_t>(count));
  const std::lock_guard lock(mutex_);
  auto after = free_.lower_bound(first);
  if (after != free_.end() && after->first == first + count) {
    count += after->second;
    after = free_.erase(after);
  }
  if (after != free_.begin()) {
    const auto before = std::prev(after);
    if (before->first + before->second == first) {
      first = before->first;
      count += before->second;
      free_.erase(before);
    }
  }
  free_.emplace(first, count);
}

std::optional<std::uint64_t> SharedMemory::offsetOf(const std::byte* data) const {
  if (data < data_ || data >= data_ + name_.bytes) return std::nullopt;
  return static_cast<std::uint64_t>(data - data_);
}

std::shared_ptr<const SharedMemoryView> SharedMemoryView::open(const SharedMemoryName& name) {
  if (name.host == 0 || name.host != hostNumber() || name.bytes == 0 || name.bytes > SharedMemory::kSpace) return nullptr;
  const std::string path = "/proc/" + std::to_string(name.process) + "/fd/" + std::to_string(name.descriptor);
  const Fd fd(::open(path.c_str(), O_RDWR | O_CLOEXEC | O_NOCTTY | O_NONBLOCK));
  struct stat facts {};
  const bool isRight = fd.get() >= 0 && ::fstat(fd.get(), &facts) == 0 && S_ISREG(facts.st_mode) &&
                       static_cast<std::uint64_t>(facts.st_size) == name.bytes && ::fcntl(fd.get(), F_GET_SEALS) == kSeals;
  std::byte* data = isRight ? mapped(fd.get(), name.bytes) : nullptr;
  return data == nullptr ? nullptr : std::shared_ptr<const SharedMemoryView>(new SharedMemoryView(data, name.bytes));
}

SharedMemoryView::~SharedMemoryView() { ::munmap(data_, bytes_); }

std::byte* SharedMemoryView::at(std::uint64_t offset, std::size_t bytes) const {
  return offset > bytes_ || bytes > bytes_ - offset ? nullptr : data_ + offset;
}

}  // namespace pw
