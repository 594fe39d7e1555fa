#include "backends/pt2/read.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>

#include "backends/pt2/graph.h"
#include "backends/pt2/zip.h"
#include "schedules/error.h"

namespace pw {
namespace {

/// torch 2.11 traces the last states of nn.LSTM with a dimension too many, and so what is computed from them; our exporter mends that.
void requireLstmShapes(const ModelGraph& graph, const std::string& path) {
  for (const Node& node : graph.nodes) {
    if (node.target != "torch.ops.aten.lstm.input") continue;
    for (std::size_t o = 1; o < node.outputs.size(); ++o) {
      const ValueId state = node.outputs[o];
      if (!graph.value(state).tensor || graph.value(state).tensor->sizes.size() == 3) continue;
      const auto reads = [&](const Node& other) { return std::ranges::count(readsOf(other), state) > 0; };
      if (std::ranges::count(graph.outputs, state) == 0 && std::ranges::none_of(graph.nodes, reads)) continue;
      throw UsageError(
          fmt::format("{} uses the last states of an nn.LSTM, which torch.export traces with a wrong shape; export the model with "
                      "pipewright.export or resources/export_model.py, which mend that",
                      path));
    }
  }
}

}  // namespace

ModelGraph readPt2(const std::string& path) {
  const pt2::Archive archive = pt2::openArchive(path);
  const std::map<std::string, std::string> texts =
      pt2::readEntries(archive, {pt2::kModelEntry, pt2::kWeightsEntry, pt2::kConstantsEntry, pt2::kByteOrderEntry});
  const auto order = texts.find(pt2::kByteOrderEntry);
  if (order != texts.end() && order->second != "little") {
    throw UsageError(
        fmt::format("{} holds big-endian tensors, which this version does not read; export it again on a little-endian machine", path));
  }
  ModelGraph graph = pt2::buildGraph(archive, texts);
  requireLstmShapes(graph, path);
  return graph;
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
