#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <CLI/App.hpp>
#include <CLI/Option.hpp>

#include "app/cli/commands.h"
#include "app/cli/export_picture.h"
#include "app/cli/export_plan.h"
#include "app/cli/export_source.h"
#include "app/cli/options/choices.h"
#include "app/cli/options/figure.h"
#include "app/cli/options/numbers.h"
#include "app/cli/options/shared.h"
#include "app/cli/text/output.h"
#include "backends/resources/resources.h"
#include "backends/resources/torch_export.h"
#include "schedules/error.h"
#include "schedules/named_values.h"
#include "schedules/units.h"
#include "simulator/page/content.h"
#include "simulator/plan/layer_export.h"
#include "simulator/plan/plan.h"
#include "simulator/timeline/chrome.h"
#include "simulator/timeline/figure.h"
#include "simulator/timeline/svg.h"
#include "simulator/timeline/tikz.h"
#include "simulator/trace/trace_csv.h"

namespace pw::cli {
namespace {

namespace fs = std::filesystem;

enum class ExportFormat : std::uint8_t { Torch, Torchtitan, Megatron, Layers, Chrome, Csv, Html, Svg, Tikz, Pdf, Png };
constexpr std::string_view nameOf(ExportFormat format) {
  switch (format) {
    case ExportFormat::Torch: return "torch";
    case ExportFormat::Torchtitan: return "torchtitan";
    case ExportFormat::Megatron: return "megatron";
    case ExportFormat::Layers: return "layers";
    case ExportFormat::Chrome: return "chrome";
    case ExportFormat::Csv: return "csv";
    case ExportFormat::Html: return "html";
    case ExportFormat::Svg: return "svg";
    case ExportFormat::Tikz: return "tikz";
    case ExportFormat::Pdf: return "pdf";
    case ExportFormat::Png: return "png";
  }
  return {};
}

struct ExportOptions {
  ExportSource from;
  std::string out;
  ExportFormat to = ExportFormat::Torch;
  int dpi = 0;                         ///< of PNG; 0: the usual
  std::optional<std::int64_t> layers;  ///< of the model that a job's stages are of
  std::string memoryLimit;             ///< of a rank
  bool both = false;
  FigureOptions figure;
};

bool isPicture(const ExportOptions& o) { return o.to == ExportFormat::Pdf || o.to == ExportFormat::Png; }
bool isFigure(const ExportOptions& o) { return o.to == ExportFormat::Svg || o.to == ExportFormat::Tikz || isPicture(o); }

FigureStyle styleOf(const ExportOptions& o, const ExportMaterial& material) {
  FigureStyle style = o.figure.style;
  if (std::ranges::find(o.figure.given, "title") == o.figure.given.end()) style.title = material.title;
  return style;
}

/// Says what is merged in it.
Figure figureOf(const ExportOptions& o, const ExportMaterial& material) {
  const FigureStyle style = styleOf(o, material);
  std::vector<FigureLane> lanes;
  if (o.both) lanes.push_back({&material.traces.front(), style.predictedTitle});
  const bool isRehearsed = material.times == TimesOf::Rehearsed && style.measuredTitle == FigureStyle().measuredTitle;
  const std::string below = isRehearsed ? "Rehearsed" : style.measuredTitle;
  lanes.push_back({&material.traces[material.chosen], o.both ? below : std::string()});
  Figure figure = layOut(lanes, style, o.to == ExportFormat::Tikz ? kTikzFrame : FigureFrame{});
  if (figure.mergedSpans > 0)
    warn(fmt::format("{} merged, too narrow or too many to be drawn one by one at a width of {:g} mm; --time or --ranks draws fewer",
                     figure.mergedSpans == 1 ? "1 span is" : fmt::format("{} spans are", figure.mergedSpans), style.width));
  return figure;
}

/// Of a run or of a plan with a trace the prediction and the measured step; else the one step there is.
std::string pageOf(const ExportMaterial& material) {
  Page page;
  page.title = material.title;
  std::optional<Explanation> why;
  if (material.plan) {
    why = explain(material.plan->schedule, material.plan->costs);
    page.lanes.push_back({material.names.front(), &material.traces.front(), &*why});
  }
  if (!material.plan || material.chosen > 0)
    page.lanes.push_back({material.names[material.chosen], &material.traces[material.chosen], nullptr});
  if (page.lanes.size() == 2) addErrors(page, *material.plan, material.reductions);
  addRanks(page);
  if (material.plan) addPlan(page, *material.plan, material.traces.front());
  return toHtml(page);
}

std::string exportedText(const ExportOptions& o, const ExportMaterial& material) {
  const Trace& chosen = material.traces[material.chosen];
  if (o.to == ExportFormat::Html) return pageOf(material);
  if (o.to == ExportFormat::Csv) return toSpanCsv(chosen);
  if (isFigure(o)) return o.to == ExportFormat::Svg ? toSvg(figureOf(o, material)) : toTikz(figureOf(o, material));
  std::vector<const Trace*> traces;
  for (const Trace& trace : material.traces) traces.push_back(&trace);
  const bool one = o.from.predicted || (o.from.step >= 0 && !material.plan);  // of a run the prediction stays beside the step
  return one ? toChromeJson({&chosen}, {material.names[material.chosen]}) : toChromeJson(traces, material.names);
}

void checkPicture(const ExportOptions& o) {
  const std::string suffix = fmt::format(".{}", nameOf(o.to));
  if (!o.out.ends_with(suffix)) throw UsageError(fmt::format("--to {} writes a file; give its name with --out F{}", nameOf(o.to), suffix));
  const auto refuse = [](const char* what) {
    throw UsageError(fmt::format("{} is for --to svg and --to tikz here: PDF and PNG are drawn by the app, which does not take it", what));
  };
  if (!o.from.patterns.empty()) refuse("--patterns");
  if (!o.from.store.empty() && o.from.step >= 0) refuse("--step of a run");
  if (!o.from.plan.empty() && o.from.traces.size() > 1) refuse("a plan with several traces");
}

/// As PDF or PNG, by the app.
int exportPicture(const ExportOptions& o, const ExportMaterial& material) {
  static_cast<void>(figureOf(o, material));  // refuses what cannot be drawn, and says what is merged
  AppFigure figure{{},     material.run,         material.step, o.from.predicted || (!o.from.plan.empty() && !o.both),
                   o.both, styleOf(o, material), o.dpi,         o.out};
  if (!o.from.plan.empty()) figure.files.push_back(o.from.plan);
  if (!o.from.store.empty()) figure.files.push_back(o.from.store);
  figure.files.insert(figure.files.end(), o.from.traces.begin(), o.from.traces.end());
  return drawByApp(figure);
}

int exportTrace(const ExportOptions& o) {
  const ExportMaterial material = materialOf(o.from);
  Bytes size = 0;
  if (isPicture(o)) {
    if (const int status = exportPicture(o, material); status != kYes) return status;
    size = static_cast<Bytes>(fs::file_size(o.out));
  } else {
    const std::string text = exportedText(o, material);
    if (o.out.empty()) {
      print(text);
      return kYes;
    }
    writeFile(o.out, text);
    size = static_cast<Bytes>(text.size());
  }
  print(fmt::format("{}: {}, {}, {}\n", o.out, material.title,
                    counted(static_cast<std::int64_t>(material.traces[material.chosen].spans.size()), "span"), formatSize(size)));
  return kYes;
}

/// The plan that these options export for another program.
Plan planFor(const ExportOptions& o) {
  if (o.from.plan.empty()) throw UsageError(fmt::format("--to {} exports a plan; give PLAN.json", nameOf(o.to)));
  return loadPlan(o.from.plan);
}

int exportForTorch(const ExportOptions& o) {
  const Plan plan = planFor(o);
  if (o.out.empty()) throw UsageError("--to torch writes several files; give their folder with --out DIR");
  const std::vector<std::string> notes = writeTorchPlan(plan, loadModel(plan.modelFiles), o.out);
  print(fmt::format("{} for torch.distributed.pipelining; run it where torch 2.11 is:\n  torchrun --nproc-per-node {} {}\n", plan.modelName,
                    worldSize(plan), (fs::path(o.out) / "run.py").string()));
  for (const std::string& note : notes) print(note + "\n");
  return kYes;
}

int exportLayers(const ExportOptions& o) {
  if (o.from.plan.empty()) throw UsageError("--to layers exports the costs of a plan; give PLAN.json");
  const Plan plan = loadPlan(o.from.plan);
  const LayerTable table = layersOf(plan, loadModel(plan.modelFiles));
  for (const SharedParameter& shared : plan.partition.shared) {
    warn(fmt::format("the {} of {} are in the table once, with the first layer that reads it; {} stages of the plan hold them",
                     formatSize(shared.bytes), shared.name, shared.stages.size()));
  }
  const std::string text = o.out.ends_with(".csv") ? toCsv(table) : toJson(table);
  if (o.out.empty()) {
    print(text);
    return kYes;
  }
  writeFile(o.out, text);
  print(fmt::format("{}: {}, {}\n", o.out, table.name, counted(static_cast<std::int64_t>(table.layers.size()), "layer")));
  return kYes;
}

void checkFigure(const ExportOptions& o) {
  if (!isFigure(o) && !o.figure.given.empty())
    throw UsageError(fmt::format("--{} is for figures; use it with --to svg, tikz, pdf or png", o.figure.given.front()));
  for (const std::string& name : o.figure.given) {
    if (!o.both && (name == "predicted-title" || name == "measured-title"))
      throw UsageError(fmt::format("--{} is the title of one of two steps; add --both, or use --title", name));
  }
  const std::string& font = o.figure.style.font;
  if (o.to == ExportFormat::Tikz && font != texFontOf(font))
    throw UsageError(fmt::format("--to tikz uses the document's fonts: give --font sans-serif, serif or monospace, not {}", font));
  if (o.dpi > 0 && o.to != ExportFormat::Png) throw UsageError("--dpi is for pictures; use it with --to png");
  if (isPicture(o)) checkPicture(o);
  if (!o.both) return;
  if (!isFigure(o)) throw UsageError("--both draws two steps; use it with --to svg, tikz, pdf or png");
  if (o.from.predicted) throw UsageError("--both and --predicted exclude each other; omit one");
  const bool stored = !o.from.store.empty() && o.from.plan.empty() && o.from.traces.empty();
  if (!stored && (!o.from.store.empty() || o.from.plan.empty() || o.from.traces.empty()))
    throw UsageError("--both draws a prediction and a measured step; give --store F.db, or PLAN.json and --trace F");
}

int runExport(const ExportOptions& o) {
  checkFigure(o);
  const int sources =
      static_cast<int>(!o.from.plan.empty()) + static_cast<int>(!o.from.store.empty()) + static_cast<int>(!o.from.traces.empty());
  const bool page = o.to == ExportFormat::Html && sources == 2 && o.from.store.empty();  // a plan and a trace
  if (sources != 1 && !o.both && !page)
    throw UsageError("export takes one of a plan file, --store F.db and --trace F; see pipewright export --help");
  if (o.from.run > 0 && o.from.store.empty()) throw UsageError("--run selects a run of a store; add --store F.db, or omit it");
  if (!o.from.patterns.empty() && o.from.traces.empty()) throw UsageError("--patterns is for names in a trace; add --trace F, or omit it");
  if (o.from.predicted && o.from.store.empty()) throw UsageError("--predicted selects a run's prediction; add --store F.db, or omit it");
  if (o.from.step >= 0 && (o.from.predicted || (!o.from.plan.empty() && o.from.traces.empty())))
    throw UsageError("a prediction has one step only; omit --step");
  if (o.layers && o.to != ExportFormat::Megatron && o.to != ExportFormat::Torchtitan)
    throw UsageError("--num-layers maps a job's stages to layers; use it with --to megatron or torchtitan");
  if (!o.memoryLimit.empty() && o.to != ExportFormat::Megatron)
    throw UsageError("--memory-limit is for choosing a layout; use it with --to megatron");
  switch (o.to) {
    case ExportFormat::Torch: return exportForTorch(o);
    case ExportFormat::Torchtitan: return exportTorchtitan(planFor(o), o.out, o.layers);
    case ExportFormat::Megatron:
      return exportMegatron(planFor(o), o.out, o.layers, o.memoryLimit.empty() ? Bytes{0} : parseSize(o.memoryLimit));
    case ExportFormat::Layers: return exportLayers(o);
    case ExportFormat::Chrome:
    case ExportFormat::Csv:
    case ExportFormat::Html:
    case ExportFormat::Svg:
    case ExportFormat::Tikz:
    case ExportFormat::Pdf:
    case ExportFormat::Png: break;
  }
  return exportTrace(o);
}

}  // namespace

Command addExport(CLI::App& app) {
  auto options = std::make_shared<ExportOptions>();
  CLI::App* command =
      app.add_subcommand("export", "Export a plan for torch.distributed.pipelining, or a trace for Perfetto, spreadsheets and papers");
  command->add_option("PLAN.json", options->from.plan, "Plan (JSON): to run with torch, or to export its prediction as a trace")
      ->option_text(" ");
  command->add_option("--store", options->from.store, "File that `pipewright run --store` wrote")->option_text("F.db");
  command->add_option("--run", options->from.run, "Run of the store (default: the newest)")
      ->check(wholeFrom(1, 1 << 30))
      ->option_text("ID");
  command
      ->add_option(
          "--trace", options->from.traces,
          "A trace of torch.profiler, Nsight Systems (.sqlite), Chakra (.et), Primus or this program; one file per rank, or their folder")
      ->type_name("F")
      ->expected(1)
      ->take_all()
      ->allow_extra_args(false);
  command->add_option("--patterns", options->from.patterns, "Regular expressions for the names of a trace's events (JSON)")
      ->option_text("F.json");
  command
      ->add_option("--step", options->from.step,
                   "Step: its number in the run, or its position in a trace, from 1 (default: the median step after the first)")
      ->check(wholeFrom(0, 1 << 30))
      ->option_text("N");
  command->add_flag("--predicted", options->from.predicted, "Export only the prediction of the run");
  addChoice(
      *command, "--to", options->to,
      "torch: a schedule, split points and a script; torchtitan: schedule, modules of each stage and arguments; megatron: arguments of "
      "Megatron-LM, with its pipeline layout; layers: the model's costs as a table for --layers; chrome: all steps, for Perfetto; csv: "
      "one line per span; html: a page in one file with pan and zoom, of a run or of PLAN.json and --trace both steps; svg, tikz, "
      "pdf, png: a figure for papers (PDF and PNG are drawn by pipewright-gui, beside this program)")
      ->option_text(namesOf<ExportFormat>("|") + " (required)")
      ->required();
  command->add_option("--out", options->out, "File to write, or with --to torch and torchtitan a folder (default: stdout)")
      ->option_text("F");
  command
      ->add_option("--num-layers", options->layers,
                   "With --to megatron and torchtitan, of a plan of a job's stages: layers that the model has, as many in each of them")
      ->check(wholeFrom(1, 1 << 16))
      ->option_text("N");
  command->add_option("--memory-limit", options->memoryLimit, "With --to megatron: memory limit of a rank for the layout, for example 80GB")
      ->check(aSize())
      ->option_text("SIZE");
  addProgress(*command, options->from.progressStyle);
  addFigureOptions(*command, options->figure);
  command
      ->add_flag("--both", options->both,
                 "In a figure, the prediction above the measured step, on one time axis: of a run, or of PLAN.json and --trace")
      ->group(kFigureGroup);
  command->add_option("--dpi", options->dpi, "With --to png: dots per inch (default 300)")
      ->check(wholeFrom(36, 2400))
      ->option_text("N")
      ->group(kFigureGroup);
  command->footer(
      "Examples:\n"
      "  pipewright export plan.json --to torch --out pipeline     then: torchrun --nproc-per-node 2 pipeline/run.py\n"
      "  pipewright export plan.json --to megatron --out arguments.sh\n"
      "  pipewright export from_job.json --to megatron --num-layers 32 --out arguments.sh\n"
      "  pipewright export plan.json --to svg --out predicted.svg\n"
      "  pipewright export plan.json --to tikz --width column --font serif --ranks 0-3 --greyscale --title \"\" --out figure.tex\n"
      "  pipewright export plan.json --to pdf --width column --out figure.pdf\n"
      "  pipewright export --store runs.db --run 3 --both --to svg --width two-columns --busy --out run3.svg\n"
      "  pipewright export --store runs.db --run 3 --to html --out run3.html\n"
      "  pipewright export plan.json --to layers --out layers.csv\n"
      "  pipewright export --store runs.db --run 3 --to chrome --out run3.json\n"
      "  pipewright export --trace profiles/ --to svg --out measured.svg\n"
      "  pipewright export --trace rank0.json --trace rank1.json --to csv > spans.csv\n\n"
      "Open a chrome file in ui.perfetto.dev or chrome://tracing. For a run it has the prediction and one step, for a trace all steps.");
  return [options] { return runExport(*options); };
}

}  // namespace pw::cli
