#include "backends/store/trace_blob.h"

#include <algorithm>

#include <fmt/format.h>

#include "backends/host/packed.h"
#include "schedules/error.h"

namespace pw {
namespace {

constexpr std::string_view kMagic = "PWTR";
constexpr std::uint32_t kBlobVersion = 1;
constexpr std::size_t kHeaderBytes = 28, kSpanBytes = 44, kSampleBytes = 20;
constexpr Ns kFarthest = Ns{1} << 60;  // 36 years; differences of two such times do not overflow

void add(Packer& packer, const Span& span) {
  packer.add(span.rank.value);
  packer.add(std::int32_t{static_cast<std::uint8_t>(span.kind)});
  packer.add(span.stage.value);
  packer.add(span.microbatch.value);
  packer.add(span.peer.value);
  packer.add(span.bytes);
  packer.add(span.start);
  packer.add(span.end);
}

Span takeSpan(Unpacker& unpacker, int ranks) {
  Span span;
  span.rank = Rank(unpacker.within(0, ranks - 1));
  const auto kind = unpacker.within(0, static_cast<std::int32_t>(SpanKind::Store));
  span.kind = static_cast<SpanKind>(static_cast<std::uint8_t>(kind));
  span.stage = Stage(unpacker.within(-1, INT32_MAX));
  span.microbatch = Microbatch(unpacker.within(-1, INT32_MAX));
  span.peer = Rank(unpacker.within(0, ranks - 1));
  span.bytes = unpacker.next<Bytes>();
  span.start = unpacker.within(-kFarthest, kFarthest);
  span.end = unpacker.within(-kFarthest, kFarthest);
  return span;
}

void add(Packer& packer, const MemorySample& sample) {
  packer.add(sample.rank.value);
  packer.add(sample.time);
  packer.add(sample.bytes);
}

MemorySample takeSample(Unpacker& unpacker, int ranks) {
  const Rank rank(unpacker.within(0, ranks - 1));
  const Ns time = unpacker.within(-kFarthest, kFarthest);
  return {rank, time, unpacker.next<Bytes>()};
}

}  // namespace

std::string toBlob(int ranks, std::span<const Span> spans, std::span<const MemorySample> memory) {
  Packer packer;
  packer.reserve(kHeaderBytes + kSpanBytes * spans.size() + kSampleBytes * memory.size());
  packer.addRaw(kMagic);
  packer.add(kBlobVersion);
  packer.add(std::int32_t{ranks});
  packer.add(std::uint64_t{spans.size()});
  packer.add(std::uint64_t{memory.size()});
  for (const Span& span : spans) add(packer, span);
  for (const MemorySample& sample : memory) add(packer, sample);
  return packer.finish();
}

std::string toBlob(const Trace& trace) { return toBlob(trace.ranks, trace.spans, trace.memory); }

Trace parseBlob(std::string_view blob, const std::string& source) {
  const auto damaged = [&] { return UsageError(fmt::format("the trace of {} is damaged; restore the file from a copy", source)); };
  Unpacker unpacker(blob);
  if (blob.size() < kHeaderBytes || unpacker.raw(kMagic.size()) != kMagic) throw damaged();
  if (const auto version = unpacker.next<std::uint32_t>(); version != kBlobVersion) {
    throw UsageError(
        fmt::format("the trace of {} has format {} but this Pipewright reads {}; update Pipewright", source, version, kBlobVersion));
  }
  Trace trace;
  trace.ranks = unpacker.within(0, kMostTraceRanks);
  const auto spans = unpacker.next<std::uint64_t>();
  const auto samples = unpacker.next<std::uint64_t>();
  // Counts are checked against the bytes that are there before anything is allocated; division cannot overflow.
  const std::size_t body = unpacker.left();
  if (!unpacker.isSound() || spans > body / kSpanBytes || samples > body / kSampleBytes ||
      spans * kSpanBytes + samples * kSampleBytes != body) {
    throw damaged();
  }
  trace.spans.reserve(spans);
  for (std::uint64_t i = 0; i < spans; ++i) trace.spans.push_back(takeSpan(unpacker, trace.ranks));
  trace.memory.reserve(samples);
  for (std::uint64_t i = 0; i < samples; ++i) trace.memory.push_back(takeSample(unpacker, trace.ranks));
  if (!unpacker.isComplete()) throw damaged();
  return trace;
}

Ns durationOf(const Trace& trace) {
  if (trace.spans.empty()) return 0;
  const Ns first = std::ranges::min(trace.spans, {}, &Span::start).start;
  return std::ranges::max(trace.spans, {}, &Span::end).end - first;
}

}  // namespace pw
