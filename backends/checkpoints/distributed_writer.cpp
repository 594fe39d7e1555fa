#include "backends/checkpoints/distributed_writer.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <set>
#include <string_view>
#include <utility>
#include <variant>

#include "backends/checkpoints/distributed.h"
#include "backends/checkpoints/key_path.h"
#include "backends/checkpoints/pickle.h"
#include "backends/checkpoints/pickle_write.h"
#include "backends/checkpoints/zip_writer.h"
#include "backends/host/files.h"
#include "backends/host/part_file.h"
#include "schedules/error.h"

namespace pw {
namespace {

namespace fs = std::filesystem;
using Sizes = std::vector<std::int64_t>;

constexpr std::string_view kMetadataModule = "torch.distributed.checkpoint.metadata";
constexpr std::string_view kStorageModule = "torch.distributed.checkpoint.filesystem";
constexpr std::string_view kModel = "model", kOptimizer = "optimizer";

/// The files of the checkpoint that a folder has; empty without one that can be read.
std::vector<std::string> filesIn(const std::string& folder) {
  try {
    return DistributedCheckpoint(folder).files();
  } catch (const Error&) {
    return {};
  }
}

void removeFiles(const std::string& folder, const std::vector<std::string>& files) {
  std::error_code ignored;
  for (const std::string& file : files) fs::remove(fs::path(folder) / file, ignored);
}

/// A file name that is not used in the folder, nor by its checkpoint, which may lack files.
std::string newDataFile(const std::string& folder) {
  const std::vector<std::string> old = filesIn(folder);
  std::error_code ignored;
  for (int number = 0;; ++number) {
    std::string name = fmt::format("__0_{}.distcp", number);
    if (!fs::exists(fs::path(folder) / name, ignored) && std::ranges::find(old, name) == old.end()) return name;
  }
}

/// Opcodes of a dataclass's object that has these members: each the opcodes of one.
std::string object(std::string_view module, std::string_view name, const std::vector<std::pair<const char*, std::string>>& members) {
  std::string out;
  pickle::putGlobal(out, module, name);
  out += ")\x81}(";
  for (const auto& [key, opcodes] : members) {
    pickle::putText(out, key);
    out += opcodes;
  }
  return out + "ub";
}

std::string sizesPickle(const Sizes& sizes) {
  std::string out;
  pickle::putGlobal(out, "torch", "Size");
  pickle::putTuple(out, sizes);
  return out + "\x85R";
}

std::string textPickle(std::string_view text) {
  std::string out;
  pickle::putText(out, text);
  return out;
}

std::string integerPickle(std::int64_t number) {
  std::string out;
  pickle::putInteger(out, number);
  return out;
}

std::string propertiesPickle(DType dtype) {
  std::string out;
  pickle::putGlobal(out, kMetadataModule, "TensorProperties");
  out += ")\x81(";
  pickle::putGlobal(out, "torch", nameOf(dtype));
  pickle::putGlobal(out, "torch.serialization", "_get_layout");
  pickle::putText(out, "torch.strided");
  out += "\x85R\x89";
  pickle::putGlobal(out, kMetadataModule, "_MEM_FORMAT_ENCODING");
  pickle::putInteger(out, 0);
  return out + "\x85R\x89tb";
}

}  // namespace

struct DistributedCheckpointWriter::Impl {
  struct Item {
    KeyPath path;
    std::optional<std::pair<DType, Sizes>> tensor;  ///< nothing: another Python object
    ZipWriter::Extent extent;
  };

  std::string folder, dataFile;
  bool isNew = false;  ///< whether the folder is ours to remove
  std::optional<ZipWriter> zip;
  std::vector<Item> items;
  std::map<std::string, std::size_t> places;  ///< of tensors, by their name in a training

  static KeyPath pathOf(const std::string& name) {
    const std::size_t slash = name.find('/');
    if (slash == std::string::npos) return {std::string(kModel), name};
    return {std::string(kOptimizer), "state", name.substr(slash + 1), name.substr(0, slash)};
  }

  void addArchive(KeyPath path, const std::string& pickled, std::optional<std::pair<DType, Sizes>> tensor, const std::byte* bytes,
                  std::size_t count) {
    zip->add("archive/data.pkl", pickled);
    zip->add("archive/byteorder", "little");
    if (tensor) zip->add("archive/data/0", bytes, count);
    zip->add("archive/version", "3\n");
    items.push_back({std::move(path), std::move(tensor), zip->endArchive()});
  }
  void addTensor(KeyPath path, DType dtype, const Sizes& sizes, const std::byte* bytes) {
    const std::int64_t elements = pickle::elementsOf(sizes).value_or(0);
    const std::string pickled = pickle::writeTensor({joined(path), dtype, "0", elements, 0, sizes, {}});
    addArchive(std::move(path), pickled, std::pair(dtype, sizes), bytes, static_cast<std::size_t>(elements * widthOf(dtype)));
  }
  void addOptimizer(const OptimizerLayout& layout);
  [[nodiscard]] std::string metadata() const;
};

DistributedCheckpointWriter::DistributedCheckpointWriter(const std::string& folder) : impl_(std::make_unique<Impl>()) {
  impl_->folder = folder;
  std::error_code problem;
  impl_->isNew = fs::create_directory(folder, problem);
  if (problem) throw Error(fmt::format("{} cannot be written: {}; check the folder and its permissions.", folder, problem.message()));
  impl_->dataFile = newDataFile(folder);
  impl_->zip.emplace((fs::path(folder) / impl_->dataFile).string());
}

DistributedCheckpointWriter::~DistributedCheckpointWriter() {
  impl_->zip.reset();
  std::error_code ignored;
  if (impl_->isNew) fs::remove(impl_->folder, ignored);  // only if nothing is in it
}

void DistributedCheckpointWriter::add(const std::string& name, DType dtype, const Sizes& shape, const std::byte* bytes) {
  impl_->addTensor(Impl::pathOf(name), dtype, shape, bytes);
  impl_->places[name] = impl_->items.size() - 1;
}

void DistributedCheckpointWriter::alias(const std::string& name, const std::string& of) {
  const auto found = impl_->places.find(of);
  if (found == impl_->places.end())
    throw Error(fmt::format("The checkpoint lacks {}, which {} shares its values with; plan the model again.", of, name));
  Impl::Item item = impl_->items[found->second];
  item.path = Impl::pathOf(name);
  impl_->items.push_back(std::move(item));
}

void DistributedCheckpointWriter::Impl::addOptimizer(const OptimizerLayout& layout) {
  const KeyPath top{std::string(kOptimizer)};
  std::set<std::string> counted;
  if (factsOf(layout.spec.kind).countsSteps) {
    const auto updates = static_cast<float>(layout.updates);
    for (const auto& [name, item] : places) {
      const std::size_t slash = name.find('/');
      if (slash == std::string::npos || !counted.insert(name.substr(slash + 1)).second) continue;
      addTensor({std::string(kOptimizer), "state", name.substr(slash + 1), std::string(kStepKey)}, DType::Float32, {},
                reinterpret_cast<const std::byte*>(&updates));
    }
  }
  const auto addMember = [&](std::size_t group, const std::string& name, const std::string& opcodes) {
    addArchive({std::string(kOptimizer), "param_groups", static_cast<std::int64_t>(group), name}, "\x80\x02" + opcodes + ".", std::nullopt,
               nullptr, 0);
  };
  const std::vector<LayoutGroup> groups = groupsOf(layout);
  for (std::size_t g = 0; g < groups.size(); ++g) {
    for (const auto& [name, opcodes] : groups[g].members) addMember(g, name, opcodes);
    std::string names("](");
    for (const std::string& parameter : groups[g].parameters) pickle::putText(names, parameter);
    addMember(g, "params", names + "e");
  }
}

std::string DistributedCheckpointWriter::Impl::metadata() const {
  std::string tensors("}("), paths("}("), places_("}(");
  for (const Item& item : items) {
    const std::string key = textPickle(joined(item.path));
    const Sizes zeros(item.tensor ? item.tensor->second.size() : 0);
    if (item.tensor) {
      const auto& [dtype, sizes] = *item.tensor;
      const std::string chunk =
          object(kMetadataModule, "ChunkStorageMetadata", {{"offsets", sizesPickle(zeros)}, {"sizes", sizesPickle(sizes)}});
      tensors += key + object(kMetadataModule, "TensorStorageMetadata",
                              {{"properties", propertiesPickle(dtype)}, {"size", sizesPickle(sizes)}, {"chunks", "]" + chunk + "a"}});
    } else {
      tensors += key;
      pickle::putGlobal(tensors, kMetadataModule, "BytesStorageMetadata");
      tensors += ")\x81";
    }
    paths += key + "(";
    for (const auto& part : item.path)
      paths +=
          std::holds_alternative<std::string>(part) ? textPickle(std::get<std::string>(part)) : integerPickle(std::get<std::int64_t>(part));
    paths += "t";
    places_ += object(kMetadataModule, "MetadataIndex",
                      {{"fqn", key}, {"offset", item.tensor ? sizesPickle(zeros) : "N"}, {"index", item.tensor ? integerPickle(0) : "N"}});
    places_ += object(kStorageModule, "_StorageInfo",
                      {{"relative_path", textPickle(dataFile)},
                       {"offset", integerPickle(static_cast<std::int64_t>(item.extent.offset))},
                       {"length", integerPickle(static_cast<std::int64_t>(item.extent.bytes))}});
  }
  return "\x80\x02" +
         object(kMetadataModule, "Metadata",
                {{"state_dict_metadata", tensors + "u"},
                 {"planner_data", paths + "u"},
                 {"storage_data", places_ + "u"},
                 {"storage_meta", "N"},
                 {"version", textPickle("1.0.0")}}) +
         ".";
}

void DistributedCheckpointWriter::finish(const std::map<std::string, double>& numbers, const std::optional<OptimizerLayout>& optimizer) {
  for (const auto& [name, number] : numbers)
    impl_->addTensor({std::string(kNumbersKey), name}, DType::Float64, {}, reinterpret_cast<const std::byte*>(&number));
  if (optimizer) impl_->addOptimizer(*optimizer);
  const std::vector<std::string> old = filesIn(impl_->folder);
  impl_->zip->finish();
  impl_->isNew = false;
  PartFile part(metadataOf(impl_->folder));
  if (part.descriptor() < 0 || !writeAll(part.descriptor(), impl_->metadata()) || !part.replaceDurably()) {
    const std::string reason = std::strerror(errno);
    removeFiles(impl_->folder, {impl_->dataFile});
    throw Error(fmt::format("{} cannot be written: {}; free space there, or check the folder and its permissions.",
                            metadataOf(impl_->folder), reason));
  }
  removeFiles(impl_->folder, old);
}

void removeDistributedCheckpoint(const std::string& folder) {
  const std::vector<std::string> files = filesIn(folder);
  std::error_code ignored;
  fs::remove(metadataOf(folder), ignored);  // first: what is left is no checkpoint
  removeFiles(folder, files);
  fs::remove(folder, ignored);
}

}  // namespace pw
