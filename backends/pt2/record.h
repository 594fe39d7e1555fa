#pragma once

#include <string>

#include "simulator/model/export_record.h"
#include "simulator/model/model_graph.h"

namespace pw {

/// What the exporter recorded in a model's archives, joined where there are several; TraceCheck::None for archives of another exporter and
/// chains of layers. Throws UsageError where an archive is unreadable, or its record is damaged or of a newer format.
[[nodiscard]] ExportRecord readExportRecord(const ModelGraph& graph);

namespace pt2 {

/// One record's text. `where` names the archive and entry.
[[nodiscard]] ExportRecord parseExportRecord(const std::string& text, const std::string& where);

}  // namespace pt2
}  // namespace pw
