#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <CLI/App.hpp>
#include <CLI/Validators.hpp>

#include "app/cli/commands.h"
#include "app/cli/options/numbers.h"
#include "app/cli/options/own_ranks.h"
#include "app/cli/text/not_counted.h"
#include "app/cli/text/output.h"
#include "app/cli/text/split.h"
#include "engine/planning/inspection.h"
#include "engine/run/trial_verdict.h"
#include "schedules/units.h"
#include "simulator/model/batch.h"
#include "simulator/report/split_report.h"
#include "simulator/report/split_verdict.h"

namespace pw::cli {
namespace {

struct InspectArguments {
  InspectOptions look;
  bool json = false;
};

constexpr int kDefaultDepth = 3;  ///< of a transformer: the layers, their attention and MLP, and the matrices in these
constexpr int kPage = 20;         ///< split points listed if no depth was requested

/// `950`, `12.3 k`, `1.50 M`: three significant digits, thousands by letter.
std::string formatCount(double count) {
  constexpr std::array<const char*, 7> kLetters{"", " k", " M", " G", " T", " P", " E"};
  std::size_t letter = 0;
  while (count >= 999.5 && letter + 1 < kLetters.size()) {
    count /= 1000;
    ++letter;
  }
  const int decimals = letter == 0 || count >= 99.95 ? 0 : count >= 9.995 ? 1 : 2;
  return fmt::format("{:.{}f}{}", count, decimals, kLetters[letter]);
}

std::string orBlank(double count, const std::string& text) { return count > 0 ? text : "–"; }

/// `loss (cross_entropy_loss)  float32 []`, where `key` is another name than the trace's.
std::string valueLine(const ModelGraph& graph, ValueId id, const std::string& key) {
  const Value& value = graph.value(id);
  const std::string shown = key.empty() || key == value.name ? value.name : fmt::format("{} ({})", key, value.name);
  if (!value.tensor) return shown.empty() ? "none" : shown;
  return fmt::format("{}  {} [{}]", shown, nameOf(value.tensor->dtype), fmt::join(dimensionLabels(graph, *value.tensor), ", "));
}

/// `, in dimension 1 of x and 0 of mask`; empty where it is dimension 0 of all inputs that have one.
std::string placeOfBatch(const ModelGraph& graph) {
  std::vector<std::string> places;
  bool elsewhere = false;
  for (const ValueId id : graph.inputs) {
    const auto axis = batchAxis(graph, id);
    if (!axis) continue;
    elsewhere = elsewhere || axis->dimension > 0;
    places.push_back(fmt::format("{} of {}", axis->dimension, graph.value(id).name));
  }
  return elsewhere ? fmt::format(", in dimension {}", fmt::join(places, " and ")) : "";
}

std::string headText(const Inspection& shown, const std::vector<std::string>& files) {
  const ModelGraph& graph = shown.graph;
  std::string text;
  const auto line = [&](std::string_view what, std::string_view value) { text += fmt::format("{:<9}{}\n", what, value); };
  line("model", fmt::format("{}", fmt::join(files, "\n         ")));
  for (std::size_t i = 0; i < graph.inputs.size(); ++i) {
    line(i > 0 ? "" : graph.inputs.size() == 1 ? "input" : "inputs", valueLine(graph, graph.inputs[i], ""));
  }
  for (std::size_t i = 0; i < graph.outputs.size(); ++i) {
    line(i > 0 ? "" : graph.outputs.size() == 1 ? "output" : "outputs", valueLine(graph, graph.outputs[i], graph.outputNames[i]));
  }
  const std::string place = placeOfBatch(graph);
  line("batch", batchSymbol(graph).empty() ? fmt::format("fixed at {}{}", shown.microbatch, place)
                                           : fmt::format("any{}; the numbers are for a microbatch of {}", place, shown.microbatch));
  line("weights", graph.parameters.empty() ? "none: the model has no parameters"
                  : hasWeights(graph)      ? "in the file"
                                           : "not in the file (exported on the meta device)");
  line("trace", describe(shown.exported));
  bool first = true;
  for (const auto& [alias, held] : shown.tied) {
    line(first ? "tied" : "", alias + " = " + held);
    first = false;
  }
  return text;
}

std::string treeText(const std::vector<ModuleSummary>& modules, int depth) {
  std::vector<std::vector<std::string>> rows{{"module", "class", "ops", "params", "param size", "FLOPs fwd", "activations"}};
  for (const ModuleSummary& module : modules) {
    if (module.depth > depth) continue;
    const auto parameters = static_cast<double>(module.parameters);
    rows.push_back({std::string(2 * static_cast<std::size_t>(module.depth), ' ') + module.label,
                    module.className.substr(module.className.rfind('.') + 1), fmt::format("{}", module.operators),
                    orBlank(parameters, formatCount(parameters)),
                    orBlank(static_cast<double>(module.parameterBytes), formatSize(module.parameterBytes)),
                    orBlank(module.forwardFlops, formatCount(module.forwardFlops)),
                    orBlank(static_cast<double>(module.activationBytes), formatSize(module.activationBytes))});
  }
  return table(rows);
}

/// Whether a split point belongs into a list of modules down to `depth`: marks of the author always do.
bool isShown(const SplitPoint& point, const std::vector<ModuleSummary>& modules, int depth) {
  if (point.name.rfind("pipe_split", 0) == 0) return true;
  const std::string path = point.name.substr(0, point.name.find(':'));
  return std::any_of(modules.begin(), modules.end(), [&](const ModuleSummary& m) { return m.path == path && m.depth <= depth; });
}

/// The deepest level at which a list of split points still fits on a page; a level deep at least.
int splitDepth(const Inspection& shown) {
  int depth = 1;
  const auto listed = [&](int d) {
    return std::count_if(shown.splits.begin(), shown.splits.end(), [&](const SplitPoint& p) { return isShown(p, shown.modules, d); });
  };
  while (depth < kDefaultDepth && listed(depth + 1) <= kPage) ++depth;
  return depth;
}

std::string splitText(const Inspection& shown, int depth) {
  std::vector<std::vector<std::string>> rows{{"split before", "crossing", "values"}};
  for (const SplitPoint& point : shown.splits) {
    if (isShown(point, shown.modules, depth)) rows.push_back({point.name, formatSize(point.crossing), fmt::format("{}", point.values)});
  }
  if (shown.splits.empty()) return "It cannot be split at a module boundary: no module ends before another begins.\n";
  const std::size_t listed = rows.size() - 1;
  std::string text = fmt::format("It can be split at {}", counted(static_cast<std::int64_t>(shown.splits.size()), "place"));
  if (listed < shown.splits.size()) text += fmt::format("; {} of them down to depth {} (--json has all)", listed, depth);
  return text + (listed > 0 ? ":\n" + table(rows) : ".\n");
}

std::string reportText(const Inspection& shown) {
  const bool blocked = std::ranges::find(shown.findings, FindingKind::Unsupported, &Finding::kind) != shown.findings.end();
  std::string text = fmt::format("Can be split: {}.\n", blocked                ? "no, it has operators that cannot be run here"
                                                        : shown.splits.empty() ? "no"
                                                                               : "yes");
  text += fmt::format("Can be microbatched: {}.\n",
                      batchSymbol(shown.graph).empty() ? fmt::format("in pieces of {} only", shown.microbatch) : "yes, in any size");
  text += fmt::format("Gives the same with any microbatch size: {}.\n", withTrials(splitVerdict(shown.findings), shown.trials).sentence);
  for (const Trial& trial : shown.trials) text += trialText(trial);
  if (!shown.hasTorch) text += "LibTorch is not installed here: operators were judged by their names.\n";
  return text + findingsText(shown.graph, shown.findings);
}

int runInspect(const InspectArguments& options) {
  const Inspection shown = inspect(options.look);
  if (options.json) {
    print(versioned(documentOf(shown, options.look)));
    return kYes;
  }
  const int depth = options.look.depth.value_or(kDefaultDepth);
  std::string text = headText(shown, options.look.models) + "\n" + treeText(shown.modules, depth) +
                     incompleteLine(shown.notCounted, false) + "\n" + splitText(shown, options.look.depth.value_or(splitDepth(shown)));
  if (options.look.report)
    text += "\n" + reportText(shown);
  else if (options.look.tries)
    text += "\n";
  for (const Trial& trial : shown.trials) text += options.look.report ? "" : trialText(trial);
  print(text);
  return kYes;
}

}  // namespace

Command addInspect(CLI::App& app) {
  auto options = std::make_shared<InspectArguments>();
  CLI::App* command = app.add_subcommand("inspect", "Show what is in a traced model, and where it can be split");
  command->add_option("MODEL.pt2", options->look.models, "torch.export archive (.pt2); several if each stage was exported separately")
      ->option_text(" ")
      ->required();
  const std::string depthHelp =
      fmt::format("Show modules and split points down to this depth (default: modules to {}; JSON: all)", kDefaultDepth);
  command->add_option("--depth", options->look.depth, depthHelp)->option_text("N")->check(wholeFrom(0, kMostDepth));
  command->add_option("--microbatch", options->look.microbatch, "Samples for FLOPs and activations (default: as exported)")
      ->option_text("B")
      ->check(wholeFrom(1, 1 << 30));
  addLibraryOption(*command, options->look.libraries);
  command->add_flag("--report", options->look.report, "Report whether it can be split and microbatched, and what would change its results");
  command->add_flag(
      "--try", options->look.tries,
      "Train one step on a random batch in 1, 2 and 4 microbatches (loads LibTorch), and compare loss, outputs, gradients and buffers");
  command->add_flag("--json", options->json, "One JSON document on stdout");
  command->footer(
      "Examples:\n"
      "  pipewright inspect gpt.pt2 --depth 1\n"
      "  pipewright inspect gpt.pt2 --microbatch 8 --report\n"
      "  pipewright inspect gpt.pt2 --report --try\n"
      "  pipewright inspect stage0.pt2 stage1.pt2 --json\n\n"
      "FLOPs count 2 per multiply-add of matrix products, convolutions and attention. Activations are results that\n"
      "need a gradient, without views. A split point name works with plan --split: blocks.2 begins a stage there,\n"
      "blocks.1:end after it.");
  return [options] { return runInspect(*options); };
}

}  // namespace pw::cli
