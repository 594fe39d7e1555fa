#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

namespace pw {

/// SHA-256 (FIPS 180-4) of bytes that are added piece by piece.
class Sha256 {
 public:
  Sha256& add(std::string_view bytes);
  /// Adds the length and then the bytes, so that moving bytes between adjacent fields changes the digest.
  Sha256& addField(std::string_view bytes);
  /// The digest [32 bytes]. Call once.
  [[nodiscard]] std::string finish();

 private:
  void mix(const unsigned char* block);

  std::array<std::uint32_t, 8> state_{0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  std::array<unsigned char, 64> block_{};
  std::uint64_t bytes_ = 0;
};

/// [32 bytes]
[[nodiscard]] std::string sha256(std::string_view bytes);

/// Message authentication code HMAC-SHA-256 (RFC 2104) [32 bytes].
[[nodiscard]] std::string hmacSha256(std::string_view key, std::string_view message);

/// Whether two strings are equal, in a time that does not depend on where they differ.
[[nodiscard]] bool equalInConstantTime(std::string_view a, std::string_view b);

/// Lower-case hexadecimal digits.
[[nodiscard]] std::string hex(std::string_view bytes);

}  // namespace pw
