#include "app/cli/study.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <vector>

#include "app/cli/commands.h"
#include "app/cli/options/numbers.h"
#include "app/cli/text/output.h"
#include "backends/host/files.h"
#include "backends/resources/file_kind.h"
#include "backends/store/study_store.h"
#include "engine/planning/study_run.h"
#include "engine/processes/process.h"
#include "schedules/error.h"
#include "schedules/units.h"
#include "simulator/search/search.h"
#include "simulator/text/json_text.h"
#include "simulator/text/number_text.h"
#include "simulator/text/three_digits.h"

namespace pw::cli {
namespace {

using Json = nlohmann::ordered_json;

int numberFrom(const char* variable, int otherwise) {
  const char* const text = std::getenv(variable);
  if (text == nullptr) return otherwise;
  if (const auto number = numberOf<int>(text)) return *number;
  throw UsageError(fmt::format("{} is \"{}\", not a number; give --shard.", variable, text));
}

/// The shard that was requested, or that of this task of a Slurm array, or the whole.
StudyShard shardOf(const StudyOptions& o) {
  if (!o.shard.empty()) return parseShard(o.shard);
  StudyShard shard;
  shard.count = numberFrom("SLURM_ARRAY_TASK_COUNT", 1);
  const int step = numberFrom("SLURM_ARRAY_TASK_STEP", 1), first = numberFrom("SLURM_ARRAY_TASK_MIN", 0);
  if (shard.count > 1 && std::getenv("SLURM_ARRAY_TASK_ID") == nullptr)
    throw UsageError("SLURM_ARRAY_TASK_COUNT is set without SLURM_ARRAY_TASK_ID; give --shard.");
  shard.index = (numberFrom("SLURM_ARRAY_TASK_ID", first) - first) / std::max(1, step);
  if (shard.count < 1 || shard.index < 0 || shard.index >= shard.count)
    throw UsageError("SLURM_ARRAY_TASK_ID and SLURM_ARRAY_TASK_COUNT do not name a part of the study; give --shard.");
  if (shard.count == 1 && std::getenv("SLURM_ARRAY_TASK_ID") != nullptr)
    throw UsageError(
        fmt::format("This Slurm array has one task, number {}: give --shard for the part of the study that it is, or 0/1.", first));
  if (shard.count > 1) warn(fmt::format("part {} of {}, as this is a task of a Slurm array", shard.index, shard.count));
  return shard;
}

/// `study.db`, of a shard `study.2-of-8.db`: each process has a file of its own, as SQLite's locks do not work on all shared file systems.
std::string fileOf(const std::string& path, const StudyShard& shard) {
  if (shard.count == 1) return path;
  const std::filesystem::path whole(path);
  return (whole.parent_path() / fmt::format("{}.{}-of-{}{}", whole.stem().string(), shard.index, shard.count, whole.extension().string()))
      .string();
}

/// A table that is written beside the store, from its rows at first.
class CsvFile {
 public:
  CsvFile(const std::string& path, const StudyStore& store) : path_(path) {
    if (path.empty()) return;
    file_.open(path, std::ios::binary | std::ios::trunc);
    file_ << studyCsvHeader();
    store.forEach([&](const StudyRow& row) { file_ << studyCsvLine(row); });
    check();
  }
  void add(const std::vector<StudyRow>& rows) {
    if (path_.empty()) return;
    for (const StudyRow& row : rows) file_ << studyCsvLine(row);
    check();
  }

 private:
  void check() {
    if (!file_.flush()) throw Error(fmt::format("cannot write {}; check its folder and the free space on its disk", path_));
  }

  std::string path_;
  std::ofstream file_;
};

std::string valueText(const StudyValue& value) {
  if (const auto* text = std::get_if<std::string>(&value)) return text->empty() ? "–" : *text;
  if (const auto* number = std::get_if<std::int64_t>(&value)) return std::to_string(*number);
  return fmt::format("{:.6g}", std::get<double>(value));
}

/// `memory limit` for `memory_limit`.
std::string withSpaces(std::string_view name) {
  std::string words(name);
  std::ranges::replace(words, '_', ' ');
  return words;
}

/// The names of the point's figures that are not the same in all rows of the store, whichever of them are shown.
std::vector<std::string_view> varied(const StudyStore& store) {
  std::vector<StudyField> first;
  std::vector<bool> varies;
  store.forEach([&](const StudyRow& row) {
    const std::vector<StudyField> fields = fieldsOf(row);
    if (first.empty()) first = fields, varies.assign(fields.size(), false);
    for (std::size_t f = 0; f < fields.size(); ++f) varies[f] = varies[f] || fields[f].value != first[f].value;
  });
  std::vector<std::string_view> names;
  for (std::size_t f = 0; f < first.size(); ++f) {
    if (varies[f] && first[f].ofPoint && first[f].name != "number") names.push_back(first[f].name);
  }
  return names;
}

/// These of the rows' figures, and their results.
std::string rowTable(const std::vector<StudyRow>& rows, const std::vector<std::string_view>& names) {
  std::vector<std::vector<std::string>> cells(1);
  for (const std::string_view name : names) cells.front().push_back(withSpaces(name));
  for (const char* const result : {"stages", "step", "samples/s", "MFU", "peak memory"}) cells.front().emplace_back(result);
  for (const StudyRow& row : rows) {
    std::vector<std::string>& line = cells.emplace_back();
    for (const StudyField& field : fieldsOf(row)) {
      if (std::ranges::find(names, field.name) == names.end()) continue;
      line.push_back(field.name == "model"          ? std::filesystem::path(row.point.model).stem().string()
                     : field.name == "memory_limit" ? (row.point.memoryLimit > 0 ? formatSize(row.point.memoryLimit) : "–")
                     : field.name == "zero1"        ? (row.point.zero1 ? "yes" : "no")
                                                    : valueText(field.value));
    }
    const StudyResult& r = row.result;
    line.insert(line.end(), {std::to_string(r.stages), formatDuration(r.step), threeDigits(r.samplesPerSecond),
                             r.flopUtilisation > 0 ? percent(r.flopUtilisation) : "–", formatSize(r.peak)});
  }
  return table(cells);
}

Json rowJson(const StudyRow& row) {
  Json json;
  for (const StudyField& field : fieldsOf(row)) {
    if (field.name != "problem") std::visit([&](const auto& value) { json[field.name] = value; }, field.value);
  }
  return json;
}

/// What a store holds.
void printStudy(const StudyStore& store, const std::string& path, int top, bool json) {
  const StudyCounts counts = store.counts();
  const std::int64_t all = pointsOf(store.study());
  const std::vector<StudyRow> best = store.best(top), ranks = store.bestOfRanks();
  constexpr int kProblems = 3;
  const auto problems = store.problems(kProblems);
  if (json) {
    Json document{{"study", path},
                  {"points", all},
                  {"done", counts.done},
                  {"fit", counts.fitting},
                  {"too_large", counts.tooLarge},
                  {"impossible", counts.impossible},
                  {"problems", Json::array()},
                  {"best", Json::array()},
                  {"best_of_ranks", Json::array()}};
    for (const auto& [problem, times] : problems) document["problems"].push_back({{"problem", problem}, {"points", times}});
    for (const StudyRow& row : best) document["best"].push_back(rowJson(row));
    for (const StudyRow& row : ranks) document["best_of_ranks"].push_back(rowJson(row));
    print(versioned(document.dump(2, ' ', false, Json::error_handler_t::replace)) + "\n");
    return;
  }
  print(fmt::format("{}: {} of {} points; {} fit, {} need too much memory, {} are impossible\n", path, counts.done, all, counts.fitting,
                    counts.tooLarge, counts.impossible));
  for (const auto& [problem, times] : problems) print(fmt::format("  {} × {}\n", times, problem));
  if (best.empty()) return;
  const std::vector<std::string_view> names = varied(store);
  print(fmt::format("\nMost samples per second, predicted:\n{}", rowTable(best, names)));
  if (ranks.size() > 1) print(fmt::format("\nBest of each number of ranks:\n{}", rowTable(ranks, names)));
}

struct MergeOptions {
  std::string out, csv;
  std::vector<std::string> parts;
  int top = 10;
  bool json = false;
};

/// Throws UsageError where the CSV would take the place of one of these.
void requireOtherFile(const std::string& csv, const std::vector<std::string>& files) {
  std::error_code ignored;
  for (const std::string& file : files) {
    if (!csv.empty() && (csv == file || std::filesystem::equivalent(csv, file, ignored)))
      throw UsageError(fmt::format("--csv {} would overwrite {}; give another file.", csv, file));
  }
}

int runMerge(const MergeOptions& o) {
  std::vector<std::string> files = o.parts;
  files.push_back(o.out);
  requireOtherFile(o.csv, files);
  const StudyStore first(o.parts.front());
  std::error_code ignored;
  std::vector<std::string> parts;  // without the file that they are merged into
  for (const std::string& part : o.parts) {
    first.requireSame(StudyStore(part));
    if (!std::filesystem::equivalent(part, o.out, ignored)) parts.push_back(part);
  }
  StudyStore whole(o.out, first.text(), first.inputs());
  for (const std::string& part : parts) whole.merge(StudyStore(part));
  const CsvFile csv(o.csv, whole);
  printStudy(whole, o.out, o.top, o.json);
  const std::int64_t missing = pointsOf(whole.study()) - whole.counts().done;
  return missing == 0 ? kYes : complain(fmt::format("{} points are missing; merge the other parts, too", missing), kNo);
}

}  // namespace

int searchStudy(const StudyOptions& o) {
  const StudyShard shard = shardOf(o);
  const std::string text = readAs(FileKind::Study, o.file);
  const Study study = parseStudy(text, o.file);
  const std::string path = fileOf(o.out.empty() ? std::filesystem::path(o.file).replace_extension(".db").string() : o.out, shard);
  const std::string csvPath = o.csv.empty() ? "" : fileOf(o.csv, shard), folder = std::filesystem::path(o.file).parent_path().string();
  requireOtherFile(csvPath, {o.file, path});
  StudyStore store(path, text, studyInputs(study, folder));
  CsvFile csv(csvPath, store);
  const auto show = progress("study " + std::filesystem::path(o.file).stem().string(), o.progressStyle);
  const Interrupts interrupts;
  StudyEffort effort;
  effort.shard = shard;
  effort.threads = o.threads;
  effort.folder = folder;
  effort.shouldContinue = [&](std::int64_t done, std::int64_t all) {
    if (done < all) show(static_cast<int>(done), static_cast<int>(all), "");
    return interrupts.take() == 0;
  };
  effort.stored = [&](const std::vector<StudyRow>& rows) { csv.add(rows); };
  const bool complete = runStudy(store, effort);
  show(1, 1, "");
  printStudy(store, path, o.top, o.json);
  if (!complete) return complain("Interrupted: run the same command to resume", kNo);
  if (shard.count > 1) return kYes;  // of a part nothing need fit
  return store.counts().fitting > 0 ? kYes : complain("No point of the study fits", kNo);
}

Command addMerge(CLI::App& app) {
  auto* sub = app.add_subcommand("merge", "Join the results of the parts of a study");
  auto options = std::make_shared<MergeOptions>();
  sub->add_option("OUT", options->out, "File to write or add to")->required()->option_text("OUT.db");
  sub->add_option("PART", options->parts, "Files of `search --study --shard`")->required()->option_text("PART.db ...");
  sub->add_option("--csv", options->csv, "Write all rows here, too")->option_text("FILE");
  sub->add_option("--top", options->top, "Number of plans to show (default: 10)")->check(wholeFrom(1, 1 << 20))->option_text("K");
  sub->add_flag("--json", options->json, "Print the best as JSON");
  sub->footer("\nExample:\n  pipewright merge study.db study.0-of-2.db study.1-of-2.db");
  return [options] { return runMerge(*options); };
}

}  // namespace pw::cli
