#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <filesystem>
#include <memory>
#include <optional>
#include <set>
#include <string_view>

#include "app/cli/commands.h"
#include "app/cli/options/job.h"
#include "app/cli/options/layers.h"
#include "app/cli/options/numbers.h"
#include "app/cli/options/optimizer.h"
#include "app/cli/options/own_ranks.h"
#include "app/cli/options/schedule.h"
#include "app/cli/options/shared.h"
#include "app/cli/study.h"
#include "app/cli/text/not_counted.h"
#include "app/cli/text/output.h"
#include "backends/resources/file_kind.h"
#include "backends/resources/resources.h"
#include "engine/planning/inputs/job_source.h"
#include "engine/planning/inputs/limits.h"
#include "engine/planning/search_model.h"
#include "engine/processes/process.h"
#include "schedules/error.h"
#include "schedules/units.h"
#include "simulator/costs/rank_profiles.h"
#include "simulator/report/json.h"
#include "simulator/search/ranking.h"
#include "simulator/search/search.h"
#include "simulator/text/three_digits.h"

namespace pw::cli {
namespace {

struct SearchArguments {
  SearchOptions search;
  std::string layers, job, out;
  int top = 10;
  bool json = false;
  StudyOptions study;
};

std::string splitOf(const Candidate& c) {
  const std::string_view own = c.request.replicaBegins.empty() ? "" : ", by replica";
  return c.moves == 0 ? fmt::format("{}{}", nameOf(c.split), own) : fmt::format("{}, {} moved{}", nameOf(c.split), c.moves, own);
}

/// `auto, gap 1.2 %`: how good an order made for the costs is stands beside its name.
std::string scheduleOf(const Candidate& c) {
  return c.certificate ? fmt::format("{}, {}", c.request.schedule, gapText(*c.certificate)) : c.request.schedule;
}

/// Whether the costs have no memory, as those of a job whose traces do not show it.
bool isWithoutMemory(const Found& found) {
  return std::ranges::all_of(found.candidates, [](const Candidate& c) { return c.peak == 0; });
}

/// What the costs are of; a job's are given as a table of layers.
std::string costsOf(const SearchedModel& searched, const Profile& profile) {
  constexpr std::string_view kTable = "of the layer table";
  const std::string text = sourceOf(profile, searched.options.ranks);
  const bool isJob = text.starts_with(kTable) && searched.options.job != nullptr;
  return isJob ? fmt::format("of the job{}", text.substr(kTable.size())) : text;
}

std::string candidateTable(const SearchedModel& searched, const std::vector<const Candidate*>& candidates) {
  const bool limited =
      std::ranges::any_of(searched.found.candidates, [](const Candidate& c) { return c.request.memoryLimit > 0 || !c.fits(); });
  const auto profileOf = [&](const Candidate& c) -> const Profile& { return *searched.profiles.at(c.request.microbatch).profile; };
  const bool knowsPeak = !candidates.empty() && profileOf(*candidates.front()).peakFlops > 0;
  const bool knowsMemory = !isWithoutMemory(searched.found);
  std::vector<std::vector<std::string>> rows{
      {"schedule", "stages", "microbatches", "of", "splits", "recompute", "step", "samples/s", "bubble"}};
  if (knowsMemory) rows.front().emplace_back("peak memory");
  if (knowsPeak) rows.front().emplace_back("MFU");
  if (limited) rows.front().emplace_back("fits");
  for (const Candidate* c : candidates) {
    const PlanRequest& r = c->request;
    rows.push_back({scheduleOf(*c), std::to_string(c->stages), std::to_string(r.microbatches), std::to_string(r.microbatch), splitOf(*c),
                    fmt::format("{}", fmt::join(wordsOf(r.recompute), ",")), formatDuration(c->step), threeDigits(c->samplesPerSecond),
                    percent(c->bubbleFraction)});
    if (knowsMemory) rows.back().push_back(formatSize(c->peak));
    if (knowsPeak) rows.back().push_back(percent(flopUtilisation(profileOf(*c), c->samples, c->step, r.ranks * r.replicas)));
    if (limited) rows.back().emplace_back(c->fits() ? "yes" : "no");
  }
  return table(rows);
}

/// A line that says what was tried.
std::string triedLine(const SearchOptions& o, const Found& found) {
  std::set<std::string> schedules;
  std::set<int> counts;
  std::set<std::int64_t> samples;
  for (const Candidate& c : found.candidates) {
    schedules.insert(c.request.schedule);
    counts.insert(c.request.microbatches);
    samples.insert(c.samples);
  }
  const std::string batch = samples.size() == 1 ? fmt::format("a batch of {}", *samples.begin())
                                                : fmt::format("microbatches of {}", found.candidates.front().request.microbatch);
  return fmt::format(
      "{}tried {} on {}{}, {}: {}, {} microbatches; impossible: {}{}", found.cancelled ? "interrupted, so the best so far; " : "",
      counted(static_cast<std::int64_t>(found.candidates.size()), "plan"), counted(o.ranks, "rank"),
      o.replicas > 1 ? fmt::format(" in each of {} replicas", o.replicas) : "", batch,
      counted(static_cast<std::int64_t>(schedules.size()), "schedule"), fmt::join(counts, ", "),
      counted(static_cast<std::int64_t>(found.skipped.size()), "combination"), found.skipped.empty() ? "" : " (--json says why)");
}

/// Searches while Ctrl-C only ends the search; the processes that measure end with it by themselves.
SearchedModel searchUntilInterrupted(const SearchOptions& options) {
  const auto show = progress("search " + std::filesystem::path(options.models.front()).stem().string(), options.how.progressStyle);
  std::optional<Interrupts> interrupts(std::in_place);
  SearchedModel searched = searchModel(
      options,
      [&](int done, int all, const Candidate* c) {
        if (done < all) show(done, all, c == nullptr ? "" : c->request.schedule);
        return interrupts->take() == 0;
      },
      &warn,
      [&](bool begins) {
        interrupts.reset();
        if (!begins) interrupts.emplace();
      });
  show(1, 1, "");
  return searched;
}

void printFound(const SearchedModel& searched, const std::vector<const Candidate*>& best, const std::vector<const Candidate*>& front) {
  const Candidate& first = searched.found.candidates.front();
  const Profile& profile = *searched.profiles.at(first.request.microbatch).profile;
  print(fmt::format(
      "{}: {}\npredicted with costs {}{}\n\n{}", searched.graph.name, triedLine(searched.options, searched.found),
      costsOf(searched, profile),
      first.scaled ? "; scaled to other microbatch sizes, which is too optimistic for small ones: profile the size you choose" : "",
      candidateTable(searched, best)));
  if (profile.uncertainty) {
    const auto alike = std::ranges::count_if(
        best, [&](const Candidate* c) { return c != best.front() && areIndistinguishable(*profile.uncertainty, *best.front(), *c); });
    print(fmt::format(
        "\nSteps {}: {}.\n", formatErrorBar(*profile.uncertainty),
        alike == 0 ? "the first plan is the fastest" : fmt::format("the first {} shown cannot be told apart", counted(alike + 1, "plan"))));
  }
  for (const Candidate* c : best) {
    std::vector<int> order;
    for (const Rank rank : c->request.rankOrder) order.push_back(rank.value);
    if (c == best.front() && !order.empty())
      print(fmt::format("\nbest order of the ranks along the pipeline: {}\n", fmt::join(order, ", ")));
  }
  const std::string unused = unusedRanksText(profile, first.request.ranks * first.request.replicas);
  if (!unused.empty()) print(fmt::format("\nnote: {}\n", unused));
  if (!isWithoutMemory(searched.found))
    print(fmt::format("\nPareto front, from the fastest to the smallest:\n{}", candidateTable(searched, front)));
  if (searched.oneRank) print(fmt::format("\n{}\n", toString(*searched.oneRank, first.step)));
  if (profile.estimated) print(incompleteLine(notCounted(searched.graph, first.request.microbatch), true));
  if (searched.options.job) {
    for (const std::string& note : searched.options.job->notes) print("note: " + note + "\n");
  }
}

/// The options that a study shares with a search.
StudyOptions studyOf(const SearchArguments& o) {
  StudyOptions study = o.study;
  study.out = o.out;
  study.top = o.top;
  study.progressStyle = o.search.how.progressStyle;
  study.json = o.json;
  return study;
}

int runSearch(const SearchArguments& o) {
  if (!o.study.file.empty()) return searchStudy(studyOf(o));
  SearchOptions options = o.search;
  if (!o.job.empty() && (!o.search.models.empty() || !o.layers.empty()))
    throw UsageError("--costs-from is instead of a model; omit MODEL.pt2 and --layers");
  options.models = o.job.empty() ? modelFiles(o.search.models, o.layers, "search") : std::vector{o.job};
  if (!o.job.empty() && fileKindOf(o.job) == FileKind::Plan)
    throw UsageError(fmt::format("--costs-from takes a job or its trace, and {} is a plan; search its model", o.job));
  if (!o.job.empty())
    options.job = std::make_shared<const Job>(*loadJob({.paths = {o.job}}, byteProgress("import", o.search.how.progressStyle)));
  if (options.ranks == 0) {
    if (!options.job) static_cast<void>(loadModel(options.models));  // a file that is not there matters most
    throw UsageError("search needs --ranks, or a --study that has them.");
  }
  const SearchedModel searched = searchUntilInterrupted(options);
  const Found& found = searched.found;
  if (found.candidates.empty()) return complain("Interrupted before any plan was tried", kNo);
  const std::vector<const Candidate*> best = bestOf(found, o.top), front = frontOf(found);
  const Candidate& first = found.candidates.front();
  if (!o.out.empty() && first.fits()) writeFile(o.out, toJson(planOf(searched, first)));
  if (o.json) {
    print(versioned(searchJson(searched, o.top)) + "\n");
  } else {
    printFound(searched, best, front);
    if (!o.out.empty() && first.fits()) print(fmt::format("\nWritten to {}.\n", o.out));
  }
  if (found.cancelled) return complain("Interrupted: not all plans were tried, and there may be better ones", kNo);
  if (first.fits()) return kYes;
  if (searched.space.base.memoryLimit == 0 || first.peak - searched.space.base.memoryLimit != first.excess)
    return complain(
        fmt::format("No plan fits the memory of every rank: the nearest needs {} more on one of them; use more ranks, a smaller "
                    "batch or more microbatches",
                    formatSize(first.excess)),
        kNo);
  return complain(fmt::format("No plan fits {}: the smallest needs {} ({}, {} stages, {} microbatches, recompute {}); use more "
                              "ranks, a smaller batch or more microbatches",
                              formatSize(searched.space.base.memoryLimit), formatSize(first.peak), first.request.schedule, first.stages,
                              first.request.microbatches, fmt::join(wordsOf(first.request.recompute), ",")),
                  kNo);
}

/// A study has all that a search varies in its file; what is only for studies needs one.
void requireNoneBesideStudy(const CLI::App& sub, bool isStudy) {
  const std::set<std::string> shared{"--out", "--top", "--json", "--progress", "--load-library"};
  const std::set<std::string> ofStudy{"--study", "--shard", "--csv"};
  for (const CLI::Option* option : sub.get_options()) {
    const std::string name = option->get_name();
    if (option->count() == 0 || shared.contains(name)) continue;
    if (isStudy && !ofStudy.contains(name))
      throw UsageError(fmt::format("{} does not apply to a study, whose file has the values; omit it, or search without --study.", name));
    if (!isStudy && ofStudy.contains(name)) throw UsageError(fmt::format("{} is for studies; add --study, or omit it.", name));
  }
}

/// What is tried.
void declareSpace(CLI::App& sub, SearchOptions& o) {
  sub.add_option("--ranks", o.ranks, "Pipeline ranks")->check(wholeFrom(1, kMostPlanRanks))->option_text("R");
  sub.add_option("--microbatches", o.microbatches,
                 "Numbers of microbatches to try (default: R, 2R, 4R and 8R, and all that divide the batch, down to single samples)")
      ->delimiter(',')
      ->check(wholeFrom(1, kMaxMicrobatches))
      ->option_text("M,...");
  sub.add_option("--batch", o.batch,
                 "Samples per step over all replicas (default: the largest number of microbatches, of the exported size)")
      ->check(wholeFrom(1, kMostBatchSamples))
      ->option_text("SAMPLES");
  sub.add_option("--microbatch", o.microbatch, "Keep this microbatch size [samples] instead of the batch, and compare samples per second")
      ->check(wholeFrom(1, kMostMicrobatchSamples))
      ->option_text("B");
  sub.add_option("--replicas", o.replicas, "Data-parallel copies of the pipeline (default: 1)")
      ->check(wholeFrom(1, kMaxReplicas))
      ->option_text("D");
  sub.add_option("--memory-limit", o.memoryLimit, "Memory limit of a rank, for example 24GiB")->check(aSize())->option_text("SIZE");
  sub.add_option(
         "--schedules", o.schedules,
         "Schedules to try, names from `schedule list`, and auto, an order made for the costs of the best splits (default: auto and all "
         "that include backwards)")
      ->delimiter(',')
      ->option_text("NAME,...");
  sub.add_option("--chunks", o.chunks, "Stages per rank to try (default: each schedule's usual number, and twice that)")
      ->delimiter(',')
      ->check(wholeFrom(1, kMostPlanChunks))
      ->option_text("V,...");
  sub.add_flag("--no-recompute", o.noRecompute, "Do not try recomputation");
}

void declareSearchCosts(CLI::App& sub, SearchOptions& o) {
  sub.add_option("--profile", o.profiles, "Profiles of this model at one or several microbatch sizes (default: measured now at each size)")
      ->delimiter(',')
      ->option_text("FILE,...");
  sub.add_option("--cluster", o.cluster,
                 "Estimate costs for a cluster preset or file instead of measuring; with --profile, take only its ranks and links")
      ->option_text("CLUSTER");
  declareRankOrder(sub, o.rankOrder);
  declareOptimizerState(sub, o.optimizer, o.zero1);
  sub.add_option("--loss", o.loss, "Loss: cross_entropy, mse, sum or output:NAME (default: the model's own, otherwise cross_entropy)")
      ->option_text("LOSS");
  addMeasureOptions(sub, o.how);
}

void declareResults(CLI::App& sub, SearchArguments& options) {
  sub.add_option("--top", options.top, "Number of plans to show (default: 10)")->check(wholeFrom(1, 1 << 20))->option_text("K");
  sub.add_option("--study", options.study.file,
                 "Predict every combination of the values of a study file instead, and keep all results in --out (default: FILE.db); "
                 "the same command resumes an interrupted study")
      ->option_text("FILE");
  sub.add_option("--shard", options.study.shard,
                 "Of a study: only one of every N points, for several processes (default: all, or the task of a Slurm array); "
                 "`merge` joins the results")
      ->option_text("I/N");
  sub.add_option("--csv", options.study.csv, "Of a study: write all results here, too")->option_text("FILE");
  sub.add_option("--out", options.out, "Write the best plan here (JSON), or the results of a study (SQLite)")->option_text("FILE");
  addProgress(sub, options.search.how.progressStyle);
  sub.add_flag("--json", options.json, "Print plans and Pareto front as JSON");
}

}  // namespace

Command addSearch(CLI::App& app) {
  auto* sub = app.add_subcommand("search", "Search for the best plans of a model, and the trade-off between speed and memory");
  auto options = std::make_shared<SearchArguments>();
  declareModel(*sub, options->search.models, options->layers);
  sub->add_option("--costs-from", options->job,
                  "The usual times of a job (pipewright import) or trace instead of a model: its stages are cut anew")
      ->option_text("JOB.json|TRACE");
  declareSpace(*sub, options->search);
  declareSearchCosts(*sub, options->search);
  declareResults(*sub, *options);
  sub->footer(
      "\nExamples:\n"
      "  pipewright search gpt.pt2 --ranks 4 --batch 64 --cluster h100-nvlink --precision bf16 --optimizer adamw\n"
      "  pipewright search gpt.pt2 --ranks 2 --microbatches 4,8 --memory-limit 2GiB --out plan.json\n"
      "  pipewright search gpt.pt2 --ranks 8 --schedules 1f1b,zbv --cluster a100-nvlink --top 5\n"
      "  pipewright search --layers layers.json --ranks 8 --microbatches 32 --memory-limit 80GB\n"
      "  pipewright search --costs-from job.json --ranks 8 --microbatches 32\n\n"
      "Ctrl-C ends the search and shows the best plans so far (`cancelled` in JSON), with status 1.");
  return [options, sub] {
    requireNoneBesideStudy(*sub, !options->study.file.empty());
    return runSearch(*options);
  };
}

}  // namespace pw::cli
