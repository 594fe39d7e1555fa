#include "app/cli/study.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <charconv>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <vector>

#include "app/cli/commands.h"
#include "app/cli/output.h"
#include "backends/host/files.h"
#include "backends/store/study_store.h"
#include "engine/planning/study_run.h"
#include "engine/processes/process.h"
#include "schedules/error.h"
#include "schedules/units.h"
#include "simulator/search/search.h"
#include "simulator/text/json_text.h"

namespace pw::cli {
namespace {

using Json = nlohmann::ordered_json;

int numberFrom(const char* variable, int otherwise) {
  const char* const text = std::getenv(variable);
  if (text == nullptr) return otherwise;
  int number = 0;
  const char* const end = text + std::string_view(text).size();
  if (const auto read = std::from_chars(text, end, number); read.ec != std::errc() || read.ptr != end)
    throw UsageError(fmt::format("{} is \"{}\", not a number; give --shard.", variable, text));
  return number;
}

/// The shard that was requested, or that of this task of a Slurm array, or the whole.
StudyShard shardOf(const StudyOptions& o) {
  if (!o.shard.empty()) return parseShard(o.shard);
  StudyShard shard;
  shard.count = numberFrom("SLURM_ARRAY_TASK_COUNT", 1);
  const int step = numberFrom("SLURM_ARRAY_TASK_STEP", 1), first = numberFrom("SLURM_ARRAY_TASK_MIN", 0);
  shard.index = (numberFrom("SLURM_ARRAY_TASK_ID", first) - first) / std::max(1, step);
  if (shard.count < 1 || shard.index < 0 || shard.index >= shard.count)
    throw UsageError("SLURM_ARRAY_TASK_ID and SLURM_ARRAY_TASK_COUNT do not name a part of the study; give --shard.");
  if (shard.count == 1 && first > 0)
    throw UsageError(fmt::format("This Slurm array has one task, number {}: give --shard for the part of the study that it is.", first));
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

std::vector<std::string> cellsOf(const StudyRow& row) {
  const auto& [p, r] = row;
  return {std::to_string(p.ranks * p.replicas),
          p.replicas == 1 ? std::to_string(p.ranks) : fmt::format("{} × {}", p.replicas, p.ranks),
          std::filesystem::path(p.model).stem().string(),
          p.cluster.empty() ? "–" : p.cluster,
          p.schedule,
          std::to_string(r.stages),
          std::to_string(p.microbatches),
          fmt::format("{}", fmt::join(wordsOf(p.recompute), ",")),
          formatDuration(r.step),
          fmt::format("{:.1f}", r.samplesPerSecond),
          r.flopUtilisation > 0 ? percent(r.flopUtilisation) : "–",
          formatSize(r.peak)};
}

std::string tableOf(const std::vector<StudyRow>& rows) {
  std::vector<std::vector<std::string>> cells{{"ranks", "pipeline", "model", "cluster", "schedule", "stages", "microbatches", "recompute",
                                               "step", "samples/s", "MFU", "peak memory"}};
  for (const StudyRow& row : rows) cells.push_back(cellsOf(row));
  return table(cells);
}

Json jsonOf(const StudyRow& row) {
  const auto& [p, r] = row;
  return {{"number", p.number},
          {"model", p.model},
          {"cluster", p.cluster},
          {"precision", p.precision},
          {"schedule", p.schedule},
          {"ranks", p.ranks},
          {"replicas", p.replicas},
          {"chunks", p.chunks},
          {"stages", r.stages},
          {"microbatches", p.microbatches},
          {"batch", r.samples},
          {"balance", nameOf(p.balance)},
          {"recompute", wordsOf(p.recompute)},
          {"memory_limit", p.memoryLimit},
          {"step_ns", r.step},
          {"makespan_ns", r.makespan},
          {"bubble_fraction", r.bubbleFraction},
          {"peak_bytes", r.peak},
          {"samples_per_second", r.samplesPerSecond},
          {"flop_utilisation", r.flopUtilisation},
          {"splits", r.splits}};
}

/// What a store holds.
void printStudy(const StudyStore& store, const std::string& path, int top, bool json) {
  const StudyCounts counts = store.counts();
  const std::int64_t all = pointsOf(store.study());
  const std::vector<StudyRow> best = store.best(top), ranks = store.bestOfRanks();
  if (json) {
    Json document{{"study", path},
                  {"points", all},
                  {"done", counts.done},
                  {"fit", counts.fitting},
                  {"too_large", counts.tooLarge},
                  {"impossible", counts.impossible},
                  {"best", Json::array()},
                  {"best_of_ranks", Json::array()}};
    for (const StudyRow& row : best) document["best"].push_back(jsonOf(row));
    for (const StudyRow& row : ranks) document["best_of_ranks"].push_back(jsonOf(row));
    print(versioned(document.dump(2, ' ', false, Json::error_handler_t::replace)) + "\n");
    return;
  }
  print(fmt::format("{}: {} of {} points; {} fit, {} need too much memory, {} are impossible\n", path, counts.done, all, counts.fitting,
                    counts.tooLarge, counts.impossible));
  if (!best.empty()) print(fmt::format("\nMost samples per second:\n{}", tableOf(best)));
  if (ranks.size() > 1) print(fmt::format("\nBest of each number of ranks:\n{}", tableOf(ranks)));
}

struct MergeOptions {
  std::string out, csv;
  std::vector<std::string> parts;
  int top = 10;
  bool json = false;
};

int runMerge(const MergeOptions& o) {
  const StudyStore first(o.parts.front());
  StudyStore whole(o.out, first.text());
  for (const std::string& part : o.parts) whole.merge(StudyStore(part));
  const CsvFile csv(o.csv, whole);
  printStudy(whole, o.out, o.top, o.json);
  const std::int64_t missing = pointsOf(whole.study()) - whole.counts().done;
  return missing == 0 ? kYes : complain(fmt::format("{} points are missing; merge the other parts, too", missing), kNo);
}

}  // namespace

int searchStudy(const StudyOptions& o) {
  const StudyShard shard = shardOf(o);
  const std::string text = readFile(o.file);
  static_cast<void>(parseStudy(text, o.file));
  const std::string path = fileOf(o.out.empty() ? std::filesystem::path(o.file).replace_extension(".db").string() : o.out, shard);
  StudyStore store(path, text);
  CsvFile csv(o.csv.empty() ? "" : fileOf(o.csv, shard), store);
  const auto show = progress("study " + std::filesystem::path(o.file).stem().string(), parseProgressStyle(o.progressStyle));
  const Interrupts interrupts;
  StudyEffort effort;
  effort.shard = shard;
  effort.threads = o.threads;
  effort.folder = std::filesystem::path(o.file).parent_path().string();
  effort.goOn = [&](std::int64_t done, std::int64_t all) {
    if (done < all) show(static_cast<int>(done), static_cast<int>(all), "");
    return interrupts.take() == 0;
  };
  effort.stored = [&](const std::vector<StudyRow>& rows) { csv.add(rows); };
  const bool complete = runStudy(store, effort);
  show(1, 1, "");
  printStudy(store, path, o.top, o.json);
  if (!complete) return complain("Interrupted: run the same command to resume", kNo);
  return store.counts().fitting > 0 ? kYes : complain("No point of the study fits", kNo);
}

Command addMerge(CLI::App& app) {
  auto* sub = app.add_subcommand("merge", "Join the results of the parts of a study");
  auto options = std::make_shared<MergeOptions>();
  sub->add_option("OUT", options->out, "File to write or add to")->required()->option_text("OUT.db");
  sub->add_option("PART", options->parts, "Files of `search --study --shard`")->required()->option_text("PART.db ...");
  sub->add_option("--csv", options->csv, "Write all rows here, too")->option_text("FILE");
  sub->add_option("--top", options->top, "Number of plans to show (default: 10)")->option_text("K");
  sub->add_flag("--json", options->json, "Print the best as JSON");
  sub->footer("\nExample:\n  pipewright merge study.db study.0-of-2.db study.1-of-2.db");
  return [options] { return runMerge(*options); };
}

}  // namespace pw::cli
