#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "schedules/named_values.h"

namespace pw {

/// Whether an archive was compared with the Python model when it was exported. torch.export drops hooks and the backward of an
/// autograd.Function; only that comparison shows it.
enum class TraceCheck : std::uint8_t {
  None,       ///< not exported by resources/export_model.py, or by a version that did not compare
  Equal,      ///< outputs, gradients and buffers agreed on the example
  Unchecked,  ///< exported with --unchecked
  Meta,       ///< exported without weights, so there was nothing to compare
};
constexpr std::string_view nameOf(TraceCheck check) {
  switch (check) {
    case TraceCheck::None: return "none";
    case TraceCheck::Equal: return "equal";
    case TraceCheck::Unchecked: return "unchecked";
    case TraceCheck::Meta: return "meta";
  }
  return {};
}

/// What resources/export_model.py records in an archive (`extra/pipewright.json`).
struct ExportRecord {
  TraceCheck check = TraceCheck::None;
  std::int64_t outputs = 0, gradients = 0, buffers = 0;  ///< how many agreed, for TraceCheck::Equal
  std::map<std::string, std::int64_t> batchDims;         ///< the batch's dimension, by input name in the trace
  /// How what an evaluation computes of the trace differs from the model's own eval(); a clause, empty where it does not, or is not known.
  std::string evalDiffers;

  bool operator==(const ExportRecord&) const = default;
};

/// One line without a full stop: `checked against eager at export: 12 outputs, 148 gradients, 5 buffers`.
[[nodiscard]] std::string describe(const ExportRecord& record);

/// `{"check": "equal", "outputs": 12, "gradients": 148, "buffers": 5}`; the counts for `equal` only.
[[nodiscard]] std::string toJson(const ExportRecord& record);

/// The record of a model that is joined from two parts: the weaker check, the sums, the first part's batch dimensions.
[[nodiscard]] ExportRecord joinExportRecords(const ExportRecord& first, const ExportRecord& second);

}  // namespace pw
