#include "backends/pt2/read.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>

#include "backends/pt2/graph.h"
#include "backends/pt2/zip.h"
#include "schedules/error.h"

namespace pw {

ModelGraph readPt2(const std::string& path) {
  const pt2::Archive archive = pt2::openArchive(path);
  const std::map<std::string, std::string> texts =
      pt2::readEntries(archive, {pt2::kModelEntry, pt2::kWeightsEntry, pt2::kConstantsEntry, pt2::kByteOrderEntry});
  const auto order = texts.find(pt2::kByteOrderEntry);
  if (order != texts.end() && order->second != "little") {
    throw UsageError(
        fmt::format("{} holds big-endian tensors, which this version does not read; export it again on a little-endian machine", path));
  }
  return pt2::buildGraph(archive, texts);
}

MappedFile::MappedFile(const std::string& path) {
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  struct stat status {};
  if (descriptor < 0 || ::fstat(descriptor, &status) != 0 || !S_ISREG(status.st_mode)) {
    const std::string reason = descriptor < 0 ? std::strerror(errno) : "it is not a file";
    if (descriptor >= 0) {
      ::close(descriptor);
    }
    throw UsageError(fmt::format("{} cannot be opened: {}", path, reason));
  }
  size_ = static_cast<std::size_t>(status.st_size);
  if (size_ > 0) {
    // No reservation: a private writable map of 140 GB must not count against the machine's memory until written.
    void* mapped = ::mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_NORESERVE, descriptor, 0);
    const int reason = errno;
    ::close(descriptor);
    if (mapped == MAP_FAILED) {
      throw Error(fmt::format("{} cannot be mapped into memory: {}", path, std::strerror(reason)));
    }
    data_ = static_cast<std::byte*>(mapped);
    return;
  }
  ::close(descriptor);
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) {
    ::munmap(data_, size_);
  }
}

}  // namespace pw
