#include "backends/checkpoints/outputs.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <algorithm>
#include <cstring>
#include <numeric>

#include "backends/checkpoints/writer.h"
#include "backends/messages/buffer_math.h"
#include "schedules/error.h"

namespace pw {
namespace {

using Bytes8 = std::vector<std::byte>;

/// A value without samples, or joined from its parts.
struct Merged {
  DType dtype = DType::Float32;
  std::vector<std::int64_t> shape;
  Bytes8 bytes;
};

std::size_t product(const std::vector<std::int64_t>& shape, std::size_t begin, std::size_t end) {
  return std::accumulate(shape.begin() + static_cast<std::ptrdiff_t>(begin), shape.begin() + static_cast<std::ptrdiff_t>(end),
                         std::size_t{1}, [](std::size_t count, std::int64_t size) { return count * static_cast<std::size_t>(size); });
}

[[noreturn]] void refuse(const ModelOutput& output, const OutputPart& part) {
  throw UsageError(
      fmt::format("Output {} has the shape [{}] for one microbatch and [{}] for another, which cannot be joined along one dimension.",
                  output.name, fmt::join(output.parts.front().shape, ", "), fmt::join(part.shape, ", ")));
}

void check(const ModelOutput& output) {
  const auto& first = output.parts.front().shape;
  for (const OutputPart& part : output.parts) {
    bool fits = part.shape.size() == first.size() && (!output.dimension || *output.dimension < first.size());
    for (std::size_t i = 0; fits && i < first.size(); ++i) fits = part.shape[i] == first[i] || output.dimension == i;
    fits = fits && (!output.dimension || part.shape[*output.dimension] % output.outer == 0);
    fits = fits && part.data.bytes == product(part.shape, 0, part.shape.size()) * widthOf(output.dtype);
    if (!fits) refuse(output, part);
  }
}

Merged join(const ModelOutput& output, std::size_t dimension) {
  Merged merged{output.dtype, output.parts.front().shape, {}};
  const std::size_t width = widthOf(output.dtype);
  const std::size_t outer = product(merged.shape, 0, dimension) * static_cast<std::size_t>(output.outer);
  const std::size_t inner = product(merged.shape, dimension + 1, merged.shape.size()) * width;
  std::int64_t rows = 0;
  for (const OutputPart& part : output.parts) rows += part.shape[dimension];
  merged.shape[dimension] = rows;
  const auto blocks = static_cast<std::size_t>(output.outer);
  const std::size_t whole = static_cast<std::size_t>(rows) / blocks * inner;
  merged.bytes.resize(outer * whole);
  std::size_t begin = 0;
  for (const OutputPart& part : output.parts) {
    const std::size_t piece = static_cast<std::size_t>(part.shape[dimension]) / blocks * inner;
    for (std::size_t o = 0; piece > 0 && o < outer; ++o)
      std::memcpy(merged.bytes.data() + o * whole + begin, part.data.data + o * piece, piece);
    begin += piece;
  }
  return merged;
}

/// The mean of the parts, weighted by their samples, as numbers of type Written.
template <class Written>
Merged mean(const ModelOutput& output, DType dtype, const std::vector<std::int64_t>& samples) {
  Merged merged{dtype, output.parts.front().shape, {}};
  std::vector<double> sums(product(merged.shape, 0, merged.shape.size()));
  for (std::size_t m = 0; m < output.parts.size(); ++m) {
    const std::vector<double> numbers = toDoubles(output.dtype, output.parts[m].data);
    for (std::size_t i = 0; i < sums.size(); ++i) sums[i] += numbers[i] * static_cast<double>(samples[m]);
  }
  const auto all = static_cast<double>(std::accumulate(samples.begin(), samples.end(), std::int64_t{0}));
  merged.bytes.resize(sums.size() * sizeof(Written));
  for (std::size_t i = 0; i < sums.size(); ++i) {
    const auto written = static_cast<Written>(sums[i] / all);
    std::memcpy(merged.bytes.data() + i * sizeof(Written), &written, sizeof(Written));
  }
  return merged;
}

Merged withoutSamples(const ModelOutput& output, const std::vector<std::int64_t>& samples) {
  switch (output.dtype) {
    case DType::Float64: return mean<double>(output, DType::Float64, samples);
    case DType::Float32:
    case DType::Float16:
    case DType::BFloat16: return mean<float>(output, DType::Float32, samples);
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
  const OutputPart& first = output.parts.front();
  return {output.dtype, first.shape, Bytes8(first.data.data, first.data.data + first.data.bytes)};
}

}  // namespace

void mergeAndSave(const std::string& path, const std::vector<ModelOutput>& outputs, const std::vector<std::int64_t>& samples) {
  CheckpointWriter writer(path);
  for (const ModelOutput& output : outputs) {
    if (output.parts.empty() || output.parts.size() != samples.size()) {
      throw UsageError(fmt::format("Output {} has {} parts for {} microbatches.", output.name, output.parts.size(), samples.size()));
    }
    check(output);
    const Merged merged = output.dimension ? join(output, *output.dimension) : withoutSamples(output, samples);
    std::string name = output.name;
    std::ranges::replace(name, '/', '.');
    writer.add(name, merged.dtype, merged.shape, merged.bytes.data());
  }
  writer.finish({});
}

}  // namespace pw
