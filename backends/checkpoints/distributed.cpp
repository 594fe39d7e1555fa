#include "backends/checkpoints/distributed.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <filesystem>
#include <set>
#include <string_view>
#include <utility>
#include <variant>

#include "backends/checkpoints/key_path.h"
#include "backends/checkpoints/pickle.h"
#include "backends/checkpoints/pickle_write.h"
#include "backends/checkpoints/unpickle.h"
#include "backends/host/files.h"
#include "backends/pt2/read.h"
#include "backends/pt2/zip.h"
#include "schedules/error.h"
#include "simulator/plan/optimizer.h"

namespace pw {
namespace {

namespace fs = std::filesystem;
using pickle::Dict;
using pickle::Global;
using pickle::List;
using pickle::Object;
using pickle::Tree;
using pickle::Value;
using Sizes = std::vector<std::int64_t>;

constexpr std::array<std::string_view, 3> kModelKeys{"model", "state_dict", "model_state_dict"};
constexpr std::size_t kMostDimensions = 64;

struct Chunk {
  Sizes offsets, sizes;
  std::size_t file = 0;
  std::int64_t begin = 0, bytes = 0;  ///< of an archive of torch.save within that file
};

struct ChunkedTensor {
  DType dtype = DType::Unknown;
  Sizes sizes;
  std::vector<Chunk> chunks;
};

/// The place of a value, from `storage_data` of the metadata.
struct Extent {
  std::string_view file;
  std::int64_t begin = 0, bytes = 0;
};

/// `.metadata`: a pickle of the dataclasses of torch.distributed.checkpoint.metadata.
class MetadataReader {
 public:
  MetadataReader(const std::string& bytes, const std::string& where)
      : tree_(bytes, where + " is not a checkpoint of torch.distributed.checkpoint, or it is damaged",
              "save it again with torch.distributed.checkpoint.save") {
    const Dict& metadata = stateOf(tree_.root(), "Metadata");
    if (const Value* data = metadata.find("storage_data")) readExtents(*data);
    if (const Value* paths = metadata.find("planner_data")) readPaths(*paths);
    const Value* described = metadata.find("state_dict_metadata");
    if (described == nullptr) tree_.fail("has no state_dict_metadata");
    for (const auto& [key, value] : tree_.as<Dict*>(*described, "the tensors")->items) {
      const auto name = tree_.as<std::string_view>(key, "a tensor's name");
      if (isA(value, "TensorStorageMetadata")) tensors.emplace_back(name, tensorOf(name, stateOf(value, "TensorStorageMetadata")));
    }
  }

  [[nodiscard]] KeyPath pathOf(std::string_view key) const {
    const auto found = paths_.find(key);
    return found == paths_.end() ? KeyPath{std::string(key)} : found->second;
  }

  std::vector<std::pair<std::string_view, ChunkedTensor>> tensors;  ///< by key, in the order of the file
  std::vector<std::string> files;

 private:
  [[nodiscard]] bool isA(const Value& value, std::string_view name) const {
    const auto* object = std::get_if<Object*>(&value);
    const auto* type = object == nullptr ? nullptr : std::get_if<Global>(&(*object)->callable);
    return type != nullptr && type->name == name && type->module.starts_with("torch.distributed.checkpoint");
  }
  [[nodiscard]] const Dict& stateOf(const Value& value, std::string_view name) const {
    if (!isA(value, name)) tree_.fail(fmt::format("has something else where a {} is expected", name));
    return *tree_.as<Dict*>(std::get<Object*>(value)->state, "the members of an object");
  }
  [[nodiscard]] const Value& member(const Dict& members, const char* name) const {
    const Value* found = members.find(name);
    if (found == nullptr) tree_.fail(fmt::format("has an object without its {}", name));
    return *found;
  }
  /// `torch.Size`, called with one tuple; a tuple by itself too.
  [[nodiscard]] Sizes sizesOf(const Value& value) const {
    Value numbers = value;
    if (const auto* object = std::get_if<Object*>(&value)) {
      const List* arguments = tree_.as<List*>((*object)->arguments, "sizes");
      if (arguments->items.size() != 1) tree_.fail("has something else where sizes are expected");
      numbers = arguments->items.front();
    }
    const List* list = tree_.as<List*>(numbers, "sizes");
    if (list->items.size() > kMostDimensions) tree_.fail("has a tensor of too many dimensions");
    Sizes sizes;
    for (const Value& number : list->items) sizes.push_back(tree_.as<std::int64_t>(number, "a size"));
    return sizes;
  }

  void readExtents(const Value& data);
  void readPaths(const Value& paths);
  [[nodiscard]] DType dtypeOf(const Value& properties) const;
  [[nodiscard]] ChunkedTensor tensorOf(std::string_view name, const Dict& members);
  [[nodiscard]] std::size_t fileNamed(std::string_view name);

  Tree tree_;
  std::map<std::pair<std::string_view, Sizes>, Extent> extents_;  // by key and the chunk's offsets
  std::map<std::string_view, KeyPath> paths_;
  std::map<std::string_view, std::size_t> places_;  // of files
};

void MetadataReader::readExtents(const Value& data) {
  for (const auto& [key, value] : tree_.as<Dict*>(data, "the places of tensors")->items) {
    const Dict& index = stateOf(key, "MetadataIndex");
    const Dict& info = stateOf(value, "_StorageInfo");
    const Value* offset = index.find("offset");
    if (offset == nullptr || std::holds_alternative<pickle::Nothing>(*offset)) continue;  // no tensor
    if (const Value* change = info.find("transform_descriptors"); change != nullptr && !std::holds_alternative<pickle::Nothing>(*change)) {
      tree_.fail("says that its files are compressed or encrypted, which this version does not read");
    }
    const Extent extent{tree_.as<std::string_view>(member(info, "relative_path"), "a file's name"),
                        tree_.as<std::int64_t>(member(info, "offset"), "a place in a file"),
                        tree_.as<std::int64_t>(member(info, "length"), "a length in a file")};
    if (extent.begin < 0 || extent.bytes < 0) tree_.fail("has a negative place in a file");
    extents_[{tree_.as<std::string_view>(member(index, "fqn"), "a tensor's name"), sizesOf(*offset)}] = extent;
  }
}

void MetadataReader::readPaths(const Value& paths) {
  const auto* dict = std::get_if<Dict*>(&paths);
  if (dict == nullptr) return;
  for (const auto& [key, value] : (*dict)->items) {
    const auto* name = std::get_if<std::string_view>(&key);
    const auto* keys = std::get_if<List*>(&value);
    if (name == nullptr || keys == nullptr || (*keys)->items.size() > kMostDimensions) continue;
    KeyPath path;
    for (const Value& part : (*keys)->items) {
      if (const auto* text = std::get_if<std::string_view>(&part)) path.emplace_back(std::string(*text));
      if (const auto* number = std::get_if<std::int64_t>(&part)) path.emplace_back(*number);
    }
    if (!path.empty()) paths_[*name] = std::move(path);
  }
}

/// The first of the properties' state, which is a tuple.
DType MetadataReader::dtypeOf(const Value& properties) const {
  if (!isA(properties, "TensorProperties")) tree_.fail("has a tensor without its properties");
  const Value& state = std::get<Object*>(properties)->state;
  const Value* type = nullptr;
  if (const auto* list = std::get_if<List*>(&state); list != nullptr && !(*list)->items.empty()) type = &(*list)->items.front();
  if (const auto* dict = std::get_if<Dict*>(&state)) type = (*dict)->find("dtype");
  const auto* global = type == nullptr ? nullptr : std::get_if<Global>(type);
  if (global == nullptr || global->module != "torch") tree_.fail("has a tensor without its element type");
  return pickle::dtypeNamed(global->name);
}

std::size_t MetadataReader::fileNamed(std::string_view name) {
  const auto [place, isNew] = places_.emplace(name, files.size());
  if (!isNew) return place->second;
  if (name.empty() || name == "." || name == ".." || name.find('/') != std::string_view::npos ||
      name.find('\0') != std::string_view::npos) {
    tree_.fail("names a file outside its folder");
  }
  files.emplace_back(name);
  return place->second;
}

/// Whether two of the chunks share an element. Cost: n log n where they are cut along one dimension, n² at most.
bool anyOverlap(const std::vector<Chunk>& chunks) {
  std::vector<const Chunk*> some;  // that hold anything
  for (const Chunk& chunk : chunks) {
    if (std::ranges::find(chunk.sizes, 0) == chunk.sizes.end()) some.push_back(&chunk);
  }
  if (some.size() < 2) return false;
  const std::size_t dimensions = some.front()->sizes.size();
  std::size_t cut = dimensions, most = 0;  // the dimension along which there are most of them
  for (std::size_t d = 0; d < dimensions; ++d) {
    std::set<std::int64_t> places;
    for (const Chunk* chunk : some) places.insert(chunk->offsets[d]);
    if (places.size() > most) cut = d, most = places.size();
  }
  if (cut == dimensions) return true;  // two of one number
  std::ranges::sort(some, {}, [&](const Chunk* chunk) { return chunk->offsets[cut]; });
  const auto share = [](const Chunk& a, const Chunk& b, std::size_t i) {
    return a.offsets[i] < b.offsets[i] + b.sizes[i] && b.offsets[i] < a.offsets[i] + a.sizes[i];
  };
  for (std::size_t i = 0; i < some.size(); ++i) {
    for (std::size_t k = i + 1; k < some.size() && share(*some[i], *some[k], cut); ++k) {
      bool shareAll = true;
      for (std::size_t d = 0; shareAll && d < dimensions; ++d) shareAll = share(*some[i], *some[k], d);
      if (shareAll) return true;
    }
  }
  return false;
}

ChunkedTensor MetadataReader::tensorOf(std::string_view name, const Dict& members) {
  ChunkedTensor tensor{dtypeOf(member(members, "properties")), sizesOf(member(members, "size")), {}};
  std::int64_t stored = 0;
  for (const Value& value : tree_.as<List*>(member(members, "chunks"), "the chunks of a tensor")->items) {
    const Dict& chunk = stateOf(value, "ChunkStorageMetadata");
    Chunk made{sizesOf(member(chunk, "offsets")), sizesOf(member(chunk, "sizes")), 0, 0, 0};
    bool isInside = made.offsets.size() == tensor.sizes.size() && made.sizes.size() == tensor.sizes.size();
    for (std::size_t i = 0; isInside && i < made.sizes.size(); ++i) {
      isInside = made.offsets[i] >= 0 && made.sizes[i] >= 0 && made.offsets[i] <= tensor.sizes[i] &&
                 made.sizes[i] <= tensor.sizes[i] - made.offsets[i];
    }
    const auto extent = extents_.find({name, made.offsets});
    const auto elements = pickle::elementsOf(made.sizes);
    if (!isInside || extent == extents_.end() || !elements) tree_.fail("has a chunk that is not part of its tensor, or lies in no file");
    made.file = fileNamed(extent->second.file);
    made.begin = extent->second.begin;
    made.bytes = extent->second.bytes;
    if (__builtin_add_overflow(stored, *elements, &stored)) tree_.fail("has chunks of impossible sizes");
    tensor.chunks.push_back(std::move(made));
  }
  if (pickle::elementsOf(tensor.sizes) != stored || anyOverlap(tensor.chunks)) tree_.fail("has a tensor whose chunks do not cover it");
  return tensor;
}

/// `w` and `exp_avg` of `state.w.exp_avg`.
std::optional<std::pair<std::string, std::string>> flatState(std::string_view key) {
  constexpr std::string_view kPrefix = "state.";
  const std::size_t dot = key.rfind('.');
  if (!key.starts_with(kPrefix) || dot == std::string_view::npos || dot <= kPrefix.size()) return std::nullopt;
  return std::pair(std::string(key.substr(kPrefix.size(), dot - kPrefix.size())), std::string(key.substr(dot + 1)));
}

/// The role of a tensor in a training.
struct Role {
  enum class Kind { Tensor, Step, Number };
  Kind kind = Kind::Tensor;
  std::string name;
};

/// Whether an optimizer of ours keeps something of that name for each parameter.
bool isState(const std::string& name) {
  return std::ranges::any_of(kOptimizers, [&](const OptimizerFacts& facts) {
    OptimizerSpec spec;
    spec.kind = facts.kind;
    spec.momentum = facts.hasMomentum ? 1 : 0;
    const std::vector<std::string> names = stateNames(spec);
    return std::ranges::find(names, name) != names.end();
  });
}

Role roleOf(const KeyPath& path) {
  std::vector<std::string_view> keys;
  for (const auto& key : path) {
    if (!std::holds_alternative<std::string>(key)) return {Role::Kind::Tensor, joined(path)};
    keys.emplace_back(std::get<std::string>(key));
  }
  const std::size_t count = keys.size();
  if (count == 2 && keys[0] == kNumbersKey) return {Role::Kind::Number, std::string(keys[1])};
  auto state = flatState(keys[count - 1]);
  if (count >= 3 && keys[count - 3] == "state") state = std::pair(std::string(keys[count - 2]), std::string(keys[count - 1]));
  if (state && state->second == kStepKey) return {Role::Kind::Step, ""};
  if (state && isState(state->second)) return {Role::Kind::Tensor, state->second + "/" + state->first};
  const bool isModels = count == 1 || std::ranges::find(kModelKeys, keys[count - 2]) != kModelKeys.end();
  return {Role::Kind::Tensor, isModels ? std::string(keys[count - 1]) : joined(path)};
}

/// Copies a strided chunk into a contiguous tensor of `sizes`.
void place(std::byte* target, const Sizes& sizes, const Chunk& chunk, const std::byte* source, const Sizes& strides, std::int64_t width,
           std::size_t dimension = 0) {
  if (dimension == sizes.size()) {
    std::memcpy(target, source, static_cast<std::size_t>(width));
    return;
  }
  std::int64_t inner = width;
  for (std::size_t i = dimension + 1; i < sizes.size(); ++i) inner *= sizes[i];
  const bool isLast = dimension + 1 == sizes.size();
  target += chunk.offsets[dimension] * inner;
  if (isLast && strides[dimension] == 1) {
    std::memcpy(target, source, static_cast<std::size_t>(chunk.sizes[dimension] * width));
    return;
  }
  for (std::int64_t i = 0; i < chunk.sizes[dimension]; ++i) {
    place(target + i * inner, sizes, chunk, source + i * strides[dimension] * width, strides, width, dimension + 1);
  }
}

double numberIn(const MappedTensor& tensor) {
  const auto as = [&]<class T>(T value) {
    std::memcpy(&value, tensor.data, sizeof value);
    return static_cast<double>(value);
  };
  if (tensor.dtype == DType::Float32) return as(float{});
  if (tensor.dtype == DType::Float64) return as(double{});
  return tensor.dtype == DType::Int64 ? as(std::int64_t{}) : 0;
}

}  // namespace

struct DistributedCheckpoint::Impl {
  std::string folder;
  std::vector<std::string> files;
  std::vector<std::string> names;
  std::map<std::string, ChunkedTensor> tensors;
  std::map<std::string, double> numbers;
  mutable std::vector<std::unique_ptr<MappedFile>> mapped;  // by file, when first needed

  [[nodiscard]] std::string pathOf(std::size_t file) const { return (fs::path(folder) / files[file]).string(); }
  [[nodiscard]] MappedTensor read(const std::string& name, const ChunkedTensor& tensor) const;
  [[nodiscard]] std::pair<const std::byte*, Sizes> chunkOf(const std::string& name, const ChunkedTensor& tensor, const Chunk& chunk) const;
};

/// The first element of a chunk, and its strides.
std::pair<const std::byte*, Sizes> DistributedCheckpoint::Impl::chunkOf(const std::string& name, const ChunkedTensor& tensor,
                                                                        const Chunk& chunk) const {
  const std::string path = pathOf(chunk.file);
  const pt2::Archive archive = pt2::openSavedArchive(path, chunk.begin, chunk.bytes);
  auto& file = mapped[chunk.file];
  if (!file) file = std::make_unique<MappedFile>(path);
  const auto bytesOf = [&](const pt2::ZipEntry& entry) {
    if (static_cast<std::size_t>(entry.offset + entry.bytes) > file->size())
      throw UsageError(fmt::format("{} is truncated; save the checkpoint again", path));
    return std::string_view(reinterpret_cast<const char*>(file->data()) + entry.offset, static_cast<std::size_t>(entry.bytes));
  };
  if (const auto order = archive.entries.find("byteorder"); order != archive.entries.end())
    pickle::requireLittleEndian(bytesOf(order->second), path);
  const pickle::TensorEntry entry = pickle::readTensor(bytesOf(archive.entries.at("data.pkl")), path);
  const auto record = archive.entries.find("data/" + entry.storage);
  const std::int64_t width = widthOf(tensor.dtype);
  const auto reach = pickle::reachOf(entry), elements = pickle::elementsOf(chunk.sizes);
  if (entry.dtype != tensor.dtype || entry.sizes != chunk.sizes || record == archive.entries.end() || !reach ||
      *reach > record->second.bytes / width || *elements > record->second.bytes / width) {
    throw UsageError(fmt::format("Tensor {} of {} is not in {} as {} says; save the checkpoint again", name, folder, path, kMetadataFile));
  }
  return {reinterpret_cast<const std::byte*>(bytesOf(record->second).data()) + entry.offset * width, entry.strides};
}

MappedTensor DistributedCheckpoint::Impl::read(const std::string& name, const ChunkedTensor& tensor) const {
  if (tensor.dtype == DType::Unknown) {
    throw UsageError(
        fmt::format("Tensor {} of {} is of an element type that Pipewright cannot compute with; save it as another", name, folder));
  }
  MappedTensor made{tensor.dtype, tensor.sizes, Sizes(tensor.sizes.size()), nullptr};
  const std::int64_t elements = pickle::elementsOf(tensor.sizes).value();
  if (elements == 0) return made;
  std::int64_t stride = 1;
  for (std::size_t i = tensor.sizes.size(); i > 0; --i) {
    made.strides[i - 1] = stride;
    stride *= tensor.sizes[i - 1];
  }
  const std::int64_t width = widthOf(tensor.dtype);
  std::vector<std::pair<const std::byte*, Sizes>> chunks;
  for (const Chunk& chunk : tensor.chunks)
    chunks.push_back(*pickle::elementsOf(chunk.sizes) == 0 ? std::pair<const std::byte*, Sizes>() : chunkOf(name, tensor, chunk));
  if (chunks.size() == 1 && reinterpret_cast<std::uintptr_t>(chunks[0].first) % static_cast<std::uintptr_t>(width) == 0) {
    made.strides = chunks[0].second;
    made.data = const_cast<std::byte*>(chunks[0].first);  // of a private mapping
    return made;
  }
  std::set<std::size_t> holders;
  for (const Chunk& chunk : tensor.chunks) holders.insert(chunk.file);
  std::size_t stored = 0;
  for (const std::size_t file : holders) stored += mapped[file] ? mapped[file]->size() : 0;
  if (static_cast<std::size_t>(elements * width) > stored)
    throw UsageError(fmt::format("Tensor {} of {} is larger than the files that hold it; save the checkpoint again", name, folder));
  made.copy = std::make_shared<std::byte[]>(static_cast<std::size_t>(elements * width));
  for (std::size_t i = 0; i < chunks.size(); ++i) {
    if (chunks[i].first != nullptr) place(made.copy.get(), tensor.sizes, tensor.chunks[i], chunks[i].first, chunks[i].second, width);
  }
  made.data = made.copy.get();
  return made;
}

DistributedCheckpoint::DistributedCheckpoint(const std::string& folder) : impl_(std::make_unique<Impl>()) {
  impl_->folder = folder;
  std::error_code ignored;
  if (!fs::exists(metadataOf(folder), ignored)) {
    throw UsageError(
        fmt::format("{} is not a folder of torch.distributed.checkpoint: it has no {}; check the path", folder, kMetadataFile));
  }
  const std::string bytes = readFile(metadataOf(folder));
  MetadataReader metadata(bytes, metadataOf(folder));
  impl_->files = metadata.files;
  impl_->mapped.resize(impl_->files.size());
  std::optional<double> steps;
  for (auto& [key, tensor] : metadata.tensors) {
    const Role role = roleOf(metadata.pathOf(key));
    if (role.kind == Role::Kind::Tensor) {
      if (impl_->tensors.emplace(role.name, std::move(tensor)).second) impl_->names.push_back(role.name);
    } else if (tensor.sizes.empty() && (role.kind == Role::Kind::Number || !steps)) {
      const double number = numberIn(impl_->read(std::string(key), tensor));
      if (role.kind == Role::Kind::Number) {
        impl_->numbers[role.name] = number;
      } else {
        steps = number;
      }
    }
  }
  if (steps) impl_->numbers.emplace(kStepKey, *steps);
}

DistributedCheckpoint::~DistributedCheckpoint() = default;

std::optional<MappedTensor> DistributedCheckpoint::find(const std::string& name) const {
  const auto found = impl_->tensors.find(name);
  if (found == impl_->tensors.end()) return std::nullopt;
  return impl_->read(name, found->second);
}

std::vector<std::string> DistributedCheckpoint::names() const { return impl_->names; }
const std::map<std::string, double>& DistributedCheckpoint::numbers() const { return impl_->numbers; }
std::vector<std::string> DistributedCheckpoint::files() const { return impl_->files; }

bool isDistributedCheckpoint(const std::string& path) {
  std::error_code ignored;
  return path.ends_with('/') || fs::is_directory(path, ignored);
}

}  // namespace pw
