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
#include "engine/planning/job_source.h"
#include "schedules/units.h"
#include "simulator/job/explain_job.h"
#include "simulator/job/explain_job_json.h"
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

/// Where the step goes: its critical path by kind.
std::string pathTable(const JobExplanation& explained) {
  std::vector<std::pair<std::string, Ns>> kinds(explained.path.byKind.begin(), explained.path.byKind.end());
  std::ranges::stable_sort(kinds, std::ranges::greater(), [](const auto& kind) { return kind.second; });
  std::vector<std::vector<std::string>> rows{{"critical path", "time", "share"}};
  for (const auto& [kind, time] : kinds) rows.push_back({kind, formatDuration(time), percent(share(time, explained.usual.step))});
  return table(rows);
}

/// The idle time of the ranks of a usual step, by cause.
std::string bubbleTable(const JobExplanation& explained) {
  std::vector<std::vector<std::string>> rows{{"idle of rank"}};
  for (const BubbleCause cause : kPlainCauses) rows.front().emplace_back(nameOf(cause));
  rows.front().emplace_back("all");
  const std::vector<IdleByCause> ranks = idleByCause(explained.causes);
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    std::vector<std::string> row{fmt::format("{}", r)};
    for (const BubbleCause cause : kPlainCauses) row.push_back(formatDuration(ranks[r].of(cause)));
    row.push_back(percent(share(ranks[r].sum(), explained.metrics.makespan)));
    rows.push_back(std::move(row));
  }
  return table(rows);
}

/// What is slow: `1.12` is a step that takes 12 % longer with only that as measured and all else ideal.
std::string slowTable(std::vector<Culprit> culprits, const char* title, const char* noun) {
  std::ranges::stable_sort(culprits, std::ranges::greater(), &Culprit::slowdown);
  std::vector<std::vector<std::string>> rows{{title, "slows the step by"}};
  for (std::size_t i = 0; i < std::min(kShown, culprits.size()); ++i) {
    const Culprit& one = culprits[i];
    rows.push_back({one.number < 0 ? one.name : fmt::format("{}{}", noun, one.number), signedPercent(one.slowdown - 1)});
  }
  std::string text = table(rows);
  if (culprits.size() > kShown) text += fmt::format("… and {} that slow it less\n", culprits.size() - kShown);
  return text;
}

std::string worstTable(const JobShape& shape, const Job& job, const JobExplanation& explained) {
  if (explained.worst.empty()) return {};
  std::vector<std::vector<std::string>> rows{{"worst steps", "time", "above usual", "because of"}};
  for (const WorstStep& step : explained.worst) {
    std::string why;
    const auto add = [&](const std::string& part) { why += (why.empty() ? "" : ", ") + part; };
    if (step.kind) add(explained.slowdowns.byKind[*step.kind].name);
    if (step.rank) add(fmt::format("rank {}", *step.rank));
    if (step.replica) add(fmt::format("replica {}", *step.replica));
    if (!step.stalls.empty()) add(toString(shape, job, step.stalls.front()));
    rows.push_back({job.steps[step.step].name, formatDuration(job.steps[step.step].step), signedPercent(step.aboveUsual),
                    why.empty() ? "nothing in particular" : why});
  }
  const std::string common = commonText(shape, job, explained);
  return "\n" + table(rows) + (common.empty() ? "" : common + "\n");
}

std::string textOf(const JobShape& shape, const Job& job, const JobExplanation& explained) {
  const Slowdowns& slow = explained.slowdowns;
  std::string text = fmt::format("{}: {}, {}\n", job.name, shapeText(job), counted(static_cast<std::int64_t>(job.steps.size()), "step"));
  text +=
      fmt::format("step {} on average = {} if all operations of a kind took equally long + {} by stragglers + {} of waits for hosts\n{}\n",
                  formatDuration(slow.measured), formatDuration(slow.ideal), formatDuration(std::max<Ns>(0, slow.replayed - slow.ideal)),
                  formatDuration(std::max<Ns>(0, slow.measured - slow.replayed)), stragglerText(explained));
  text += "\n" + pathTable(explained);
  text += fmt::format("\nbubble {} of a usual pipeline of {}\n", percent(explained.metrics.bubbleFraction),
                      formatDuration(explained.metrics.makespan)) +
          bubbleTable(explained);
  text += "\n" + slowTable(slow.byKind, "kind", "");
  if (slow.byStage.size() > 1) text += "\n" + slowTable(slow.byStage, "stage", "stage ");
  if (slow.byStage.size() != slow.byRank.size()) text += "\n" + slowTable(slow.byRank, "rank", "rank ");
  if (slow.byReplica.size() > 1) {
    text += "\n" + slowTable(slow.byReplica, "replica", "replica ");
    text += "\n" + slowTable(slow.byWorker, "worker", "worker ");
  }
  text += worstTable(shape, job, explained);
  std::vector<Stall> stalls = explained.stalls;
  std::erase_if(stalls, [&](const Stall& stall) { return !isWorthSaying(job, stall); });
  std::ranges::stable_sort(stalls, std::ranges::greater(), &Stall::lost);
  for (std::size_t i = 0; i < std::min(kShown, stalls.size()); ++i) text += (i == 0 ? "\n" : "") + toString(shape, job, stalls[i]) + "\n";
  if (stalls.size() > kShown) text += fmt::format("… and {} shorter stalls\n", stalls.size() - kShown);
  double makespan = 0, start = 0;
  for (const ReplayError& error : explained.replay) {
    makespan = std::max(makespan, std::abs(error.makespan));
    start = std::max(start, error.start);
  }
  text += fmt::format("\nA replay of each step with its own durations is at most {} off its pipeline's time, and {} off its starts.\n",
                      percent(makespan), percent(start));
  for (const std::string& note : job.notes) text += "note: " + note + "\n";
  return text;
}

int runExplain(const ExplainOptions& o) {
  const auto job = loadJob(o.job, byteProgress("read", o.progressStyle));
  const JobShape shape(*job);
  const JobExplanation explained = explainJob(shape, *job);
  print(o.json ? versioned(explanationJson(shape, *job, explained)) + "\n" : textOf(shape, *job, explained));
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
