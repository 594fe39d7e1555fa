#include <memory>
#include <string>
#include <utility>

#include <fmt/format.h>
#include <CLI/App.hpp>

#include "app/cli/commands.h"
#include "app/cli/text/output.h"
#include "backends/host/files.h"
#include "schedules/units.h"
#include "simulator/costs/megatron_log.h"

namespace pw::cli {
namespace {

struct ImportOptions {
  std::string graph, out;
};

int runImport(const ImportOptions& o) {
  const LayerTable table = parseMeasuredLayers(readFile(o.graph), o.graph);
  const std::string text = o.out.ends_with(".csv") ? toCsv(table) : toJson(table);
  if (o.out.empty()) {
    print(text);
    return kYes;
  }
  Layer all{};
  for (const Layer& layer : table.layers) {
    all.forward += layer.forward;
    all.input += layer.input + layer.weight;
    all.parameters += layer.parameters;
  }
  writeFile(o.out, text);
  print(fmt::format("{}: {}, {}, forward {}, backward {}, parameters {}\n", o.out, table.name,
                    counted(static_cast<std::int64_t>(table.layers.size()), "layer"), formatDuration(all.forward),
                    formatDuration(all.input), formatSize(all.parameters)));
  return kYes;
}

}  // namespace

Command addImport(CLI::App& app) {
  auto options = std::make_shared<ImportOptions>();
  CLI::App* command = app.add_subcommand(
      "import", "Make a layer table of a graph that PipeDream's profiler measured, or of a log with Megatron-LM's timers");
  command
      ->add_option("GRAPH.txt", options->graph,
                   "Measured graph of PipeDream's profiler, or output of Megatron-LM with --timing-log-level 2 --timing-log-option all")
      ->required()
      ->option_text(" ");
  command->add_option("--out", options->out, "Layer table to write, as CSV if it ends in .csv (default: JSON on stdout)")
      ->option_text("F.json|F.csv");
  command->footer(
      "Example:\n"
      "  pipewright import resnet50.graph.txt --out layers.json     then: pipewright plan --layers layers.json --ranks 4\n\n"
      "Layers are the graph's nodes in a topological order, named node12.Conv2d. Where it branches, every value that a later\n"
      "layer reads crosses a cut, each once. Each half of a backward counts as one of its parts.");
  return [options] { return runImport(*options); };
}

}  // namespace pw::cli
