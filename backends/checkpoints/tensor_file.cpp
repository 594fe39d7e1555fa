#include "backends/checkpoints/tensor_file.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <charconv>
#include <cstring>
#include <filesystem>
#include <string_view>

#include "backends/checkpoints/distributed.h"
#include "backends/checkpoints/pickle.h"
#include "backends/checkpoints/safetensors.h"
#include "backends/pt2/read.h"
#include "backends/pt2/zip.h"
#include "schedules/error.h"

namespace pw {
namespace {

/// Record of a checkpoint that Python ignores: optimizer state and numbers, as a second pickle.
constexpr const char* kTrainingEntry = "training.pkl";

/// A file of torch.save or of safetensors.
struct OneFile {
  std::string path;
  pt2::Archive archive;
  MappedFile mapped;
  std::vector<pickle::TensorEntry> tensors;
  std::map<std::string, std::size_t> places;
  std::map<std::string, double> numbers;

  std::unique_ptr<MappedFile> optimizer;           // beside a safetensors file: its state
  std::map<std::string, std::size_t> inOptimizer;  // places of its tensors

  explicit OneFile(const std::string& file)
      : path(file), archive(isSafetensors(file) ? pt2::Archive{file, "", {}} : pt2::openSavedArchive(file)), mapped(file) {}

  void readPickles();
  void readHeaders();
  void readState(const std::map<std::string, std::string>& model);
  void addSafetensors(const SafetensorsHeader& header, bool isOptimizer);
  [[nodiscard]] std::optional<MappedTensor> find(const std::string& name) const;

  void add(pickle::TensorDict dict) {
    for (pickle::TensorEntry& entry : dict.tensors) {
      if (places.emplace(entry.name, tensors.size()).second) tensors.push_back(std::move(entry));
    }
  }
};

void OneFile::readPickles() {
  const auto texts = pt2::readEntries(archive, {"data.pkl", "byteorder", kTrainingEntry});
  const auto order = texts.find("byteorder");
  if (order != texts.end()) pickle::requireLittleEndian(order->second, path);
  add(pickle::read(texts.at("data.pkl"), path));
  if (const auto training = texts.find(kTrainingEntry); training != texts.end()) {
    pickle::TensorDict dict = pickle::read(training->second, path);
    numbers = dict.numbers;
    add(std::move(dict));
  }
}

void OneFile::addSafetensors(const SafetensorsHeader& header, bool isOptimizer) {
  for (const SafeTensor& tensor : header.tensors) {
    pickle::TensorEntry entry{tensor.name, tensor.dtype, tensor.name, 1, 0, tensor.shape, std::vector<std::int64_t>(tensor.shape.size())};
    for (std::size_t i = tensor.shape.size(); i > 0; --i) {
      entry.strides[i - 1] = entry.storageElements;
      if (__builtin_mul_overflow(entry.storageElements, tensor.shape[i - 1], &entry.storageElements))
        entry.storageElements = 0;  // of no elements, for another size is 0
    }
    if (!places.emplace(tensor.name, tensors.size()).second) continue;
    if (isOptimizer) inOptimizer.emplace(tensor.name, tensors.size());
    archive.entries["data/" + tensor.name] = {tensor.offset, tensor.bytes};
    tensors.push_back(std::move(entry));
  }
}

/// Of a safetensors file, and of the one beside it with the optimizer's state.
void OneFile::readHeaders() {
  const SafetensorsHeader header = readSafetensors(path);
  addSafetensors(header, false);
  constexpr std::string_view kPrefix = "pipewright.";
  for (const auto& [name, text] : header.metadata) {
    if (!name.starts_with(kPrefix)) continue;
    double number = 0;
    if (std::from_chars(text.data(), text.data() + text.size(), number).ec == std::errc()) numbers[name.substr(kPrefix.size())] = number;
  }
  if (header.metadata.contains("pipewright.step")) readState(header.metadata);
}

/// That of the same checkpoint as the model's file. Files without `kPairKey` were written before it was kept: those of the same step.
void OneFile::readState(const std::map<std::string, std::string>& model) {
  const std::string key = model.contains(kPairKey) ? kPairKey : "pipewright.step";
  if (model.at(key).empty()) return;  // it has none
  const std::string beside = optimizerFileOf(path);
  std::error_code ignored;
  for (const std::string& file : {beside, nextOptimizerFileOf(path)}) {
    if (!std::filesystem::exists(file, ignored)) continue;
    const SafetensorsHeader state = readSafetensors(file);
    const auto found = state.metadata.find(key);
    if (found == state.metadata.end() || found->second != model.at(key)) continue;
    optimizer = std::make_unique<MappedFile>(file);
    return addSafetensors(state, true);
  }
  if (!std::filesystem::exists(beside, ignored)) return;
  throw UsageError(
      fmt::format("{} is not of the same checkpoint as {}; resume from another checkpoint, or move {} away to take the weights alone",
                  beside, path, beside));
}

std::optional<MappedTensor> OneFile::find(const std::string& name) const {
  const auto place = places.find(name);
  if (place == places.end()) return std::nullopt;
  const pickle::TensorEntry& entry = tensors[place->second];
  if (entry.dtype == DType::Unknown) {
    throw UsageError(
        fmt::format("Tensor {} of {} is of an element type that Pipewright cannot compute with; save it as another", name, path));
  }
  MappedTensor tensor{entry.dtype, entry.sizes, entry.strides, nullptr};
  const std::optional<std::int64_t> elements = pickle::reachOf(entry);
  if (elements == 0) return tensor;
  const auto record = archive.entries.find("data/" + entry.storage);
  const std::int64_t width = widthOf(entry.dtype);
  if (!elements || record == archive.entries.end() || *elements > record->second.bytes / width) {
    throw UsageError(fmt::format("Tensor {} reaches past its bytes in {}; the file is damaged, save it again", name, path));
  }
  const std::int64_t offset = record->second.offset + entry.offset * width;
  const MappedFile& from = inOptimizer.contains(name) ? *optimizer : mapped;
  const bool isPlain = isSafetensors(path);
  if (static_cast<std::size_t>(record->second.offset + record->second.bytes) > from.size() || (offset % width != 0 && !isPlain)) {
    throw UsageError(
        fmt::format("Tensor {} of {} does not lie where torch.save puts it; the file was repacked, save it again", name, path));
  }
  tensor.data = from.data() + offset;
  if (offset % width != 0) {
    const auto bytes = static_cast<std::size_t>(record->second.bytes);
    tensor.copy.reset(new std::byte[bytes]);  // aligned for any type
    std::memcpy(tensor.copy.get(), tensor.data, bytes);
    tensor.data = tensor.copy.get();
  }
  return tensor;
}

}  // namespace

struct TensorFile::Impl {
  std::string path;
  std::unique_ptr<OneFile> file;
  std::unique_ptr<DistributedCheckpoint> folder;  // instead of the file
};

TensorFile::TensorFile(const std::string& path) : impl_(std::make_unique<Impl>()) {
  impl_->path = path;
  if (isDistributedCheckpoint(path)) {
    impl_->folder = std::make_unique<DistributedCheckpoint>(path);
    if (names().empty())
      throw UsageError(fmt::format("{} has no tensors; save model.state_dict(), or a dict that has it as 'model'", path));
    return;
  }
  impl_->file = std::make_unique<OneFile>(path);
  isSafetensors(path) ? impl_->file->readHeaders() : impl_->file->readPickles();
  if (names().empty()) {
    throw UsageError(
        fmt::format("{} has no tensors at the top level of its dict; save a dict of tensors, such as model.state_dict(), itself", path));
  }
}

TensorFile::~TensorFile() = default;

std::optional<MappedTensor> TensorFile::find(const std::string& name) const {
  return impl_->folder ? impl_->folder->find(name) : impl_->file->find(name);
}

std::vector<std::string> TensorFile::names() const {
  if (impl_->folder) return impl_->folder->names();
  std::vector<std::string> names;
  for (const pickle::TensorEntry& entry : impl_->file->tensors) names.push_back(entry.name);
  return names;
}

const std::map<std::string, double>& TensorFile::numbers() const { return impl_->folder ? impl_->folder->numbers() : impl_->file->numbers; }

const std::string& TensorFile::path() const { return impl_->path; }

}  // namespace pw
