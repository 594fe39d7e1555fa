#include "backends/store/trace_blob.h"

#include <algorithm>
#include <concepts>
#include <type_traits>

#include <fmt/format.h>

#include "schedules/error.h"

namespace pw {
namespace {

constexpr std::string_view kMagic = "PWTR";
constexpr std::uint32_t kVersion = 1;
constexpr std::size_t kHeaderBytes = 28, kSpanBytes = 44, kSampleBytes = 20;
constexpr std::int32_t kMostRanks = 1 << 20;
constexpr Ns kFarthest = Ns{1} << 60;  // 36 years; differences of two such times do not overflow

template <std::integral T>
void put(std::string& blob, T number) {
  auto bits = static_cast<std::make_unsigned_t<T>>(number);
  for (std::size_t i = 0; i < sizeof(T); ++i, bits = static_cast<decltype(bits)>(bits >> 4 >> 4)) {
    blob.push_back(static_cast<char>(bits & 0xff));
  }
}

/// Reads numbers off the front of a text that is known to be long enough.
class Reader {
 public:
  explicit Reader(std::string_view bytes) : bytes_(bytes) {}

  template <std::integral T>
  T take() {
    std::make_unsigned_t<T> bits = 0;
    for (std::size_t i = sizeof(T); i-- > 0;) {
      bits = static_cast<decltype(bits)>(bits << 4 << 4 | static_cast<unsigned char>(bytes_[i]));
    }
    bytes_.remove_prefix(sizeof(T));
    return static_cast<T>(bits);
  }
  std::int32_t takeWithin(std::int32_t low, std::int32_t high) { return within(take<std::int32_t>(), low, high); }
  Ns takeTime() { return within(take<std::int64_t>(), -kFarthest, kFarthest); }
  [[nodiscard]] bool sound() const { return sound_; }  ///< every number was in its range

 private:
  template <class T>
  T within(T number, T low, T high) {
    sound_ = sound_ && low <= number && number <= high;
    return number;
  }

  std::string_view bytes_;
  bool sound_ = true;
};

Span takeSpan(Reader& reader, int ranks) {
  Span span;
  span.rank = Rank(reader.takeWithin(0, ranks - 1));
  const auto kind = reader.takeWithin(0, static_cast<std::int32_t>(SpanKind::Store));
  span.kind = static_cast<SpanKind>(static_cast<std::uint8_t>(kind));
  span.stage = Stage(reader.takeWithin(-1, INT32_MAX));
  span.microbatch = Microbatch(reader.takeWithin(-1, INT32_MAX));
  span.peer = Rank(reader.takeWithin(0, ranks - 1));
  span.bytes = reader.take<std::int64_t>();
  span.start = reader.takeTime();
  span.end = reader.takeTime();
  return span;
}

}  // namespace

std::string toBlob(const Trace& trace) {
  std::string blob(kMagic);
  blob.reserve(kHeaderBytes + kSpanBytes * trace.spans.size() + kSampleBytes * trace.memory.size());
  put(blob, kVersion);
  put(blob, std::int32_t{trace.ranks});
  put(blob, std::uint64_t{trace.spans.size()});
  put(blob, std::uint64_t{trace.memory.size()});
  for (const Span& span : trace.spans) {
    for (const std::int32_t id :
         {span.rank.value, std::int32_t{static_cast<std::uint8_t>(span.kind)}, span.stage.value, span.microbatch.value, span.peer.value}) {
      put(blob, id);
    }
    for (const std::int64_t number : {span.bytes, span.start, span.end}) put(blob, number);
  }
  for (const MemorySample& sample : trace.memory) {
    put(blob, sample.rank.value);
    put(blob, sample.time);
    put(blob, sample.bytes);
  }
  return blob;
}

Trace parseBlob(std::string_view blob, const std::string& source) {
  const auto damaged = [&] { return Error(fmt::format("the trace of {} is damaged; restore the file from a copy", source)); };
  if (blob.size() < kHeaderBytes || !blob.starts_with(kMagic)) throw damaged();
  Reader reader(blob.substr(kMagic.size()));
  if (const auto version = reader.take<std::uint32_t>(); version != kVersion) {
    throw Error(fmt::format("the trace of {} has format {} but this Pipewright reads {}; update Pipewright", source, version, kVersion));
  }
  Trace trace;
  trace.ranks = reader.takeWithin(0, kMostRanks);
  const auto spans = reader.take<std::uint64_t>();
  const auto samples = reader.take<std::uint64_t>();
  // Counts are checked against the bytes that are there before anything is allocated; division cannot overflow.
  const std::size_t body = blob.size() - kHeaderBytes;
  if (!reader.sound() || spans > body / kSpanBytes || samples > body / kSampleBytes ||
      spans * kSpanBytes + samples * kSampleBytes != body) {
    throw damaged();
  }
  trace.spans.reserve(spans);
  for (std::uint64_t i = 0; i < spans; ++i) trace.spans.push_back(takeSpan(reader, trace.ranks));
  trace.memory.reserve(samples);
  for (std::uint64_t i = 0; i < samples; ++i) {
    const Rank rank(reader.takeWithin(0, trace.ranks - 1));
    const Ns time = reader.takeTime();
    trace.memory.push_back({rank, time, reader.take<std::int64_t>()});
  }
  if (!reader.sound()) throw damaged();
  return trace;
}

Ns durationOf(const Trace& trace) {
  if (trace.spans.empty()) return 0;
  const Ns first = std::ranges::min(trace.spans, {}, &Span::start).start;
  return std::ranges::max(trace.spans, {}, &Span::end).end - first;
}

}  // namespace pw
