#include "backends/pt2/record.h"

#include <fmt/format.h>
#include <cstddef>
#include <nlohmann/json.hpp>

#include "backends/pt2/json.h"
#include "backends/pt2/zip.h"
#include "schedules/error.h"
#include "simulator/model/graph_facts.h"

namespace pw::pt2 {
namespace {

constexpr std::int64_t kRecordFormat = 1;
constexpr const char* kRecordEntry = "extra/pipewright.json";  // torch.export.load offers it as an extra file

TraceCheck asCheck(const std::string& text, const std::string& where) {
  if (const auto check = valueNamed<TraceCheck>(text)) return *check;
  damaged(where, fmt::format("names an unknown check `{}`", text));
}

std::int64_t countOf(const Json& record, const char* key, const std::string& where) {
  const std::int64_t count = asInteger(member(record, key, where), key, where);
  if (count < 0) damaged(where, fmt::format("has a negative number in `{}`", key));
  return count;
}

}  // namespace

ExportRecord parseExportRecord(const std::string& text, const std::string& where) {
  const Json json = parseJson(text, where);
  const std::int64_t format = asInteger(member(json, "format", where), "format", where);
  if (format != kRecordFormat) {
    throw UsageError(
        fmt::format("{} has format {}, this version reads {}; export the model again with this version's resources/export_model.py", where,
                    format, kRecordFormat));
  }
  ExportRecord record;
  record.check = asCheck(asText(member(json, "check", where), "check", where), where);
  if (record.check == TraceCheck::Equal) {
    record.outputs = countOf(json, "outputs", where);
    record.gradients = countOf(json, "gradients", where);
    record.buffers = countOf(json, "buffers", where);
  }
  if (const auto differs = json.find("eval_differs"); differs != json.end()) record.evalDiffers = asText(*differs, "eval_differs", where);
  const Json& dims = asObject(member(json, "batch_dims", where), "batch_dims", where);
  for (const auto& [input, dim] : dims.items()) {
    record.batchDims[input] = asInteger(dim, "batch_dims", where);
  }
  return record;
}

}  // namespace pw::pt2

namespace pw {

ExportRecord readExportRecord(const ModelGraph& graph) {
  ExportRecord all;
  const std::vector<std::string>& archives = graph.files;
  if (isLayerChain(graph)) return all;
  for (std::size_t i = 0; i < archives.size(); ++i) {
    const auto texts = pt2::readEntries(pt2::openArchive(archives[i]), {pt2::kRecordEntry});
    const auto text = texts.find(pt2::kRecordEntry);
    const ExportRecord one =
        text == texts.end() ? ExportRecord() : pt2::parseExportRecord(text->second, fmt::format("{}: {}", archives[i], pt2::kRecordEntry));
    all = i == 0 ? one : joinExportRecords(all, one);
  }
  return all;
}

}  // namespace pw
