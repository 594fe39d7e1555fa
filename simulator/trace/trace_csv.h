#pragma once

#include <string>
#include <string_view>

#include "simulator/trace/trace.h"

namespace pw {

/// The head of the table below.
inline constexpr std::string_view kSpanCsvHead = "rank,kind,stage,microbatch,peer,bytes,start_ns,end_ns";

/// A trace's spans as a table for spreadsheets and scripts: the head, then a line for each span in the trace's order, kinds by their
/// letters
/// (`F`, `SEND_B`, …), −1 where a span has no stage or microbatch, `peer` the receiver of a message, else the rank. Memory is left out.
/// Linear.
[[nodiscard]] std::string toSpanCsv(const Trace& trace);

/// Reads that table; lines end in LF or CRLF. Ranks: one more than the largest. Throws UsageError that names the line and what is wrong in
/// it: a number that is none or is too large, a kind there is not, an end before its start, no span at all. Linear.
[[nodiscard]] Trace parseSpanCsv(std::string_view text, std::string_view source);

}  // namespace pw
