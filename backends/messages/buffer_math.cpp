#include "backends/messages/buffer_math.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cassert>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <string>

#include "schedules/error.h"

namespace pw {
namespace {

/// IEEE half and bfloat16 as the 16 bits they are stored in.
struct Half {
  std::uint16_t bits;
};
struct BrainFloat {
  std::uint16_t bits;
};

double widen(float x) { return x; }
double widen(double x) { return x; }
double widen(BrainFloat x) { return std::bit_cast<float>(static_cast<std::uint32_t>(x.bits) << 16U); }
double widen(Half x) {
  const int exponent = (x.bits >> 10) & 31, mantissa = x.bits & 1023;
  const double size = exponent == 0    ? std::ldexp(mantissa, -24)
                      : exponent == 31 ? (mantissa == 0 ? HUGE_VAL : std::nan(""))
                                       : std::ldexp(mantissa + 1024, exponent - 25);
  return (x.bits & 0x8000) != 0 ? -size : size;
}

/// Round to nearest, ties to even.
void narrow(double x, BrainFloat& out) {
  const auto bits = std::bit_cast<std::uint32_t>(static_cast<float>(x));
  out.bits = std::isnan(x) ? 0x7FC0 : static_cast<std::uint16_t>((bits + 0x7FFF + ((bits >> 16U) & 1U)) >> 16U);
}
void narrow(double x, Half& out) {
  const std::uint16_t sign = std::signbit(x) ? 0x8000 : 0;
  const double size = std::fabs(x);
  if (std::isnan(x)) {
    out.bits = 0x7E00;
  } else if (std::isinf(x)) {
    out.bits = sign | 0x7C00;
  } else if (size < std::ldexp(1, -14)) {
    out.bits = static_cast<std::uint16_t>(
        sign | static_cast<std::uint16_t>(std::nearbyint(std::ldexp(size, 24))));  // 1024 is the smallest normal number
  } else {
    int exponent = 0;
    const double fraction = std::frexp(size, &exponent);  // in [0.5, 1)
    int mantissa = static_cast<int>(std::nearbyint(std::ldexp(fraction, 11)));
    if (mantissa == 2048) {
      mantissa = 1024;
      ++exponent;
    }
    out.bits = exponent > 16 ? static_cast<std::uint16_t>(sign | 0x7C00)
                             : static_cast<std::uint16_t>(sign | ((exponent + 14) << 10) | (mantissa - 1024));
  }
}

/// Calls `work` with a null pointer of the element type.
template <class Work>
auto withType(DType dtype, Work work) {
  switch (dtype) {
    case DType::Float32: return work(static_cast<float*>(nullptr));
    case DType::Float64: return work(static_cast<double*>(nullptr));
    case DType::Float16: return work(static_cast<Half*>(nullptr));
    case DType::BFloat16: return work(static_cast<BrainFloat*>(nullptr));
    case DType::Unknown:
    case DType::UInt8:
    case DType::Int8:
    case DType::Int16:
    case DType::Int32:
    case DType::Int64:
    case DType::ComplexHalf:
    case DType::ComplexFloat:
    case DType::ComplexDouble:
    case DType::Float8:
    case DType::Bool: break;
  }
  throw Error("gradients of type " + std::string(nameOf(dtype)) + " cannot be summed or compared; train parameters of a floating type");
}

/// Whether no number has all bits of its exponent set, which only infinities and NaN have: there, adding the exponent's lowest bit to the
/// number without its sign carries into the sign's place. `lowest` and `sign` have these bits of every number that a word of 64 holds.
bool exponentsFit(Buffer buffer, std::uint64_t lowest, std::uint64_t sign) {
  constexpr std::size_t kWord = sizeof(std::uint64_t), kAtOnce = 4, kBlock = 8192;
  const auto at = [&](std::size_t place) {
    std::uint64_t word = 0;
    std::memcpy(&word, buffer.data + place, sizeof(word));
    return (word & ~sign) + lowest;
  };
  std::array<std::uint64_t, kAtOnce> found{};
  std::size_t place = 0;
  while (place + kAtOnce * kWord <= buffer.bytes) {
    const std::size_t end = std::min(buffer.bytes, place + kBlock);
    for (; place + kAtOnce * kWord <= end; place += kAtOnce * kWord) {
      for (std::size_t k = 0; k < kAtOnce; ++k) found[k] |= at(place + k * kWord);
    }
    if (((found[0] | found[1] | found[2] | found[3]) & sign) != 0) return false;
  }
  for (; place + kWord <= buffer.bytes; place += kWord) found[0] |= at(place);
  std::uint64_t rest = 0;
  if (place < buffer.bytes) std::memcpy(&rest, buffer.data + place, buffer.bytes - place);
  return ((found[0] | ((rest & ~sign) + lowest)) & sign) == 0;
}

}  // namespace

bool allFinite(DType dtype, Buffer buffer) {
  switch (dtype) {
    case DType::Float32:
    case DType::ComplexFloat: return exponentsFit(buffer, 0x0080000000800000ULL, 0x8000000080000000ULL);
    case DType::Float64:
    case DType::ComplexDouble: return exponentsFit(buffer, 0x0010000000000000ULL, 0x8000000000000000ULL);
    case DType::Float16:
    case DType::ComplexHalf: return exponentsFit(buffer, 0x0400040004000400ULL, 0x8000800080008000ULL);
    case DType::BFloat16: return exponentsFit(buffer, 0x0080008000800080ULL, 0x8000800080008000ULL);
    case DType::Unknown:
    case DType::UInt8:
    case DType::Int8:
    case DType::Int16:
    case DType::Int32:
    case DType::Int64:
    case DType::Float8:
    case DType::Bool: break;
  }
  return true;
}

void addInto(DType dtype, Buffer into, Buffer what) {
  assert(into.bytes == what.bytes);
  withType(dtype, [&](auto* type) {
    using Number = std::remove_pointer_t<decltype(type)>;
    auto* to = reinterpret_cast<Number*>(into.data);
    const auto* from = reinterpret_cast<const Number*>(what.data);
    const std::size_t n = into.bytes / sizeof(Number);
    if constexpr (std::is_floating_point_v<Number>) {
      for (std::size_t i = 0; i < n; ++i) to[i] += from[i];
    } else {
      for (std::size_t i = 0; i < n; ++i) narrow(widen(to[i]) + widen(from[i]), to[i]);
    }
  });
}

double sumOfSquares(DType dtype, Buffer buffer) {
  return withType(dtype, [&](auto* type) {
    using Number = std::remove_pointer_t<decltype(type)>;
    const auto* numbers = reinterpret_cast<const Number*>(buffer.data);
    double sum = 0;
    for (std::size_t i = 0; i < buffer.bytes / sizeof(Number); ++i) sum += widen(numbers[i]) * widen(numbers[i]);
    return sum;
  });
}

std::vector<double> toDoubles(DType dtype, Buffer buffer) {
  return withType(dtype, [&](auto* type) {
    using Number = std::remove_pointer_t<decltype(type)>;
    const auto* numbers = reinterpret_cast<const Number*>(buffer.data);
    std::vector<double> wide;
    for (std::size_t i = 0; i < buffer.bytes / sizeof(Number); ++i) wide.push_back(widen(numbers[i]));
    return wide;
  });
}

}  // namespace pw
