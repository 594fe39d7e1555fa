#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <CLI/App.hpp>

#include "app/cli/commands.h"
#include "app/cli/options/job.h"
#include "app/cli/options/numbers.h"
#include "app/cli/options/shared.h"
#include "app/cli/text/output.h"
#include "engine/planning/inputs/job_source.h"
#include "schedules/units.h"
#include "simulator/job/between_steps.h"
#include "simulator/job/explain_job.h"
#include "simulator/job/explain_job_json.h"
#include "simulator/job/explain_tables.h"
#include "simulator/report/bubble_causes.h"

namespace pw::cli {
namespace {

constexpr std::size_t kShown = 8;

struct ExplainOptions {
  JobOptions job;
  bool json = false;
  ProgressStyle progressStyle = ProgressStyle::Automatic;
};

double share(Ns part, Ns whole) { return whole > 0 ? static_cast<double>(part) / static_cast<double>(whole) : 0; }

/// The idle time of the ranks of a usual step, by cause.
std::string bubbleTable(const JobExplanation& explained) {
  std::vector<std::vector<std::string>> rows{{"idle of rank"}};
  for (const BubbleCause cause : kPlainCauses) rows.front().emplace_back(nameOf(cause));
  rows.front().emplace_back("host");
  rows.front().emplace_back("all");
  const std::vector<IdleByCause> ranks = idleByCause(explained.causes);
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    std::vector<std::string> row{fmt::format("{}", r)};
    for (const BubbleCause cause : kPlainCauses) row.push_back(formatDuration(ranks[r].of(cause)));
    row.push_back(formatDuration(explained.hostWaits[r]));
    row.push_back(percent(share(ranks[r].sum() + explained.hostWaits[r], explained.metrics.makespan)));
    rows.push_back(std::move(row));
  }
  return table(rows);
}

/// A table of the explanation: all of its rows, or the first of them and what comes after.
std::string explanationText(const ExplainedTable& of, std::size_t most) {
  std::vector<std::vector<std::string>> rows(1);
  for (const ExplainedColumn& column : of.columns) rows.front().push_back(column.title);
  for (std::size_t i = 0; i < std::min(most, of.rows.size()); ++i) rows.push_back(of.rows[i].cells);
  std::string text = table(rows);
  if (of.rows.size() > most) text += fmt::format("… and {} that slow it less\n", of.rows.size() - most);
  return text;
}

std::string stallText(const ExplainedTable& of) {
  std::string text;
  for (std::size_t i = 0; i < std::min(kShown, of.rows.size()); ++i) text += of.rows[i].cells.front() + "\n";
  if (of.rows.size() > kShown) text += fmt::format("… and {} shorter stalls\n", of.rows.size() - kShown);
  return text;
}

/// `1.12` of a slowdown is a step that takes 12 % longer with only that as measured and all else ideal.
std::string explanationText(const JobExplanation& explained, const ExplainedTable& of) {
  switch (of.topic) {
    case ExplainTopic::Bubble:
      return fmt::format("bubble {} of a usual pipeline, replayed in {}\n", percent(explained.metrics.bubbleFraction),
                         formatDuration(explained.metrics.makespan)) +
             bubbleTable(explained);
    case ExplainTopic::Kinds:
    case ExplainTopic::Stages:
    case ExplainTopic::Ranks:
    case ExplainTopic::Replicas:
    case ExplainTopic::Workers: return explanationText(of, kShown);
    case ExplainTopic::WorstSteps: {
      const std::string common = commonText(explained);
      return explanationText(of, of.rows.size()) + (common.empty() ? "" : common + "\n");
    }
    case ExplainTopic::Stalls: return stallText(of);
    case ExplainTopic::Path: return explanationText(of, of.rows.size());
  }
  return {};
}

std::string explanationText(const JobShape& shape, const Job& job, const JobExplanation& explained) {
  std::string text = fmt::format("{}: {}, {}\n", job.name, shapeText(job), stepsText(job));
  text += fmt::format("{} {}\n{}\n", nameOf(job.times), stepText(explained), stragglerText(explained));
  if (const std::string between = betweenText(job); !between.empty()) text += between + "\n";
  for (const ExplainedTable& of : explainedTables(shape, job, explained)) text += "\n" + explanationText(explained, of);
  text += "\n" + replayText(explained) + "\n";
  for (const std::string& note : job.notes) text += "note: " + note + "\n";
  return text;
}

int runExplain(const ExplainOptions& o) {
  const auto job = loadJob(o.job, byteProgress("read", o.progressStyle));
  const JobShape shape(*job);
  const JobExplanation explained = explainJob(shape, *job);
  print(o.json ? versioned(explanationJson(shape, *job, explained)) + "\n" : explanationText(shape, *job, explained));
  return kYes;
}

}  // namespace

Command addExplain(CLI::App& app) {
  auto options = std::make_shared<ExplainOptions>();
  CLI::App* command = app.add_subcommand("explain", "Explain where the step of a trace, job, plan or run goes, and who slows it down");
  declareJob(*command, options->job);
  command->add_flag("--json", options->json, "One JSON document on stdout");
  addProgress(*command, options->progressStyle);
  command->footer(
      "Examples:\n"
      "  pipewright explain timeline.json.gz\n"
      "  pipewright explain pp_dump/ --steps 5-12\n"
      "  pipewright explain job.json --json\n"
      "  pipewright explain --store runs.db --run 3\n\n"
      "A straggler's slowdown is a replay's: the step with its times as measured and all others equal to the mean of their kind.");
  return [options] { return runExplain(*options); };
}

}  // namespace pw::cli
