#include "backends/torch_state.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>

#include <memory>

#include "backends/pt2.h"
#include "backends/torch_types.h"
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
  const auto dtype = scalarType(meta.dtype);
  const std::vector<std::int64_t> shape = shapeOf(meta, {});
  if (random_ && !state.stored) {
    const auto options = at::TensorOptions().dtype(dtype);
    if (shape.size() > 1) return at::randn(shape, at::detail::createCPUGenerator(hashOf(state.name, seed_)), at::TensorOptions()).mul_(0.02).to(dtype);
    const bool one = endsWith(state.name, "weight") || endsWith(state.name, "running_var");
    return one ? at::ones(shape, options) : at::zeros(shape, options);
  }
  if (!state.stored) {
    throw UsageError("Tensor " + state.name + " of " + graph_.name + " has no values in the archive (exported on the meta device); run with --init random.");
  }
  const StoredTensor& stored = *state.stored;
  const MappedFile& file = *files_->mapped[stored.file];
  std::int64_t last = stored.storageOffset + 1;
  bool empty = false;
  for (std::size_t i = 0; i < shape.size(); ++i) {
    last += (shape[i] - 1) * stored.strides[i];
    empty = empty || shape[i] == 0;
  }
  if (empty) return at::empty(shape, at::TensorOptions().dtype(dtype));
  const Bytes width = bytesPerElement(meta.dtype);
  if (stored.storageOffset < 0 || stored.offset < 0 || last * width > stored.bytes ||
      static_cast<std::size_t>(stored.offset + stored.bytes) > file.size()) {
    throw UsageError("Tensor " + state.name + " reaches past its bytes in " + graph_.files[stored.file] + "; the archive is damaged, export it again.");
  }
  return at::from_blob(file.data() + stored.offset + stored.storageOffset * width, shape, stored.strides, at::TensorOptions().dtype(dtype)).clone(at::MemoryFormat::Contiguous);
}

}  // namespace pw
