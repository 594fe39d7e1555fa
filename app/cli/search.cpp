#include "simulator/plan/search.h"
#include "simulator/plan/search_profiles.h"
#include "simulator/plan/split.h"
#include "simulator/text/json_text.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>

#include "app/cli/commands.h"
#include "app/cli/not_counted.h"
#include "app/cli/numbers.h"
#include "app/cli/output.h"
#include "app/cli/own_ranks.h"
#include "backends/torch/backend.h"
#include "engine/processes/process.h"
#include "schedules/error.h"
#include "schedules/generate.h"
#include "schedules/units.h"

namespace pw::cli {
namespace {

using Json = nlohmann::ordered_json;

struct Options {
  std::vector<std::string> models, schedules, profiles;
  std::vector<int> microbatches, chunks;
  std::string cluster, memoryLimit, out, loss, optimizer = "sgd", progressStyle = "auto";
  MeasureOptions how;
  int ranks = 0, replicas = 1, top = 10;
  std::int64_t batch = 0, microbatch = 0;
  double momentum = 0;
  bool json = false, noRecompute = false, zero1 = false;
};

/// Costs estimated for a cluster, from the given profiles, or measured here at each size.
ProfileSource sourceOf(const Options& o, const ModelGraph& graph, const Cluster& cluster) {
  if (!o.cluster.empty()) return estimates(graph, cluster, precisionOf(o.how.precision).value());
  if (!o.profiles.empty()) {
    std::vector<std::shared_ptr<const Profile>> profiles;
    for (const std::string& file : o.profiles) {
      profiles.push_back(std::make_shared<Profile>(parseProfile(readFile(file), file)));
      const Profile& added = *profiles.back();
      if (added.nodes.size() != graph.nodes.size())
        throw UsageError(fmt::format("{} is not a profile of {}; profile this model.", file, graph.name));
      for (std::size_t i = 0; i + 1 < profiles.size(); ++i) {
        const Profile& other = *profiles[i];
        if (other.microbatch == added.microbatch)
          throw UsageError(fmt::format("{} and {} are both of microbatch {}; omit one of them.", o.profiles[i], file, added.microbatch));
        if (other.computing != added.computing) {
          throw UsageError(fmt::format("{} was measured {} and {} {}; profile all sizes in the same way.", o.profiles[i],
                                       words(other.computing), file, words(added.computing)));
        }
      }
    }
    return measurements(std::move(profiles));
  }
  return [&o](std::int64_t microbatch) {
    return SizedProfile{std::make_shared<Profile>(measureWithRanks(o.models, microbatch, o.ranks, o.how, o.loss, o.progressStyle)), false};
  };
}

SearchSpace spaceOf(const Options& o) {
  SearchSpace space;
  space.base.ranks = o.ranks;
  space.base.replicas = o.replicas;
  space.base.batch = o.batch;
  space.base.loss = o.loss;
  space.base.optimizer = plannedOptimizer(o.optimizer, o.momentum);
  space.base.zero1 = o.zero1;
  space.base.memoryLimit = o.memoryLimit.empty() ? 0 : parseSize(o.memoryLimit);
  space.fixedMicrobatch = o.microbatch > 0;
  if (o.microbatch > 0) space.base.microbatch = o.microbatch;
  space.microbatches = o.microbatches;
  space.schedules = o.schedules;
  space.chunks = o.chunks;
  space.recompute = !o.noRecompute;
  return space;
}

std::string splitOf(const Candidate& c) { return c.moves == 0 ? c.split : fmt::format("{}, {} moved", c.split, c.moves); }

std::string tableOf(const std::vector<const Candidate*>& candidates, bool limited) {
  std::vector<std::vector<std::string>> rows{
      {"schedule", "stages", "microbatches", "of", "splits", "recompute", "step", "samples/s", "bubble", "peak memory"}};
  if (limited) rows.front().emplace_back("fits");
  for (const Candidate* c : candidates) {
    const PlanRequest& r = c->request;
    rows.push_back({r.schedule, std::to_string(c->stages), std::to_string(r.microbatches), std::to_string(r.microbatch), splitOf(*c),
                    fmt::format("{}", fmt::join(wordsOf(r.recompute), ",")), formatDuration(c->step),
                    fmt::format("{:.1f}", c->samplesPerSecond), percent(c->bubbleFraction), formatSize(c->peak)});
    if (limited) rows.back().emplace_back(c->fits ? "yes" : "no");
  }
  return table(rows);
}

Json jsonOf(const Candidate& c, const std::map<std::int64_t, std::vector<SplitPoint>>& points) {
  const PlanRequest& r = c.request;
  return {{"schedule", r.schedule},
          {"ranks", r.ranks},
          {"chunks", r.chunks},
          {"stages", c.stages},
          {"microbatches", r.microbatches},
          {"microbatch", r.microbatch},
          {"batch", c.samples},
          {"replicas", r.replicas},
          {"balance", c.split},
          {"moves", c.moves},
          {"splits", splitNames(points.at(r.microbatch), r.begins)},
          {"recompute", wordsOf(r.recompute)},
          {"step_ns", c.step},
          {"makespan_ns", c.makespan},
          {"bubble_fraction", c.bubbleFraction},
          {"peak_bytes", c.peak},
          {"fits", c.fits},
          {"samples_per_second", c.samplesPerSecond},
          {"scaled_costs", c.scaled},
          {"pareto", c.onFront}};
}

std::map<std::int64_t, std::vector<SplitPoint>> pointsOf(const ModelGraph& graph, const Found& found) {
  std::map<std::int64_t, std::vector<SplitPoint>> points;
  for (const Candidate& c : found.candidates) {
    if (!points.contains(c.request.microbatch)) points[c.request.microbatch] = splitPoints(graph, bindBatch(graph, c.request.microbatch));
  }
  return points;
}

std::string asJson(const Options& o, const ModelGraph& graph, const Found& found, const std::vector<const Candidate*>& best,
                   const std::vector<const Candidate*>& front) {
  const auto points = pointsOf(graph, found);
  Json json{{"model", graph.name},
            {"ranks", o.ranks},
            {"replicas", o.replicas},
            {"shapes", found.shapes},
            {"tried", found.candidates.size()},
            {"cancelled", found.cancelled},
            {"best", Json::array()},
            {"pareto", Json::array()},
            {"skipped", found.skipped}};
  json["not_counted"] = ownJson(notCountedJson(notCounted(graph, found.candidates.front().request.microbatch)));
  for (const Candidate* c : best) json["best"].push_back(jsonOf(*c, points));
  for (const Candidate* c : front) json["pareto"].push_back(jsonOf(*c, points));
  return json.dump(2, ' ', false, Json::error_handler_t::replace);
}

/// A line that says what was tried.
std::string triedLine(const Options& o, const Found& found) {
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

/// Writes the plan of a candidate.
void writePlan(const Options& o, const ModelGraph& graph, const Candidate& c, const Profile& profile) {
  const PlanRequest& r = c.request;
  const Schedule rows = planRows(generate(r.schedule, {r.ranks, c.stages, r.microbatches}), r.replicas);
  Plan plan = planOf(r, graph, profile, rows, price(r, graph, profile, rows), splitPoints(graph, bindBatch(graph, r.microbatch)));
  plan.libraries = libraryPaths(o.how.libraries);
  writeFile(o.out, toJson(plan));
}

int run(Options& o) {
  const ModelGraph graph = loadModel(o.models);  // first of all: a file that is not there matters most
  refuseWhatCannotMeasure(o.how, !o.profiles.empty() ? CostsFrom::Profile : !o.cluster.empty() ? CostsFrom::Cluster : CostsFrom::Measuring);
  const SearchSpace space = spaceOf(o);
  if (o.loss.empty()) o.loss = defaultLoss(graph);
  const Cluster cluster = o.cluster.empty() ? Cluster{} : loadCluster(o.cluster);
  std::map<std::int64_t, SizedProfile> profiles;
  const ProfileSource source = sourceOf(o, graph, cluster);
  const auto show = progress("search " + graph.name, parseProgressStyle(o.progressStyle));
  const bool measures = o.profiles.empty() && o.cluster.empty();  // in processes, which end with Ctrl-C by themselves
  std::optional<Interrupts> interrupts(std::in_place);
  const Found found = searchPlans(
      graph,
      [&](std::int64_t microbatch) {
        if (measures) interrupts.reset();
        SizedProfile& profile = profiles[microbatch] = source(microbatch);
        if (measures) interrupts.emplace();
        return profile;
      },
      space,
      [&](int done, int all, const Candidate* c) {
        if (done < all) show(done, all, c == nullptr ? "" : c->request.schedule);
        return interrupts->take() == 0;
      });
  interrupts.reset();
  show(1, 1, "");
  if (found.candidates.empty() && found.cancelled) return complain("Interrupted before any plan was tried", kNo);
  if (found.candidates.empty())
    throw UsageError(fmt::format("No plan can be made of {} on {} ranks: {}", graph.name, o.ranks,
                                 found.skipped.empty() ? "nothing was tried" : found.skipped.front()));
  std::vector<const Candidate*> best, front;
  for (const Candidate& c : found.candidates) {
    if (c.leads && static_cast<int>(best.size()) < o.top) best.push_back(&c);
    if (c.onFront) front.push_back(&c);
  }
  std::stable_sort(front.begin(), front.end(),
                   [](const Candidate* a, const Candidate* b) { return a->samplesPerSecond > b->samplesPerSecond; });
  const Candidate& first = found.candidates.front();
  if (!o.out.empty() && first.fits) writePlan(o, graph, first, *profiles.at(first.request.microbatch).profile);
  if (o.json) {
    print(versioned(asJson(o, graph, found, best, front)) + "\n");
  } else {
    const bool limited = space.base.memoryLimit > 0;
    print(fmt::format(
        "{}: {}\ncosts {}{}\n\n{}", graph.name, triedLine(o, found), pw::sourceOf(*profiles.at(first.request.microbatch).profile, o.ranks),
        first.scaled ? "; scaled to other microbatch sizes, which is too optimistic for small ones: profile the size you choose" : "",
        tableOf(best, limited)));
    print(fmt::format("\nPareto front, from the fastest to the smallest:\n{}", tableOf(front, limited)));
    if (profiles.at(first.request.microbatch).profile->estimated) print(incompleteLine(notCounted(graph, first.request.microbatch), true));
    if (!o.out.empty() && first.fits) print(fmt::format("\nWritten to {}.\n", o.out));
  }
  if (found.cancelled) return complain("Interrupted: not all plans were tried, and there may be better ones", kNo);
  if (first.fits) return kYes;
  return complain(fmt::format("No plan fits {}: the smallest needs {} ({}, {} stages, {} microbatches, recompute {}); use more "
                              "ranks, a smaller batch or more microbatches",
                              formatSize(space.base.memoryLimit), formatSize(first.peak), first.request.schedule, first.stages,
                              first.request.microbatches, fmt::join(wordsOf(first.request.recompute), ",")),
                  kNo);
}

}  // namespace

Command addSearch(CLI::App& app) {
  auto* sub = app.add_subcommand("search", "Search for the best plans of a model, and the trade-off between speed and memory");
  auto o = std::make_shared<Options>();
  sub->add_option("MODEL.pt2", o->models, "Model archive (.pt2); several if each stage was exported separately")
      ->required()
      ->option_text("MODEL.pt2");
  sub->add_option("--ranks", o->ranks, "Pipeline ranks")->required()->check(wholeFrom(1, 1024))->option_text("R");
  sub->add_option("--microbatches", o->microbatches,
                  "Numbers of microbatches to try (default: R, 2R, 4R and 8R, and all that divide the batch, down to single samples)")
      ->delimiter(',')
      ->check(wholeFrom(1, kMaxMicrobatches))
      ->option_text("M,...");
  sub->add_option("--batch", o->batch,
                  "Samples per step over all replicas (default: the largest number of microbatches, of the exported size)")
      ->check(wholeFrom(1, 1 << 24))
      ->option_text("SAMPLES");
  sub->add_option("--microbatch", o->microbatch, "Keep this microbatch size [samples] instead of the batch, and compare samples per second")
      ->check(wholeFrom(1, 1 << 20))
      ->option_text("B");
  sub->add_option("--replicas", o->replicas, "Data-parallel copies of the pipeline (default: 1)")
      ->check(wholeFrom(1, kMaxReplicas))
      ->option_text("D");
  sub->add_option("--memory-limit", o->memoryLimit, "Memory limit of a rank, for example 24GiB")->check(aSize())->option_text("SIZE");
  sub->add_option("--schedules", o->schedules, "Schedules to try, names from `schedule list` (default: all that include backwards)")
      ->delimiter(',')
      ->option_text("NAME,...");
  sub->add_option("--chunks", o->chunks, "Stages per rank to try (default: each schedule's usual number, and twice that)")
      ->delimiter(',')
      ->check(wholeFrom(1, 1024))
      ->option_text("V,...");
  sub->add_flag("--no-recompute", o->noRecompute, "Do not try recomputation");
  auto* profile = sub->add_option("--profile", o->profiles,
                                  "Profiles of this model at one or several microbatch sizes (default: measured now at each size)")
                      ->delimiter(',')
                      ->option_text("FILE,...");
  sub->add_option("--cluster", o->cluster, "Estimate costs for a cluster preset or file instead of measuring")
      ->excludes(profile)
      ->option_text("CLUSTER");
  sub->add_option("--optimizer", o->optimizer, "Optimizer whose state is counted in memory and time (default: sgd, which has none)")
      ->option_text(optimizerNames("|"));
  sub->add_option("--momentum", o->momentum, "For sgd and rmsprop: momentum, one more number of state per parameter")
      ->check(numberFrom(0, 1))
      ->option_text("X");
  sub->add_flag("--zero1", o->zero1, "Spread the optimizer's state over the replicas (ZeRO stage 1)");
  sub->add_option("--loss", o->loss, "Loss: cross_entropy, mse, sum or output:NAME (default: the model's own, otherwise cross_entropy)")
      ->option_text("LOSS");
  addMeasureOptions(*sub, o->how);
  sub->add_option("--top", o->top, "Number of plans to show (default: 10)")->check(wholeFrom(1, 1 << 20))->option_text("K");
  sub->add_option("--out", o->out, "Write the best plan here (JSON)")->option_text("FILE");
  sub->add_option("--progress", o->progressStyle, "auto or json")->option_text("STYLE");
  sub->add_flag("--json", o->json, "Print plans and Pareto front as JSON");
  sub->footer(
      "\nExamples:\n"
      "  pipewright search gpt.pt2 --ranks 4 --batch 64 --cluster h100-nvlink --precision bf16 --optimizer adamw\n"
      "  pipewright search gpt.pt2 --ranks 2 --microbatches 4,8 --memory-limit 2GiB --out plan.json\n"
      "  pipewright search gpt.pt2 --ranks 8 --schedules 1f1b,zbv --cluster a100-nvlink --top 5\n\n"
      "Ctrl-C ends the search and shows the best plans so far (`cancelled` in JSON), with status 1.");
  return [o] { return run(*o); };
}

}  // namespace pw::cli
