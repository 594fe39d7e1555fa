#include <algorithm>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <CLI/App.hpp>

#include "app/cli/commands.h"
#include "app/cli/options/job.h"
#include "app/cli/options/shared.h"
#include "app/cli/text/output.h"
#include "backends/host/files.h"
#include "backends/traces/formats.h"
#include "engine/planning/inputs/job_source.h"
#include "schedules/error.h"
#include "schedules/units.h"
#include "simulator/costs/megatron_log.h"
#include "simulator/job/job_json.h"
#include "simulator/job/replay_job.h"

namespace pw::cli {
namespace {

struct ImportOptions {
  std::vector<std::string> files;
  std::string steps, patterns, out;
  ProgressStyle progressStyle = ProgressStyle::Automatic;
};

/// Whether a text begins as one line of a log does, `[2025-01-31 12:00:00] …`: an array of a trace's events holds objects.
bool beginsWithStamp(std::string_view text) {
  const std::size_t open = std::min(text.find_first_not_of(" \t\r\n"), text.size());
  const std::size_t next = std::min(text.find_first_not_of(" \t\r\n", open + 1), text.size());
  return next < text.size() && text[open] == '[' && text[next] != '{' && text[next] != ']';
}

/// Whether it is a text with layers: a graph of PipeDream's profiler or a log of Megatron-LM.
bool hasLayers(const std::string& path) {
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored)) return false;
  const auto format = traceFormatOf(path);
  return !format || (*format == TraceFormat::Chrome && beginsWithStamp(headOf(path)));
}

/// Why the text has no layers.
std::string whyNoLayers(const std::string& text) {
  if (text.find("time (ms) |") != std::string::npos)
    return "has the times of one rank alone (DeepSpeed's wall_clock_breakdown, or timers of an old Megatron-LM), which do not tell stages "
           "apart; record all ranks with torch.profiler or Nsight Systems, or log Megatron-LM with --timing-log-level 2 "
           "--timing-log-option "
           "all";
  return fmt::format("is {}; give a trace ({}), a graph that PipeDream's profiler wrote, or a log of Megatron-LM with its timers",
                     text.empty() ? "empty" : "none of what is imported", fmt::join(traceEndings(), " "));
}

int importLayers(const ImportOptions& o) {
  if (!o.steps.empty()) throw UsageError("--steps are of traces; a table of layers has none, omit them");
  if (!o.patterns.empty()) throw UsageError("--patterns is for names in traces; a table of layers has none, omit it");
  const std::string& source = o.files.front();
  const std::string measured = readFile(source);
  if (!isMegatronLog(measured) && measured.find("forward_compute_time") == std::string::npos)
    throw UsageError(fmt::format("{} {}", source, whyNoLayers(measured)));
  const LayerTable layers = parseMeasuredLayers(measured, source);
  const std::string text = o.out.ends_with(".csv") ? toCsv(layers) : toJson(layers);
  if (o.out.empty()) {
    print(text);
    return kYes;
  }
  Layer all{};
  for (const Layer& layer : layers.layers) {
    all.forward += layer.forward;
    all.input += layer.input + layer.weight;
    all.parameters += layer.parameters;
  }
  writeFile(o.out, text);
  print(fmt::format("{}: {}, {}, forward {}, backward {}, parameters {}\n", o.out, layers.name,
                    counted(static_cast<std::int64_t>(layers.layers.size()), "layer"), formatDuration(all.forward),
                    formatDuration(all.input), formatSize(all.parameters)));
  return kYes;
}

/// Usual times by stage, rank and kind; of a stage that takes longer for some microbatches, or in some replicas, the range.
std::string timesTable(const JobShape& shape, const TypicalTimes& typical) {
  struct Range {
    Ns least = 0, most = 0, spread = 0, message = 0;
  };
  std::vector<std::pair<const JobShape::Slot*, Range>> ranges;
  for (std::size_t i = 0; i < typical.times.actions.size(); ++i) {
    const std::size_t s = i % shape.slotsOfCopy();
    const JobShape::Slot& slot = shape.copySlots[s];
    const Ns time = typical.times.actions[i];
    const auto same = std::ranges::find_if(
        ranges, [&](const auto& r) { return r.first->action.stage == slot.action.stage && r.first->action.kind == slot.action.kind; });
    if (same == ranges.end()) {
      ranges.push_back({&slot, {time, time, typical.spread[s], typical.times.messages[s]}});
      continue;
    }
    Range& range = same->second;
    range = {std::min(range.least, time), std::max(range.most, time), std::max(range.spread, typical.spread[s]),
             std::max(range.message, typical.times.messages[s])};
  }
  constexpr std::size_t kMostRows = 32;
  std::vector<std::vector<std::string>> rows{{"stage", "rank", "kind", "shortest", "longest", "spread", "longest message"}};
  for (std::size_t i = 0; i < std::min(kMostRows, ranges.size()); ++i) {
    const auto& [slot, range] = ranges[i];
    rows.push_back({fmt::format("{}", slot->action.stage.value), fmt::format("{}", slot->rank.value),
                    std::string(letters(slot->action.kind)), formatDuration(range.least), formatDuration(range.most),
                    "± " + formatDuration(range.spread), slot->crosses ? formatDuration(range.message) : "–"});
  }
  return table(rows) + (ranges.size() > kMostRows ? fmt::format("… and {} more\n", ranges.size() - kMostRows) : "");
}

int importJob(const ImportOptions& o) {
  if (o.out.ends_with(".csv")) throw UsageError("a job is written as JSON; give --out a name that ends in .json");
  const Job job = *loadJob({.paths = o.files, .steps = o.steps, .patterns = o.patterns}, byteProgress("import", o.progressStyle));
  const std::string text = toJson(job);
  if (o.out.empty()) {
    print(text);
    return kYes;
  }
  writeFile(o.out, text);
  const JobShape shape(job);
  std::string said = fmt::format("{}: {}: {}, {}\n", o.out, job.name, shapeText(job), stepsText(job));
  said += "\n" + timesTable(shape, typicalTimes(shape, job));
  for (const std::string& note : job.notes) said += "note: " + note + "\n";
  print(said);
  return kYes;
}

int runImport(const ImportOptions& o) { return o.files.size() == 1 && hasLayers(o.files.front()) ? importLayers(o) : importJob(o); }

}  // namespace

Command addImport(CLI::App& app) {
  auto options = std::make_shared<ImportOptions>();
  CLI::App* command =
      app.add_subcommand("import", "Make a job of another tool's traces, or a layer table of PipeDream's graph or Megatron-LM's timers");
  command
      ->add_option("TRACE", options->files,
                   "Traces of one job: files or folders; or a measured graph of PipeDream's profiler; or output of Megatron-LM with "
                   "--timing-log-level 2 --timing-log-option all")
      ->required()
      ->option_text(" ");
  declareSteps(*command, options->steps);
  declarePatterns(*command, options->patterns);
  command->add_option("--out", options->out, "Job (JSON) or layer table (JSON, or CSV if it ends in .csv) to write (default: on stdout)")
      ->option_text("F.json|F.csv");
  addProgress(*command, options->progressStyle);
  command->footer(
      "Examples:\n"
      "  pipewright import timeline.json.gz --out job.json          then: pipewright explain job.json\n"
      "  pipewright import rank0.json rank1.json --out job.json     then: pipewright simulate --costs-from job.json --schedule zbv\n"
      "  pipewright import resnet50.graph.txt --out layers.json     then: pipewright plan --layers layers.json --ranks 4\n\n"
      "A job is the schedule and placement that the trace shows, and the times of every step. Layers of a graph are its nodes in a\n"
      "topological order, named node12.Conv2d; where it branches, every value that a later layer reads crosses a cut, each once.\n"
      "Each half of a backward counts as one of its parts.");
  return [options] { return runImport(*options); };
}

}  // namespace pw::cli
