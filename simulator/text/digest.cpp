#include "simulator/text/digest.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

namespace pw {
namespace {

/// Fractional parts of the cube roots of the first 64 primes (FIPS 180-4, section 4.2.2).
constexpr std::array<std::uint32_t, 64> kRound{
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5, 0xd807aa98, 0x12835b01, 0x243185be,
    0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174, 0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa,
    0x5cb0a9dc, 0x76f988da, 0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967, 0x27b70a85,
    0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85, 0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3,
    0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070, 0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f,
    0x682e6ff3, 0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

constexpr std::size_t kBlock = 64, kDigest = 32;

/// Big-endian bytes of a number.
template <class Number>
std::string bytesOf(Number number) {
  std::string bytes(sizeof number, '\0');
  for (std::size_t i = bytes.size(); i > 0; --i, number = static_cast<Number>(number >> 8U))
    bytes[i - 1] = static_cast<char>(number & 0xFFU);
  return bytes;
}

}  // namespace

void Sha256::mix(const unsigned char* block) {
  std::array<std::uint32_t, 64> w{};
  for (std::size_t i = 0; i < 16; ++i) {
    const unsigned char* at = block + 4 * i;
    w[i] = std::uint32_t{at[0]} << 24U | std::uint32_t{at[1]} << 16U | std::uint32_t{at[2]} << 8U | at[3];
  }
  for (std::size_t i = 16; i < 64; ++i) {
    const std::uint32_t a = w[i - 15], b = w[i - 2];
    w[i] = w[i - 16] + (std::rotr(a, 7) ^ std::rotr(a, 18) ^ a >> 3U) + w[i - 7] + (std::rotr(b, 17) ^ std::rotr(b, 19) ^ b >> 10U);
  }
  auto [a, b, c, d, e, f, g, h] = state_;  // in registers
  for (std::size_t i = 0; i < 64; ++i) {
    const std::uint32_t first = h + (std::rotr(e, 6) ^ std::rotr(e, 11) ^ std::rotr(e, 25)) + ((e & f) ^ (~e & g)) + kRound[i] + w[i];
    const std::uint32_t second = (std::rotr(a, 2) ^ std::rotr(a, 13) ^ std::rotr(a, 22)) + ((a & b) ^ (a & c) ^ (b & c));
    h = std::exchange(g, std::exchange(f, std::exchange(e, d + first)));
    d = std::exchange(c, std::exchange(b, std::exchange(a, first + second)));
  }
  const std::array mixed{a, b, c, d, e, f, g, h};
  for (std::size_t i = 0; i < mixed.size(); ++i) state_[i] += mixed[i];
}

Sha256& Sha256::add(std::string_view bytes) {
  const auto* at = reinterpret_cast<const unsigned char*>(bytes.data());
  std::size_t left = bytes.size();
  std::size_t filled = bytes_ % kBlock;
  bytes_ += left;
  while (left > 0) {
    if (filled == 0 && left >= kBlock) {
      mix(at);
      at += kBlock;
      left -= kBlock;
      continue;
    }
    const std::size_t count = std::min(left, kBlock - filled);
    std::memcpy(block_.data() + filled, at, count);
    at += count;
    left -= count;
    filled = (filled + count) % kBlock;
    if (filled == 0) mix(block_.data());
  }
  return *this;
}

Sha256& Sha256::addField(std::string_view bytes) { return add(bytesOf(std::uint64_t{bytes.size()})).add(bytes); }

std::string Sha256::finish() {
  const std::uint64_t bits = bytes_ * 8;
  const std::size_t filled = bytes_ % kBlock;
  std::string padding(1, '\x80');
  padding.append((filled < kBlock - 8 ? kBlock : 2 * kBlock) - 8 - filled - 1, '\0');
  add(padding).add(bytesOf(bits));
  std::string digest;
  for (const std::uint32_t word : state_) digest += bytesOf(word);
  return digest;
}

std::string sha256(std::string_view bytes) { return Sha256().add(bytes).finish(); }

std::string hmacSha256(std::string_view key, std::string_view message) {
  std::string padded = key.size() > kBlock ? sha256(key) : std::string(key);
  padded.resize(kBlock, '\0');
  std::string inner = padded, outer = padded;
  for (std::size_t i = 0; i < kBlock; ++i) {
    inner[i] = static_cast<char>(inner[i] ^ 0x36);
    outer[i] = static_cast<char>(outer[i] ^ 0x5c);
  }
  return Sha256().add(outer).add(Sha256().add(inner).add(message).finish()).finish();
}

bool equalInConstantTime(std::string_view a, std::string_view b) {
  if (a.size() != b.size()) return false;
  unsigned difference = 0;
  for (std::size_t i = 0; i < a.size(); ++i) difference |= static_cast<unsigned char>(a[i] ^ b[i]);
  return difference == 0;
}

std::string hex(std::string_view bytes) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string text;
  text.reserve(2 * bytes.size());
  for (const char byte : bytes) {
    const auto value = static_cast<unsigned char>(byte);
    text += kDigits[value >> 4U];
    text += kDigits[value & 0xFU];
  }
  return text;
}

}  // namespace pw
