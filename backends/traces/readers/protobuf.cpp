#include "backends/traces/readers/protobuf.h"

namespace pw {

std::optional<std::uint64_t> takeVarint(std::string_view& bytes) {
  constexpr unsigned kMostBits = 64;
  std::uint64_t value = 0;
  std::string_view rest = bytes;
  for (unsigned shift = 0; shift < kMostBits && !rest.empty(); shift += 7) {
    const auto byte = static_cast<unsigned char>(rest.front());
    rest.remove_prefix(1);
    if (shift + 7 > kMostBits && (byte & 0x7FU) >> (kMostBits - shift) != 0) return std::nullopt;
    value |= static_cast<std::uint64_t>(byte & 0x7FU) << shift;
    if ((byte & 0x80U) != 0) continue;
    bytes = rest;
    return value;
  }
  return std::nullopt;
}

std::optional<ProtoField> takeField(std::string_view& bytes) {
  enum Wire : std::uint64_t { kVarint = 0, kEight = 1, kBytes = 2, kFour = 5 };
  std::string_view rest = bytes;
  const auto tag = takeVarint(rest);
  if (!tag || *tag >> 3U == 0 || *tag >> 32U != 0) return std::nullopt;
  ProtoField field{static_cast<std::uint32_t>(*tag >> 3U)};
  const auto fixed = [&](std::size_t size) {
    if (rest.size() < size) return false;
    for (std::size_t i = 0; i < size; ++i) field.value |= static_cast<std::uint64_t>(static_cast<unsigned char>(rest[i])) << (8 * i);
    rest.remove_prefix(size);
    return field.isNumber = true;
  };
  switch (*tag & 7U) {
    case kVarint: {
      const auto value = takeVarint(rest);
      if (!value) return std::nullopt;
      field.isNumber = true;
      field.value = *value;
      break;
    }
    case kEight:
      if (!fixed(8)) return std::nullopt;
      break;
    case kFour:
      if (!fixed(4)) return std::nullopt;
      break;
    case kBytes: {
      const auto size = takeVarint(rest);
      if (!size || *size > rest.size()) return std::nullopt;
      field.bytes = rest.substr(0, static_cast<std::size_t>(*size));
      rest.remove_prefix(static_cast<std::size_t>(*size));
      break;
    }
    default: return std::nullopt;
  }
  bytes = rest;
  return field;
}

}  // namespace pw
