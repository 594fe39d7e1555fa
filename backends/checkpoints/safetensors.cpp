#include "backends/checkpoints/safetensors.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>
#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>
#include <utility>

#include "backends/checkpoints/pickle.h"
#include "schedules/error.h"
#include "simulator/text/json_part.h"

namespace pw {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kEnding = ".safetensors";
constexpr std::uint64_t kLongestHeader = 100'000'000;
constexpr std::size_t kMostTensorDimensions = 64, kLengthBytes = 8;

constexpr std::array<std::pair<DType, std::string_view>, 12> kTypes{{{DType::Bool, "BOOL"},
                                                                     {DType::UInt8, "U8"},
                                                                     {DType::Int8, "I8"},
                                                                     {DType::Int16, "I16"},
                                                                     {DType::Int32, "I32"},
                                                                     {DType::Int64, "I64"},
                                                                     {DType::Float16, "F16"},
                                                                     {DType::BFloat16, "BF16"},
                                                                     {DType::Float32, "F32"},
                                                                     {DType::Float64, "F64"},
                                                                     {DType::ComplexFloat, "C64"},
                                                                     {DType::ComplexDouble, "C128"}}};

using HeaderPart = BasicJsonPart<nlohmann::json>;

JsonDocument documentOf(const std::string& path) { return {path, "safetensors file", "write it again"}; }

/// An integer that is not negative and cannot overflow when two are added.
std::int64_t countIn(const HeaderPart& part) { return part.within(0, std::int64_t{1} << 62U); }

SafeTensor tensorIn(const std::string& name, const HeaderPart& entry, std::uint64_t dataBegin, std::uint64_t dataBytes) {
  SafeTensor tensor{name, DType::Unknown, {}, 0, 0};
  const auto type = entry["dtype"].as<std::string>();
  const auto* found = std::ranges::find(kTypes, type, &std::pair<DType, std::string_view>::second);
  if (found != kTypes.end()) tensor.dtype = found->first;
  const HeaderPart shape = entry["shape"], offsets = entry["data_offsets"];
  if (shape.size() > kMostTensorDimensions) shape.fail(fmt::format("has more than {} dimensions", kMostTensorDimensions));
  tensor.shape = shape.list(countIn);
  const auto elements = pickle::elementsOf(tensor.shape);
  if (!elements) shape.fail("is larger than any memory");
  if (offsets.size() != 2) offsets.fail("is not [begin, end]");
  const std::int64_t begin = countIn(offsets[0]), end = countIn(offsets[1]);
  if (begin > end || static_cast<std::uint64_t>(end) > dataBytes) offsets.fail("extends past the end of the file");
  tensor.offset = static_cast<std::int64_t>(dataBegin) + begin;
  tensor.bytes = end - begin;
  std::int64_t needed = 0;
  if (tensor.dtype != DType::Unknown && (__builtin_mul_overflow(*elements, widthOf(tensor.dtype), &needed) || needed != tensor.bytes))
    entry.fail("has a different size from what its shape implies");
  return tensor;
}

}  // namespace

bool isSafetensors(const std::string& path) { return path.ends_with(kEnding); }

std::string optimizerFileOf(const std::string& path) {
  return path.substr(0, path.size() - kEnding.size()) + ".optimizer" + std::string(kEnding);
}

std::string nextOptimizerFileOf(const std::string& path) {
  return path.substr(0, path.size() - kEnding.size()) + ".optimizer-next" + std::string(kEnding);
}

SafetensorsHeader readSafetensors(const std::string& path) {
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored)) throw UsageError(fmt::format("{} does not exist; check the path", path));
  const std::uint64_t size = std::filesystem::is_regular_file(path, ignored) ? std::filesystem::file_size(path, ignored) : 0;
  std::ifstream file(path, std::ios::binary);
  const JsonDocument document = documentOf(path);
  std::array<unsigned char, kLengthBytes> prefix{};
  if (!file || size < kLengthBytes || !file.read(reinterpret_cast<char*>(prefix.data()), kLengthBytes))
    document.fail("it is too small or cannot be read");
  std::uint64_t length = 0;
  for (std::size_t i = kLengthBytes; i > 0; --i) length = length << 8U | prefix[i - 1];
  if (length > kLongestHeader || length > size - kLengthBytes) document.fail("its header is longer than the file or the format allows");
  std::string text(static_cast<std::size_t>(length), '\0');
  if (!file.read(text.data(), static_cast<std::streamsize>(length))) document.fail("it cannot be read");
  const nlohmann::json json = document.parseUnordered(text);
  const HeaderPart entries(json, document);
  SafetensorsHeader header;
  for (const std::string& name : entries.keys()) {
    const HeaderPart entry = entries[name];
    if (name != "__metadata__") {
      header.tensors.push_back(tensorIn(name, entry, kLengthBytes + length, size - kLengthBytes - length));
      continue;
    }
    for (const std::string& key : entry.keys()) {
      if (const HeaderPart value = entry[key]; value.json().is_string()) header.metadata[key] = value.as<std::string>();
    }
  }
  std::ranges::sort(header.tensors, {}, [](const SafeTensor& tensor) { return std::pair(tensor.offset, tensor.name); });
  return header;
}

SafetensorsWriter::SafetensorsWriter(const std::string& path, std::size_t headerBytes)
    : path_(path), part_(path), headerBytes_((headerBytes + 1024 + kLengthBytes + 63) / 64 * 64 - kLengthBytes) {
  if (part_.descriptor() < 0) fail(errno);
}

void SafetensorsWriter::fail(int reason) const {
  const char* cure = reason == ENOSPC || reason == EDQUOT || reason == EFBIG ? "make room" : "check the folder and its permissions";
  throw Error(fmt::format("{} cannot be written: {}; {}.", path_, std::strerror(reason), cure));
}

void SafetensorsWriter::write(const void* bytes, std::size_t count, std::uint64_t at) {
  const char* from = static_cast<const char*>(bytes);
  while (count > 0) {
    const ssize_t written = ::pwrite(part_.descriptor(), from, std::min<std::size_t>(count, 1U << 30U), static_cast<off_t>(at));
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) fail(written < 0 ? errno : ENOSPC);
    from += written;
    at += static_cast<std::uint64_t>(written);
    count -= static_cast<std::size_t>(written);
  }
}

void SafetensorsWriter::add(const std::string& name, DType dtype, const std::vector<std::int64_t>& shape, const std::byte* bytes) {
  const auto type = std::ranges::find(kTypes, dtype, &std::pair<DType, std::string_view>::first);
  if (type == kTypes.end())
    throw UsageError(
        fmt::format("Tensor {} is of type {}, which safetensors files cannot hold; save another format.", name, pw::nameOf(dtype)));
  SafeTensor tensor{name, dtype, shape, static_cast<std::int64_t>(size_), widthOf(dtype)};
  for (const std::int64_t size : shape) tensor.bytes *= size;
  write(bytes, static_cast<std::size_t>(tensor.bytes), kLengthBytes + headerBytes_ + size_);
  size_ += static_cast<std::uint64_t>(tensor.bytes);
  tensors_.push_back(std::move(tensor));
}

void SafetensorsWriter::again(const std::string& name, const std::string& of) {
  const auto found = std::ranges::find(tensors_, of, &SafeTensor::name);
  if (found == tensors_.end())
    throw Error(fmt::format("The checkpoint lacks {}, which {} shares its values with; plan the model again.", of, name));
  SafeTensor tensor = *found;
  std::vector<char> piece(std::size_t{1} << 20U);
  const std::uint64_t begin = kLengthBytes + headerBytes_;
  for (std::int64_t at = 0; at < tensor.bytes;) {
    const auto wanted = static_cast<std::size_t>(std::min<std::int64_t>(tensor.bytes - at, static_cast<std::int64_t>(piece.size())));
    const ssize_t count = ::pread(part_.descriptor(), piece.data(), wanted, static_cast<off_t>(begin) + tensor.offset + at);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) fail(count < 0 ? errno : EIO);
    write(piece.data(), static_cast<std::size_t>(count), begin + size_ + static_cast<std::uint64_t>(at));
    at += count;
  }
  tensor.name = name;
  tensor.offset = static_cast<std::int64_t>(size_);
  size_ += static_cast<std::uint64_t>(tensor.bytes);
  tensors_.push_back(std::move(tensor));
}

void SafetensorsWriter::finish(const std::map<std::string, std::string>& metadata) {
  Json header = Json::object();
  if (!metadata.empty()) header["__metadata__"] = metadata;
  for (const SafeTensor& tensor : tensors_) {
    const auto type = std::ranges::find(kTypes, tensor.dtype, &std::pair<DType, std::string_view>::first);
    header[tensor.name] = {
        {"dtype", type->second}, {"shape", tensor.shape}, {"data_offsets", {tensor.offset, tensor.offset + tensor.bytes}}};
  }
  std::string text = header.dump();
  if (text.size() > headerBytes_)
    throw Error(fmt::format("{} cannot be written: its header needs {} bytes, and {} were reserved.", path_, text.size(), headerBytes_));
  text.append(headerBytes_ - text.size(), ' ');
  std::array<unsigned char, kLengthBytes> prefix{};
  for (std::size_t i = 0; i < kLengthBytes; ++i)
    prefix[i] = static_cast<unsigned char>(static_cast<std::uint64_t>(text.size()) >> (8 * i) & 0xFFU);
  write(prefix.data(), prefix.size(), 0);
  write(text.data(), text.size(), kLengthBytes);
  if (!part_.replaceDurably()) fail(errno);
}

}  // namespace pw
