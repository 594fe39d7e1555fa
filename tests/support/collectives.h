#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>
#include <span>
#include <stdexcept>
#include <utility>
#include <vector>

#include "backends/messages/buffer_math.h"
#include "backends/messages/communicator.h"
#include "simulator/model/model_graph.h"

namespace pw::test {

// Reference results of collectives on small numbers, which every type represents exactly, by plain loops.

constexpr DType kSummed[]{DType::Float16, DType::BFloat16, DType::Float32, DType::Float64,
                          DType::UInt8,   DType::Int8,     DType::Int32,   DType::Int64};

inline bool isSummed(DType dtype) { return std::ranges::find(kSummed, dtype) != std::end(kSummed); }

/// Piece k of `elements`, as first and end.
inline std::pair<std::size_t, std::size_t> pieceOf(std::size_t elements, std::size_t ranks, std::size_t k) {
  return {k * elements / ranks, (k + 1) * elements / ranks};
}

template <class T>
std::vector<std::byte> bytesAs(const std::vector<int>& values) {
  std::vector<std::byte> bytes(values.size() * sizeof(T));
  for (std::size_t i = 0; i < values.size(); ++i) {
    const T value = static_cast<T>(values[i]);
    std::memcpy(bytes.data() + i * sizeof(T), &value, sizeof(T));
  }
  return bytes;
}

/// Integers from 0 to 255 as elements of a type.
inline std::vector<std::byte> encoded(DType dtype, const std::vector<int>& values) {
  std::vector<int> bits;
  for (const int value : values) {
    const auto single = std::bit_cast<std::uint32_t>(static_cast<float>(value));
    // Of a half: exponents count from 15 instead of 127, and 10 digits follow instead of 23.
    bits.push_back(dtype == DType::BFloat16 ? static_cast<int>(single >> 16U)
                   : value == 0             ? 0
                                            : static_cast<int>((single >> 13U) - ((127U - 15U) << 10U)));
  }
  if (dtype == DType::Float16 || dtype == DType::BFloat16) return bytesAs<std::uint16_t>(bits);
  if (dtype == DType::Float32) return bytesAs<float>(values);
  if (dtype == DType::Float64) return bytesAs<double>(values);
  if (dtype == DType::Int32) return bytesAs<std::int32_t>(values);
  if (dtype == DType::Int64) return bytesAs<std::int64_t>(values);
  return bytesAs<std::uint8_t>(values);
}

template <class T>
void addAs(Buffer into, Buffer what) {
  for (std::size_t at = 0; at < into.bytes; at += sizeof(T)) {
    T a{}, b{};
    std::memcpy(&a, into.data + at, sizeof(T));
    std::memcpy(&b, what.data + at, sizeof(T));
    a = static_cast<T>(a + b);
    std::memcpy(into.data + at, &a, sizeof(T));
  }
}

/// Also of integers.
inline void sumInto(DType dtype, Buffer into, Buffer what) {
  if (dtype == DType::UInt8 || dtype == DType::Int8) return addAs<std::uint8_t>(into, what);
  if (dtype == DType::Int32) return addAs<std::int32_t>(into, what);
  if (dtype == DType::Int64) return addAs<std::int64_t>(into, what);
  addInto(dtype, into, what);
}

/// Does a collective; what it leaves undefined becomes 0xDD.
inline void combineNow(Collective what, DType dtype, std::span<const Buffer> buffers) {
  const std::size_t bytesEach = widthOf(dtype);
  const std::size_t ranks = buffers.size(), elements = buffers[0].bytes / bytesEach;
  std::vector<std::byte> result(buffers[0].bytes);
  for (std::size_t k = 0; k < ranks; ++k) {
    const auto [first, end] = pieceOf(elements, ranks, k);
    const auto part = [&, at = first * bytesEach, bytes = (end - first) * bytesEach](std::byte* data) { return Buffer{data + at, bytes}; };
    const Buffer piece = part(result.data());
    for (std::size_t r = 0; r < ranks; ++r) {
      const Buffer from = part(buffers[r].data);
      if (what == Collective::AllGather ? r == k : r == 0)
        std::copy_n(from.data, from.bytes, piece.data);
      else if (what != Collective::AllGather)
        sumInto(dtype, piece, from);
    }
  }
  for (std::size_t r = 0; r < ranks; ++r) {
    const auto [first, end] = pieceOf(elements, ranks, r);
    std::vector<std::byte> own = result;
    if (what == Collective::ReduceScatter) {
      std::fill_n(own.begin(), first * bytesEach, std::byte{0xDD});
      std::fill(own.begin() + static_cast<std::ptrdiff_t>(end * bytesEach), own.end(), std::byte{0xDD});
    }
    std::ranges::copy(own, buffers[r].data);
  }
}

/// What a rank gives to a collective.
inline std::vector<int> givenBy(JobRank rank, std::size_t elements, int salt) {
  std::vector<int> values(elements);
  for (std::size_t i = 0; i < elements; ++i) values[i] = static_cast<int>((i * 7 + rank.index() * 3 + static_cast<std::size_t>(salt)) % 8);
  return values;
}

/// What the k-th of a group has then, from element `first` on; the rest is undefined.
struct Combined {
  std::size_t first = 0;
  std::vector<int> values;
};
inline Combined combinedAt(std::size_t k, Collective what, std::span<const JobRank> group, std::size_t elements, int salt) {
  Combined result{.values = std::vector<int>(elements)};
  for (std::size_t m = 0; m < group.size(); ++m) {
    const std::vector<int> given = givenBy(group[m], elements, salt);
    const auto [first, end] = pieceOf(elements, group.size(), m);
    for (std::size_t i = 0; i < elements; ++i) {
      if (what != Collective::AllGather)
        result.values[i] += given[i];
      else if (i >= first && i < end)
        result.values[i] = given[i];
    }
  }
  if (what != Collective::ReduceScatter) return result;
  const auto [first, end] = pieceOf(elements, group.size(), k);
  result.first = first;
  result.values = std::vector<int>(result.values.begin() + static_cast<std::ptrdiff_t>(first),
                                   result.values.begin() + static_cast<std::ptrdiff_t>(end));
  return result;
}

}  // namespace pw::test
