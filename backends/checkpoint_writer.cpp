#include "backends/checkpoint_writer.h"

#include <algorithm>
#include <bit>
#include <cassert>
#include <fmt/format.h>

#include "backends/pickle.h"
#include "backends/zip_writer.h"
#include "schedules/error.h"

namespace pw {
namespace {

static_assert(std::endian::native == std::endian::little, "checkpoints hold tensors as they lie in memory");
constexpr const char* kTop = "archive/";  ///< all entries lie in one folder, as torch.save has it

}  // namespace

struct CheckpointWriter::Impl {
  ZipWriter zip;
  pickle::TensorDict dict;      // what Python sees
  pickle::TensorDict training;  // names with a `/`, and numbers
  std::size_t storages = 0;

  pickle::TensorDict& dictOf(const std::string& name) { return name.find('/') == std::string::npos ? dict : training; }
};

CheckpointWriter::CheckpointWriter(const std::string& path) : impl_(new Impl{ZipWriter(path), {}, {}, 0}) {}

CheckpointWriter::~CheckpointWriter() = default;

void CheckpointWriter::add(const std::string& name, DType dtype, const std::vector<std::int64_t>& shape, const std::byte* bytes) {
  pickle::TensorEntry entry{name, dtype, std::to_string(impl_->storages++), 1, 0, shape, {}};
  for (const std::int64_t size : shape) entry.storageElements *= size;
  pickle::TensorDict one;
  one.tensors.push_back(entry);
  static_cast<void>(pickle::write(one));  // refuses a type before its bytes are written
  impl_->zip.add(kTop + ("data/" + entry.storage), bytes, static_cast<std::size_t>(entry.storageElements * bytesPerElement(dtype)));
  impl_->dictOf(name).tensors.push_back(std::move(entry));
}

void CheckpointWriter::alias(const std::string& name, const std::string& of) {
  const auto& tensors = impl_->dictOf(of).tensors;
  const auto found = std::ranges::find(tensors, of, &pickle::TensorEntry::name);
  if (found == tensors.end()) throw Error(fmt::format("The checkpoint lacks {}, which {} shares its values with; plan the model again.", of, name));
  pickle::TensorEntry entry = *found;
  entry.name = name;
  impl_->dictOf(name).tensors.push_back(std::move(entry));
}

void CheckpointWriter::finish(const std::map<std::string, double>& numbers) {
  ZipWriter& zip = impl_->zip;
  const auto put = [&](const std::string& name, const std::string& text) { zip.add(kTop + name, text); };
  put("data.pkl", pickle::write(impl_->dict));
  impl_->training.numbers = numbers;
  if (!numbers.empty() || !impl_->training.tensors.empty()) put("training.pkl", pickle::write(impl_->training));
  put(".format_version", "1");
  put(".storage_alignment", "64");
  put("byteorder", "little");
  put("version", "3\n");
  zip.finish();
}

}  // namespace pw
