#pragma once

#include <span>
#include <string>
#include <string_view>

#include "simulator/trace/trace.h"

namespace pw {

inline constexpr int kMostTraceRanks = 1 << 20;  ///< of a blob; what a part of a trace gives that does not know how many there are

/// A trace as bytes, for the run store and for messages between ranks. Little-endian, packed:
///   "PWTR", u32 version = 1, i32 ranks, u64 spans, u64 samples,
///   spans:   i32 rank, i32 kind, i32 stage, i32 microbatch, i32 peer, i64 bytes, i64 start, i64 end   (44 bytes)
///   samples: i32 rank, i64 time, i64 bytes                                                            (20 bytes)
/// Linear; no compression, so that a step is stored at memory speed.
[[nodiscard]] std::string toBlob(const Trace& trace);
[[nodiscard]] std::string toBlob(int ranks, std::span<const Span> spans, std::span<const MemorySample> memory);

/// The trace again. Throws Error when the bytes are no such trace, of a newer version, cut off, or name ranks that are
/// not there; `source` names them ("step 3 of run 7 in runs.db"). Takes any bytes without harm.
[[nodiscard]] Trace parseBlob(std::string_view blob, const std::string& source);

/// Last end − first start of the spans, 0 without spans.
[[nodiscard]] Ns durationOf(const Trace& trace);

}  // namespace pw
