#include "backends/checkpoints/writer.h"

#include <fmt/format.h>
#include <algorithm>
#include <bit>
#include <cassert>
#include <filesystem>
#include <optional>

#include "backends/checkpoints/distributed.h"
#include "backends/checkpoints/distributed_writer.h"
#include "backends/checkpoints/pickle.h"
#include "backends/checkpoints/safetensors.h"
#include "backends/checkpoints/zip_writer.h"
#include "backends/host/random_bytes.h"
#include "schedules/error.h"

namespace pw {
namespace {

static_assert(std::endian::native == std::endian::little, "checkpoints hold tensors as they lie in memory");
constexpr const char* kTop = "archive/";  ///< all entries lie in one folder, as torch.save has it
const std::string kMetadataPrefix = "pipewright.";

std::string hexOf(const std::string& bytes) {
  std::string text;
  for (const char byte : bytes) text += fmt::format("{:02x}", static_cast<unsigned char>(byte));
  return text;
}

}  // namespace

struct CheckpointWriter::Impl {
  std::string path;
  std::size_t headerBytes = 0;
  std::optional<ZipWriter> zip;
  std::optional<DistributedCheckpointWriter> folder;  // in place of the zip file
  std::optional<SafetensorsWriter> model, state;      // in place of the zip file; the optimizer's state in a file of its own
  pickle::TensorDict dict;                            // what Python sees
  pickle::TensorDict training;                        // names with a `/`, and numbers
  std::size_t storages = 0;

  static bool isState(const std::string& name) { return name.find('/') != std::string::npos; }
  std::string optimizerOf(const OptimizerLayout& layout);
  void finishZip(const std::map<std::string, double>& numbers, const std::optional<OptimizerLayout>& optimizer);
  void finishSafetensors(const std::map<std::string, double>& numbers);
  pickle::TensorDict& dictOf(const std::string& name) { return isState(name) ? training : dict; }
};

CheckpointWriter::CheckpointWriter(const std::string& path, std::size_t headerBytes) : impl_(std::make_unique<Impl>()) {
  impl_->path = path;
  impl_->headerBytes = headerBytes;
  if (path.ends_with('/')) {
    impl_->folder.emplace(path);
  } else if (isSafetensors(path)) {
    impl_->model.emplace(path, headerBytes);
  } else {
    impl_->zip.emplace(path);
  }
}

CheckpointWriter::~CheckpointWriter() = default;

void CheckpointWriter::add(const std::string& name, DType dtype, const std::vector<std::int64_t>& shape, const std::byte* bytes) {
  if (impl_->folder) return impl_->folder->add(name, dtype, shape, bytes);
  if (impl_->model) {
    if (Impl::isState(name) && !impl_->state) impl_->state.emplace(nextOptimizerFileOf(impl_->path), impl_->headerBytes);
    return (Impl::isState(name) ? impl_->state : impl_->model)->add(name, dtype, shape, bytes);
  }
  pickle::TensorEntry entry{name, dtype, std::to_string(impl_->storages++), 1, 0, shape, {}};
  for (const std::int64_t size : shape) entry.storageElements *= size;
  pickle::TensorDict one;
  one.tensors.push_back(entry);
  static_cast<void>(pickle::write(one));  // refuses a type before its bytes are written
  impl_->zip->add(kTop + ("data/" + entry.storage), bytes, static_cast<std::size_t>(entry.storageElements * widthOf(dtype)));
  impl_->dictOf(name).tensors.push_back(std::move(entry));
}

void CheckpointWriter::alias(const std::string& name, const std::string& of) {
  if (impl_->folder) return impl_->folder->alias(name, of);
  if (impl_->model) return impl_->model->again(name, of);
  const auto& tensors = impl_->dictOf(of).tensors;
  const auto found = std::ranges::find(tensors, of, &pickle::TensorEntry::name);
  if (found == tensors.end())
    throw Error(fmt::format("The checkpoint lacks {}, which {} shares its values with; plan the model again.", of, name));
  pickle::TensorEntry entry = *found;
  entry.name = name;
  impl_->dictOf(name).tensors.push_back(std::move(entry));
}

void CheckpointWriter::finish(const std::map<std::string, double>& numbers, const std::optional<OptimizerLayout>& optimizer) {
  if (impl_->folder) return impl_->folder->finish(numbers, optimizer);
  impl_->model ? impl_->finishSafetensors(numbers) : impl_->finishZip(numbers, optimizer);
}

/// The optimizer's state for Python. Each count of steps has memory of its own: torch.optim counts in place.
std::string CheckpointWriter::Impl::optimizerOf(const OptimizerLayout& layout) {
  std::vector<pickle::TensorEntry> steps;
  if (factsOf(layout.spec.kind).countsSteps) {
    const auto count = static_cast<float>(layout.updates);
    std::size_t parameters = 0;
    for (const LayoutGroup& group : groupsOf(layout)) parameters += group.parameters.size();
    for (std::size_t i = 0; i < parameters; ++i) {
      steps.push_back({"step", DType::Float32, std::to_string(storages++), 1, 0, {}, {}});
      zip->add(kTop + ("data/" + steps.back().storage), reinterpret_cast<const std::byte*>(&count), sizeof(count));
    }
  }
  return optimizerPickle(layout, training.tensors, steps);
}

void CheckpointWriter::Impl::finishZip(const std::map<std::string, double>& numbers, const std::optional<OptimizerLayout>& optimizer) {
  const auto put = [&](const std::string& name, const std::string& text) { zip->add(kTop + name, text); };
  std::map<std::string, std::string> attributes;
  if (optimizer) attributes["optimizer"] = optimizerOf(*optimizer);
  put("data.pkl", pickle::write(dict, attributes));
  training.numbers = numbers;
  if (!numbers.empty() || !training.tensors.empty()) put("training.pkl", pickle::write(training));
  put(".format_version", "1");
  put(".storage_alignment", "64");
  put("byteorder", "little");
  put("version", "3\n");
  zip->finish();
}

namespace {

/// Puts the state of the model's file where it belongs, if the process that wrote them was killed before it did.
void settleOptimizerFile(const std::string& path) {
  const std::string next = nextOptimizerFileOf(path);
  if (!std::filesystem::exists(next) || !std::filesystem::exists(path)) return;
  try {
    const auto pairOf = [](const std::string& file) { return readSafetensors(file).metadata[kPairKey]; };
    if (pairOf(next) == pairOf(path)) std::filesystem::rename(next, optimizerFileOf(path));
  } catch (const UsageError&) {  // one of them is damaged, and will be replaced
  }
}

}  // namespace

/// The moment in which the model's file is replaced is the one from which the new checkpoint counts (`kPairKey`).
void CheckpointWriter::Impl::finishSafetensors(const std::map<std::string, double>& numbers) {
  std::map<std::string, std::string> metadata{{"format", "pt"}, {kPairKey, state ? hexOf(randomBytes(16)) : ""}};
  for (const auto& [name, number] : numbers) metadata[kMetadataPrefix + name] = fmt::format("{:.17g}", number);
  const std::string place = optimizerFileOf(path), next = nextOptimizerFileOf(path);
  if (state) {
    settleOptimizerFile(path);
    state->finish(metadata);
  }
  model->finish(metadata);
  std::error_code ignored;  // a reader finds the state in either place, and no state where there is none
  if (state) {
    std::filesystem::rename(next, place, ignored);
  } else {
    for (const std::string& old : {place, next}) std::filesystem::remove(old, ignored);  // of an earlier training
  }
}

void removeCheckpoint(const std::string& path) {
  if (isDistributedCheckpoint(path)) return removeDistributedCheckpoint(path);
  std::error_code ignored;
  std::filesystem::remove(path, ignored);
  if (!isSafetensors(path)) return;
  for (const std::string& state : {optimizerFileOf(path), nextOptimizerFileOf(path)}) std::filesystem::remove(state, ignored);
}

}  // namespace pw
