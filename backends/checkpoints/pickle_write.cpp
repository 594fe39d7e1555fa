#include "backends/checkpoints/pickle_write.h"

#include <fmt/format.h>
#include <algorithm>
#include <array>
#include <bit>
#include <utility>

#include "schedules/error.h"

namespace pw::pickle {
namespace {

/// Storage classes of torch by element type.
constexpr std::array<std::pair<DType, std::string_view>, 12> kStorages{{{DType::UInt8, "ByteStorage"},
                                                                        {DType::Int8, "CharStorage"},
                                                                        {DType::Int16, "ShortStorage"},
                                                                        {DType::Int32, "IntStorage"},
                                                                        {DType::Int64, "LongStorage"},
                                                                        {DType::Float16, "HalfStorage"},
                                                                        {DType::Float32, "FloatStorage"},
                                                                        {DType::Float64, "DoubleStorage"},
                                                                        {DType::ComplexFloat, "ComplexFloatStorage"},
                                                                        {DType::ComplexDouble, "ComplexDoubleStorage"},
                                                                        {DType::Bool, "BoolStorage"},
                                                                        {DType::BFloat16, "BFloat16Storage"}}};

void putLittle(std::string& out, std::uint64_t number, int bytes) {
  for (int i = 0; i < bytes; ++i) out += static_cast<char>(number >> (8 * i) & 0xFFU);
}

}  // namespace

void putInteger(std::string& out, std::int64_t number) {
  const bool isSmall = number >= 0 && number <= 0x7FFFFFFF;
  out += isSmall ? "J" : "\x8a\x08";
  putLittle(out, static_cast<std::uint64_t>(number), isSmall ? 4 : 8);
}

void putText(std::string& out, std::string_view text) {
  out += 'X';
  putLittle(out, text.size(), 4);
  out += text;
}

void putTuple(std::string& out, const std::vector<std::int64_t>& numbers) {
  out += '(';
  for (const std::int64_t number : numbers) putInteger(out, number);
  out += 't';
}

void putTensor(std::string& out, const TensorEntry& tensor) {
  const auto storage = std::ranges::find(kStorages, tensor.dtype, &std::pair<DType, std::string_view>::first);
  if (storage == kStorages.end())
    throw UsageError(fmt::format("Tensor {} is of type {}, which torch.save has no storage for.", tensor.name, nameOf(tensor.dtype)));
  std::int64_t elements = 1;
  std::vector<std::int64_t> strides(tensor.sizes.size());
  for (std::size_t i = tensor.sizes.size(); i > 0; --i) {
    strides[i - 1] = elements;
    elements *= tensor.sizes[i - 1];
  }
  out += "ctorch._utils\n_rebuild_tensor_v2\n((";
  putText(out, "storage");
  out += fmt::format("ctorch\n{}\n", storage->second);
  putText(out, tensor.storage);
  putText(out, "cpu");
  putInteger(out, elements);
  out += "tQ";
  putInteger(out, 0);
  putTuple(out, tensor.sizes);
  putTuple(out, strides);
  out +=
      "\x89"
      "ccollections\nOrderedDict\n)RtR";  // no gradient needed, no hooks
}

void putReal(std::string& out, double number) {
  out += 'G';  // big-endian
  const auto bits = std::bit_cast<std::uint64_t>(number);
  for (int i = 7; i >= 0; --i) out += static_cast<char>(bits >> (8 * i) & 0xFFU);
}

void putBool(std::string& out, bool truth) { out += truth ? '\x88' : '\x89'; }

void putGlobal(std::string& out, std::string_view module, std::string_view name) { out += fmt::format("c{}\n{}\n", module, name); }

DType storageType(std::string_view name) {
  const auto found = std::ranges::find(kStorages, name, &std::pair<DType, std::string_view>::second);
  return found == kStorages.end() ? DType::Unknown : found->first;
}

DType dtypeNamed(std::string_view name) {
  const auto found = std::ranges::find_if(kStorages, [&](const auto& entry) { return pw::nameOf(entry.first) == name; });
  return found == kStorages.end() ? DType::Unknown : found->first;
}

std::string writeTensor(const TensorEntry& tensor) {
  std::string out("\x80\x02");
  putTensor(out, tensor);
  return out + '.';
}

std::string write(const TensorDict& dict, const std::map<std::string, std::string>& attributes) {
  std::string out("\x80\x02");
  if (attributes.empty()) {
    out += '}';
  } else {
    putGlobal(out, "collections", "OrderedDict");
    out += ")R";
  }
  for (const TensorEntry& tensor : dict.tensors) {
    putText(out, tensor.name);
    putTensor(out, tensor);
    out += 's';
  }
  for (const auto& [name, number] : dict.numbers) {
    putText(out, name);
    putReal(out, number);
    out += 's';
  }
  if (!attributes.empty()) {
    out += '}';
    for (const auto& [name, opcodes] : attributes) {
      putText(out, name);
      out += opcodes + 's';
    }
    out += 'b';
  }
  return out + '.';
}

}  // namespace pw::pickle
