#pragma once

#include <string>
#include <string_view>

#include "simulator/trace/trace.h"

namespace pw {

/// The header line of the table below.
inline constexpr std::string_view kSpanCsvHead = "rank,kind,stage,microbatch,peer,bytes,start_ns,end_ns";

/// A trace's spans as a table for spreadsheets and scripts: the header, then one line per span in the trace's order, kinds by their letters
/// (`F`, `SEND_B`, …), −1 where a span has no stage or microbatch, `peer` the receiver of a message, else the rank. Memory is left out.
/// Linear.
[[nodiscard]] std::string toSpanCsv(const Trace& trace);

/// Reads that table; lines end in LF or CRLF. Ranks: one more than the largest. Throws UsageError that names the line and what is wrong
/// with it: not a number, a number that is too large, an unknown kind, an end before its start; and when there is no span. Linear.
[[nodiscard]] Trace parseSpanCsv(std::string_view text, std::string_view source);

}  // namespace pw
