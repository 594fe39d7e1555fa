#pragma once

// Internal to the import of traces: the wire format of Protocol Buffers (protobuf.dev/programming-guides/encoding), as far as it is read
// here.

#include <cstdint>
#include <optional>
#include <string_view>

namespace pw {

/// Takes a base-128 number from the front of the bytes; nothing where they end within it or it has more than 64 bits.
[[nodiscard]] std::optional<std::uint64_t> takeVarint(std::string_view& bytes);

/// One field of a message: a number, or bytes (a text, a message, packed numbers).
struct ProtoField {
  std::uint32_t number = 0;
  bool isNumber = false;
  std::uint64_t value = 0;  ///< of a number
  std::string_view bytes = {};
};

/// Takes a field from the front of a message; nothing at its end, and where it is damaged, which `bytes` being left over tells apart.
[[nodiscard]] std::optional<ProtoField> takeField(std::string_view& bytes);

}  // namespace pw
