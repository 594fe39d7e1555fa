#include "backends/torch/stage/checkpoint.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>

#include "backends/torch/program/types.h"

namespace pw {

CheckpointFile::CheckpointFile(const std::string& path) : file_(std::make_shared<TensorFile>(path)) {}

CheckpointFile::~CheckpointFile() = default;

at::Tensor CheckpointFile::read(const std::string& name) const {
  const std::optional<MappedTensor> found = file_->find(name);
  if (!found) return {};
  const auto options = at::TensorOptions().dtype(scalarType(found->dtype));
  if (found->data == nullptr) return at::empty(found->shape, options);
  return at::from_blob(
      found->data, found->shape, found->strides, [file = file_, copy = found->copy](void* /*memory*/) {}, options);
}

std::vector<std::string> CheckpointFile::names() const { return file_->names(); }

const std::map<std::string, double>& CheckpointFile::numbers() const { return file_->numbers(); }

}  // namespace pw
