#include "backends/resources/file_kind.h"

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "backends/dumps/read.h"
#include "backends/host/files.h"
#include "backends/host/paths.h"
#include "backends/store/store_kind.h"
#include "backends/traces/formats.h"
#include "schedules/csv.h"
#include "schedules/error.h"
#include "simulator/costs/layer_table.h"
#include "simulator/costs/megatron_log.h"

namespace pw {
namespace {

struct Facts {
  std::string_view name, use;  ///< "%" stands for the path
};

Facts factsOf(FileKind kind) {
  constexpr std::string_view kUseOfJob =
      "predict its step with `pipewright simulate --costs-from %`, or plan it with `pipewright search --costs-from % --ranks R --out "
      "plan.json`";
  switch (kind) {
    case FileKind::Unknown: return {"an unknown file", "give another file"};
    case FileKind::Model: return {"a model", "plan it with `pipewright plan % --ranks R --out plan.json`"};
    case FileKind::LayerTable: return {"a layer table", "plan it with `pipewright plan --layers % --ranks R --out plan.json`"};
    case FileKind::MeasuredLayers: return {"a record of layers", "make a table of them with `pipewright import % --out layers.json`"};
    case FileKind::Plan: return {"a plan", "predict its step with `pipewright simulate %`, or run it with `pipewright run %`"};
    case FileKind::Profile: return {"a profile", "plan its model with `pipewright plan MODEL.pt2 --profile %`"};
    case FileKind::Job: return {"a job", kUseOfJob};
    case FileKind::Trace: return {"a trace", kUseOfJob};
    case FileKind::Schedule: return {"a schedule", "predict its step with `pipewright simulate --csv %`"};
    case FileKind::Problem: return {"a problem file", "make its schedule with `pipewright simulate --costs % --schedule auto`"};
    case FileKind::Cluster: return {"a cluster", "plan a model for it with `pipewright plan MODEL.pt2 --cluster %`"};
    case FileKind::Study: return {"a study", "start it with `pipewright search --study %`"};
    case FileKind::StudyResults: return {"the results of a study", "print them with `pipewright search --study STUDY.json --out %`"};
    case FileKind::RunStore: return {"a run store", "list its runs with `pipewright runs --store %`"};
    case FileKind::Project: return {"a project of the app", "open it with `pipewright-gui %`"};
    case FileKind::Dump: return {"a dump of a job that hangs", "explain it with `pipewright hang %`"};
  }
  return {};
}

constexpr std::string_view kBlanks = " \t\r\n\xEF\xBB\xBF";  // and the mark of UTF-8

bool has(std::string_view text, std::string_view word) { return text.find(word) != std::string_view::npos; }

/// From where each value of a member of this name begins, in the beginning of a JSON text.
std::vector<std::string_view> valuesOf(std::string_view head, std::string_view name) {
  std::vector<std::string_view> values;
  for (std::size_t at = head.find(name); at != std::string_view::npos; at = head.find(name, at + name.size())) {
    const std::size_t colon = head.find_first_not_of(kBlanks, at + name.size());
    if (colon == std::string_view::npos || head[colon] != ':') continue;
    const std::size_t value = head.find_first_not_of(kBlanks, colon + 1);
    if (value != std::string_view::npos) values.push_back(head.substr(value));
  }
  return values;
}

/// Of our formats, which name themselves; a plan has a profile within, which comes later.
FileKind kindByFormat(std::string_view head) {
  constexpr std::array<std::pair<std::string_view, FileKind>, 3> kFormats{
      {{"\"pipewright-plan\"", FileKind::Plan}, {"\"pipewright-profile\"", FileKind::Profile}, {"\"pipewright job\"", FileKind::Job}}};
  for (const std::string_view value : valuesOf(head, "\"format\"")) {
    for (const auto& [format, kind] : kFormats) {
      if (value.starts_with(format)) return kind;
    }
  }
  return FileKind::Unknown;
}

bool hasList(std::string_view head, std::string_view name) {
  return std::ranges::any_of(valuesOf(head, name), [](std::string_view value) { return value.starts_with('['); });
}

/// Tables, problems and clusters are people's, who may add members of their own: a kind is certain by what it requires.
FileKind kindOfJson(std::string_view head, const std::string& path) {
  using enum FileKind;
  if (has(head, "\"pipewright_project\"")) return Project;  // with profiles and plans within
  if (const FileKind own = kindByFormat(head); own != Unknown) return own;
  if (isCertainlyTrace(path)) return Trace;
  if (holdDumps(path)) return Dump;
  const bool times = has(head, "\"forward_ns\""), shape = has(head, "\"ranks\"") && has(head, "\"microbatches\"");
  if (times && hasList(head, "\"layers\"")) return LayerTable;
  if (times) return shape ? Problem : Unknown;
  if (has(head, "\"device\"") && has(head, "\"peak_flops\"")) return Cluster;
  if (shape && has(head, "\"version\"") && has(head, "\"model\"")) return Study;
  return Unknown;
}

FileKind kindOfFile(const std::string& path) {
  using enum FileKind;
  constexpr std::size_t kEnough = 65536;
  const std::string bytes = headOf(path, kEnough);
  if (bytes.starts_with("SQLite format 3")) {
    if (isCertainlyTrace(path)) return Trace;
    switch (storeKindOf(path)) {
      case StoreKind::Runs: return RunStore;
      case StoreKind::Study: return StudyResults;
      case StoreKind::Neither: return Unknown;
    }
  }
  if (bytes.starts_with("PK\x03\x04")) return Model;
  const std::string head = bytes.starts_with("\x1f\x8b") ? headOfTrace(path) : bytes;
  const std::size_t mark = head.find_first_not_of(kBlanks);
  if (mark == std::string::npos) return Unknown;
  if (isMegatronLog(head)) return MeasuredLayers;
  if (head[mark] == '{' || head[mark] == '[') return kindOfJson(head, path);
  if (isCertainlyTrace(path)) return Trace;
  if (holdDumps(path)) return Dump;
  if (has(head, "forward_ns")) return LayerTable;
  if (has(head, "forward_compute_time")) return MeasuredLayers;
  return beginsAsCsv(head) ? Schedule : Unknown;
}

[[noreturn]] void refuse(const std::string& path, FileKind is, const std::string& wanted) {
  throw UsageError(fmt::format("{} is {}, not {}; {}", path, nameOf(is), wanted, useOf(is, path)));
}

FileKind modelKind(const std::string& path) {
  using enum FileKind;
  const FileKind kind = fileKindOf(path);
  if (kind == Model || kind == LayerTable || kind == Job || kind == Trace) return kind;
  if (kind != Unknown) refuse(path, kind, "a model");
  if (isFolder(path))
    throw UsageError(
        fmt::format("{} is a folder without traces ({}); give the archives of a model by their names, or the folder of a job's traces",
                    path, fmt::join(traceEndings(kFolderFormats), " ")));
  return isLayerTableName(path) ? LayerTable : Model;
}

}  // namespace

std::string_view nameOf(FileKind kind) { return factsOf(kind).name; }

std::string useOf(FileKind kind, std::string_view path) {
  std::string use(factsOf(kind).use);
  for (std::size_t at = use.find('%'); at != std::string::npos; at = use.find('%', at + path.size())) use.replace(at, 1, path);
  return use;
}

FileKind fileKindOf(const std::string& path) {
  if (!isFolder(path)) return kindOfFile(path);
  if (holdDumps(path)) return FileKind::Dump;
  return isCertainlyTrace(path) ? FileKind::Trace : FileKind::Unknown;
}

void requireKind(const std::string& path, std::initializer_list<FileKind> wanted) {
  const FileKind kind = fileKindOf(path);
  if (kind == FileKind::Unknown || std::ranges::find(wanted, kind) != wanted.end()) return;
  std::string names;
  for (const FileKind* at = wanted.begin(); at != wanted.end(); ++at)
    names += fmt::format("{}{}", at == wanted.begin() ? "" : at + 1 == wanted.end() ? " or " : ", ", nameOf(*at));
  refuse(path, kind, names);
}

std::string readAs(FileKind wanted, const std::string& path) {
  requireKind(path, {wanted});
  return readFile(path);
}

FileKind modelKindOf(const std::vector<std::string>& paths) {
  if (paths.size() == 1) return modelKind(paths.front());
  for (const std::string& path : paths) {
    const FileKind kind = modelKind(path);
    if (kind == FileKind::Trace)
      throw UsageError(
          fmt::format("{} is a trace, and several files are the archives of a model's stages; give the folder of all traces", path));
    if (kind == FileKind::Job)
      throw UsageError(fmt::format("{} is a job, and several files are the archives of a model's stages; give the job alone", path));
  }
  return FileKind::Model;
}

}  // namespace pw
