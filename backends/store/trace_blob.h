#pragma once

#include <string>
#include <string_view>

#include "simulator/trace/trace.h"

namespace pw {

/// A trace as bytes for the run store. Little-endian, packed:
///   "PWTR", u32 version = 1, i32 ranks, u64 spans, u64 samples,
///   spans:   i32 rank, i32 kind, i32 stage, i32 microbatch, i32 peer, i64 bytes, i64 start, i64 end   (44 bytes)
///   samples: i32 rank, i64 time, i64 bytes                                                            (20 bytes)
/// Linear; no compression, so that a step is stored at memory speed.
[[nodiscard]] std::string toBlob(const Trace& trace);

/// The trace again. Throws Error when the bytes are no such trace, of a newer version, cut off, or name ranks that are
/// not there; `source` names them ("step 3 of run 7 in runs.db"). Takes any bytes without harm.
[[nodiscard]] Trace parseBlob(std::string_view blob, const std::string& source);

/// Last end − first start of the spans, 0 without spans.
[[nodiscard]] Ns durationOf(const Trace& trace);

}  // namespace pw
