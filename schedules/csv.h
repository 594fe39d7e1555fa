#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "schedules/error.h"
#include "schedules/schedule.h"

namespace pw {

/// Which letters a CSV uses for the parts of a backward. Torch: B full, I inputs, W weights. ZeroBubble (older files and the papers): B
/// stands for the inputs' part too; a B is read as an I if its stage and microbatch also have a W.
enum class Letters : std::uint8_t { Torch, ZeroBubble };
constexpr std::string_view nameOf(Letters letters) {
  switch (letters) {
    case Letters::Torch: return "torch";
    case Letters::ZeroBubble: return "zero-bubble";
  }
  return {};
}

/// A cell that cannot be read, or does not fit those before it; counted from 0.
class CsvError : public UsageError {
 public:
  CsvError(const std::string& sentence, std::size_t row, std::size_t cell) : UsageError(sentence), row_(row), cell_(cell) {}
  [[nodiscard]] std::size_t row() const { return row_; }
  [[nodiscard]] std::size_t cell() const { return cell_; }

 private:
  std::size_t row_, cell_;
};

/// torch.distributed.pipelining's schedule CSV: one row per rank, CRLF, cells separated by commas, no header; an idle
/// cell is empty (`""` where it is the only one of its row, as Python's csv module writes it), an overlapped pair reads
/// `(0F5;7B2)OVERLAP_F_B`.
[[nodiscard]] std::string toCsv(const Schedule& schedule, Letters letters = Letters::Torch);

/// Reads that CSV, compute-only or lowered. Strict: apart from blanks around it, every cell must be exactly one action or overlapped pair;
/// an empty cell is an idle slot; a row without any cell is a rank without work, which `check` reports. The placement is inferred from
/// which rank computes what: one rank for each stage, or (bidirectional) two, mirrored, of which one computes the first microbatches and
/// the other the rest. M is the largest microbatch + 1. LF and CRLF are accepted. `source` names the text in errors. Throws CsvError
/// naming row, cell and text of what cannot be read, of a stage computed on two ranks in any other way, and for a stage number with no
/// compute action. Sizes are bounded (kMaxRanks, kMaxStages, kMaxMicrobatches), so hostile text cannot exhaust memory.
[[nodiscard]] Schedule parseCsv(std::string_view text, std::string_view name, std::string_view source, Letters letters = Letters::Torch);

/// Whether a text's first cell that is not empty is an action or an overlapped pair, as of such a CSV.
[[nodiscard]] bool beginsAsCsv(std::string_view text);

}  // namespace pw
