#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <CLI/App.hpp>
#include <CLI/Validators.hpp>

#include "app/cli/commands.h"
#include "app/cli/options/numbers.h"
#include "app/cli/text/output.h"
#include "engine/planning/inputs/limits.h"
#include "engine/planning/layout_answer.h"
#include "schedules/units.h"
#include "simulator/plan/optimizer.h"

namespace pw::cli {
namespace {

struct LayoutArguments {
  LayoutOptions layout;
  bool json = false;
};

/// The stages one below the other, or, where there are many, ranks with equal rows together, as Megatron prints them.
std::string stagesText(const ExaminedLayout& of) {
  std::vector<std::vector<std::string>> rows{{"rank"}};
  const auto ranks = static_cast<std::size_t>(of.ranks), chunks = (of.layout.stages.size() + ranks - 1) / ranks;
  for (std::size_t v = 0; v < chunks; ++v) rows.front().push_back(chunks == 1 ? "layers" : fmt::format("chunk {}", v));
  const bool costs = of.subject.has_value();
  if (costs) rows.front().insert(rows.front().end(), {"forward", "backward"});
  std::size_t from = 0;
  std::vector<std::string> before;
  const auto flush = [&](std::size_t end) {
    if (before.empty()) return;
    before.insert(before.begin(), end - from > 1 ? fmt::format("{}-{}", from, end - 1) : fmt::format("{}", from));
    rows.push_back(before);
  };
  for (std::size_t r = 0; r < ranks; ++r) {
    std::vector<std::string> row;
    Ns forward = 0, backward = 0;
    for (std::size_t s = r; s < of.layout.stages.size(); s += ranks) {
      const std::string stage = toString(of.layout.stages[s]);
      row.push_back(stage.empty() ? "(empty)" : stage);
      if (!costs) continue;
      forward += of.subject->costs.stages[s].forward;
      backward += of.subject->costs.stages[s].backward;
    }
    row.resize(chunks);  // a layout that does not divide over the ranks
    if (costs) row.insert(row.end(), {formatDuration(forward), formatDuration(backward)});
    if (row == before) continue;
    flush(r);
    before = row;
    from = r;
  }
  flush(ranks);
  return table(rows);
}

std::string headline(const ExaminedLayout& of) {
  std::string text = fmt::format("{}\n{} on {}{}, {} per step: ", toString(of.layout), counted(std::ssize(of.layout.stages), "stage"),
                                 counted(of.ranks, "rank"), of.ranksAssumed ? " (one for each; --ranks says otherwise)" : "",
                                 counted(of.microbatches, "microbatch"));
  for (const LayoutLayer layer : {LayoutLayer::Embedding, LayoutLayer::Transformer, LayoutLayer::Mtp, LayoutLayer::Loss})
    text += fmt::format("{}{} {}", layer == LayoutLayer::Embedding ? "" : ", ", of.layout.count(layer), letterOf(layer));
  return text + "\n";
}

void printText(const LayoutAnswer& answer) {
  const auto& [of, deadlock, predicted] = answer;
  print(headline(of) + "\n" + stagesText(of) + "\n");
  for (const LayoutProblem& problem : of.problems) {
    const std::string place =
        problem.stage ? fmt::format(" (stage {}, from character {})", problem.stage->value, of.places[problem.stage->index()]) : "";
    print(fmt::format("Megatron refuses it: {}{}\n", problem.message, place));
  }
  if (of.refusal) print(*of.refusal + "\n");
  for (const std::string& note : of.notes) print(fmt::format("note: {}\n", note));
  const LayoutBalance layers = layersBalance(of);
  print(fmt::format("balance: at most {:g} transformer {} on a rank, {:.4g} on average ({} above)\n", layers.most,
                    layers.most == 1 ? "layer" : "layers", layers.mean, percent(layers.above())));
  if (of.subject)
    print(fmt::format("time: a microbatch takes the slowest rank {} longer than the average rank\n", percent(timesBalance(of).above())));
  for (const std::string& line : deadlock) print(line + "\n");
  if (answer.isAccepted() && deadlock.empty()) print(fmt::format("{}: no deadlock as Megatron posts its messages\n", of.schedule.name));
  if (!predicted) return;
  const Metrics& m = predicted->report.metrics;
  Bytes peak = 0;
  for (const RankMetrics& rank : m.ranks) peak = std::max(peak, rank.peakBytes);
  const std::string memory = peak > 0 ? ", peak memory " + formatSize(peak) : "";  // of a table that has bytes
  print(fmt::format("predicted step {} as Megatron posts its messages, makespan {} (lower bound {}), bubble {}{}\n", formatDuration(m.step),
                    formatDuration(m.makespan), formatDuration(predicted->report.lowerBound.flush), percent(m.bubbleFraction), memory));
}

int runLayout(const LayoutArguments& o) {
  const LayoutAnswer answer = answerLayout(o.layout);
  if (o.json)
    print(versioned(layoutJson(answer)) + "\n");
  else
    printText(answer);
  return answer.isAccepted() && answer.deadlock.empty() ? kYes : kNo;
}

}  // namespace

Command addLayout(CLI::App& app) {
  auto options = std::make_shared<LayoutArguments>();
  LayoutOptions& o = options->layout;
  CLI::App* command = app.add_subcommand("layout", "Check a layout string of Megatron's --pipeline-model-parallel-layout");
  command
      ->add_option("--check", o.layout, "The string: E embedding, t transformer layer, m MTP layer, L loss, | ends a stage, x*N, (...)*N")
      ->option_text("STRING (required)")
      ->required();
  command->add_option("--ranks", o.ranks, "Pipeline ranks, as --pipeline-model-parallel-size (default: one for each stage)")
      ->check(wholeFrom(1, kMaxRanks))
      ->option_text("R");
  command->add_option("--chunks", o.chunks, "Stages of each rank (virtual pipeline size), instead of --ranks")
      ->check(wholeFrom(1, kMaxStages))
      ->option_text("V");
  command->add_option("--microbatches", o.microbatches, "Microbatches per step (default: 4 per rank)")
      ->check(wholeFrom(1, kMaxMicrobatches))
      ->option_text("M");
  command->add_option("--group", o.group, "As --microbatch-group-size-per-virtual-pipeline-stage (default: as many as ranks)")
      ->check(wholeFrom(1, kMaxMicrobatches))
      ->option_text("G");
  command->add_option("--num-layers", o.layers, "Transformer layers that the model has, as --num-layers (default: those of the string)")
      ->check(wholeFrom(0, 1 << 30))
      ->option_text("N");
  command->add_option("--mtp-num-layers", o.mtp, "MTP layers that the model has, as --mtp-num-layers (default: those of the string)")
      ->check(wholeFrom(0, 1 << 30))
      ->option_text("N");
  command->add_option("--layers", o.table, "A table of the model's layers with their costs (JSON or CSV): predicts step, bubble and memory")
      ->option_text("F.json|F.csv");
  command->add_option("--cluster", o.cluster, "With --layers: messages take as long as on this preset or file (default: no time)")
      ->option_text("CLUSTER");
  command->add_option("--optimizer", o.optimizer, "With --layers: optimizer whose state is counted (default: none)")
      ->option_text(optimizerNames("|"));
  command->add_flag("--json", options->json, "Print the answer as JSON");
  command->footer(
      "Exit status: 0 Megatron takes it, 1 it refuses it or hangs, 2 the string cannot be read.\n\n"
      "Examples:\n"
      "  pipewright layout --check \"Et*3|(tt|)*29m|L\" --ranks 16\n"
      "  pipewright layout --check \"Et*4|t*4|t*4|t*4L\" --layers layers.csv --microbatches 16 --json");
  return [options] { return runLayout(*options); };
}

}  // namespace pw::cli
