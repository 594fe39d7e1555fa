#include "backends/torch/stage/state.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <memory>

#include "backends/pt2/read.h"
#include "backends/torch/program/types.h"
#include "schedules/error.h"

namespace pw {
namespace {

bool endsWith(const std::string& text, const std::string& end) {
  return text.size() >= end.size() && text.compare(text.size() - end.size(), end.size(), end) == 0;
}

/// FNV-1a, so that a parameter's first values depend on its name and the seed alone.
std::uint64_t hashOf(const std::string& name, std::uint64_t seed) {
  std::uint64_t h = 14695981039346656037ULL ^ seed;
  for (const char c : name) h = (h ^ static_cast<unsigned char>(c)) * 1099511628211ULL;
  return h;
}

/// Pages wholly inside [begin, begin + bytes) of a mapping leave this process's memory; they stay in the page cache.
void giveBack(std::byte* begin, std::size_t bytes) {
  const auto page = static_cast<std::uintptr_t>(sysconf(_SC_PAGESIZE));
  const std::uintptr_t first = (reinterpret_cast<std::uintptr_t>(begin) + page - 1) / page * page;
  const std::uintptr_t last = (reinterpret_cast<std::uintptr_t>(begin) + bytes) / page * page;
  if (first < last) madvise(reinterpret_cast<void*>(first), last - first, MADV_DONTNEED);
}

}  // namespace

struct StateReader::Files {
  std::vector<std::unique_ptr<MappedFile>> mapped;
};

StateReader::StateReader(const ModelGraph& graph, bool random, std::uint64_t seed)
    : graph_(graph), random_(random), seed_(seed), files_(std::make_unique<Files>()) {
  for (const std::string& path : graph.files) files_->mapped.push_back(std::make_unique<MappedFile>(path));
}

StateReader::~StateReader() = default;

at::Tensor StateReader::read(const StateTensor& state) const {
  const TensorMeta& meta = *graph_.value(state.value).tensor;
  at::Tensor tensor = at::empty(shapeOf(meta, {}), at::TensorOptions().dtype(scalarType(meta.dtype)));
  readInto(state, tensor);
  return tensor;
}

void StateReader::readInto(const StateTensor& state, at::Tensor& into) const {
  const TensorMeta& meta = *graph_.value(state.value).tensor;
  const std::vector<std::int64_t> shape = into.sizes().vec();
  if (random_ && !state.stored) {
    if (shape.size() > 1) {
      into.copy_(at::randn(shape, at::detail::createCPUGenerator(hashOf(state.name, seed_)), at::TensorOptions()).mul_(0.02));
      return;
    }
    const bool one = endsWith(state.name, "weight") || endsWith(state.name, "running_var");
    into.fill_(one ? 1 : 0);
    return;
  }
  if (!state.stored) {
    throw UsageError("Tensor " + state.name + " of " + graph_.name +
                     " has no values in the archive (exported on the meta device); run with --init random.");
  }
  const StoredTensor& stored = *state.stored;
  const MappedFile& file = *files_->mapped[stored.file];
  std::int64_t last = stored.storageOffset + 1;
  for (std::size_t i = 0; i < shape.size(); ++i) last += (shape[i] - 1) * stored.strides[i];
  if (into.numel() == 0) return;
  const std::int64_t width = widthOf(meta.dtype);
  if (stored.storageOffset < 0 || stored.offset < 0 || last * width > stored.bytes ||
      static_cast<std::size_t>(stored.offset + stored.bytes.value) > file.size()) {
    throw UsageError("Tensor " + state.name + " reaches past its bytes in " + graph_.files[stored.file] +
                     "; the archive is damaged, export it again.");
  }
  std::byte* begin = file.data() + stored.offset + stored.storageOffset * width;
  const at::Tensor mapped = at::from_blob(begin, shape, stored.strides, into.options());
  if (!mapped.is_contiguous()) {
    into.copy_(mapped);
    return;
  }
  constexpr std::size_t kPiece = std::size_t{16} << 20;
  const auto bytes = static_cast<std::size_t>(into.nbytes());
  for (std::size_t at = 0; at < bytes; at += kPiece) {
    const std::size_t n = std::min(kPiece, bytes - at);
    std::memcpy(static_cast<std::byte*>(into.data_ptr()) + at, begin + at, n);
    giveBack(begin + at, n);
  }
}

}  // namespace pw
