#pragma once

// Internal to the meeting: the protocol between its two sides. Numbers are little-endian.
//
// Server → client: magic, nonce. Client → server: magic, nonce, rank, instance, proof. Server → client: verdict, proof. Then requests of
// the client, each answered by one byte (1: set, or the value follows; 0: not set in time), length and value:
//   'S' key length, value length, key, value    'G' key length, patience [ms], key

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace pw::meeting {

inline constexpr std::string_view kMagic = "PWMEET1\n";
inline constexpr std::size_t kNonce = 16, kProof = 32;
inline constexpr std::size_t kServerHello = kMagic.size() + kNonce;
inline constexpr std::size_t kClientHello = kMagic.size() + kNonce + 4 + 8 + kProof;
inline constexpr std::size_t kServerAnswer = 1 + kProof;
inline constexpr std::size_t kRequest = 1 + 4 + 4, kAnswer = 1 + 4;
inline constexpr std::size_t kLongestKey = 4 << 10, kLongestValue = 16 << 20;

enum class Verdict : char { Welcome = 'w', Taken = 't' };  ///< Taken: by another process of that rank

/// A side's proof that it knows the token; `label` tells the sides apart.
[[nodiscard]] std::string proofOf(const std::string& token, std::string_view label, std::string_view challenge, std::string_view said);

[[nodiscard]] std::string bytesOf(std::uint32_t number);
[[nodiscard]] std::uint32_t numberIn(std::string_view bytes, std::size_t at);

}  // namespace pw::meeting
