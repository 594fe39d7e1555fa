#pragma once

#include <string>
#include <string_view>

#include "schedules/schedule.h"

namespace pw {

/// torch.distributed.pipelining's schedule CSV: one row per rank, CRLF, cells separated by commas, no header.
[[nodiscard]] std::string toCsv(const Schedule& schedule);

/// Reads that CSV, compute-only or lowered. Strict: every cell must be exactly one action, blanks around it apart; an
/// empty cell is an idle slot and is dropped; an empty row is a rank without work (as in torch), which `check` reports.
/// The placement is inferred from which rank computes a stage; M is the largest microbatch + 1. LF and CRLF are taken.
/// `source` names the text in errors. Throws UsageError naming row, cell and text of what cannot be read (overlapped
/// pairs, `(0F1;0B0)OVERLAP_F_B`, among it) or of a stage computed on two ranks, and for a stage number with no compute
/// action. Sizes are bounded (kMaxRanks, kMaxStages, kMaxMicrobatches), so hostile text cannot exhaust memory.
[[nodiscard]] Schedule parseCsv(std::string_view text, std::string_view name, std::string_view source);

}  // namespace pw
