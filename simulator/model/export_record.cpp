#include "simulator/model/export_record.h"

#include <fmt/format.h>

#include "simulator/text/counted.h"

namespace pw {
namespace {

/// Ordered: a larger value means that less is known.
int weakness(TraceCheck check) {
  switch (check) {
    case TraceCheck::Equal: return 0;
    case TraceCheck::Meta: return 1;
    case TraceCheck::None: return 2;
    case TraceCheck::Unchecked: return 3;
  }
  return 3;
}

}  // namespace

std::string describe(const ExportRecord& record) {
  switch (record.check) {
    case TraceCheck::None: return "not checked against eager (export it with resources/export_model.py to have it checked)";
    case TraceCheck::Equal:
      return fmt::format("checked against eager at export: {}, {}, {}", counted(record.outputs, "output"),
                         counted(record.gradients, "gradient"), counted(record.buffers, "buffer"));
    case TraceCheck::Unchecked: return "WARNING: exported with --unchecked, so gradients may differ from the Python model's";
    case TraceCheck::Meta: return "not checked against eager: exported without weights (--meta)";
  }
  return {};
}

std::string toJson(const ExportRecord& record) {
  if (record.check != TraceCheck::Equal) return fmt::format(R"({{"check": "{}"}})", nameOf(record.check));
  return fmt::format(R"({{"check": "equal", "outputs": {}, "gradients": {}, "buffers": {}}})", record.outputs, record.gradients,
                     record.buffers);
}

ExportRecord joinExportRecords(const ExportRecord& first, const ExportRecord& second) {
  ExportRecord both = first;
  if (weakness(second.check) > weakness(first.check)) both.check = second.check;
  both.outputs += second.outputs;
  both.gradients += second.gradients;
  both.buffers += second.buffers;
  if (both.evalDiffers.empty()) both.evalDiffers = second.evalDiffers;
  return both;
}

}  // namespace pw
