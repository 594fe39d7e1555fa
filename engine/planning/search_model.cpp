#include "engine/planning/search_model.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "backends/host/files.h"
#include "backends/resources/resources.h"
#include "backends/torch/backend.h"
#include "engine/planning/inputs/job_source.h"
#include "engine/planning/inputs/layer_costs.h"
#include "engine/planning/inputs/limits.h"
#include "schedules/error.h"
#include "schedules/units.h"
#include "simulator/costs/rank_profiles.h"
#include "simulator/job/held_out.h"
#include "simulator/job/job_costs.h"
#include "simulator/job/memory.h"
#include "simulator/model/batch.h"
#include "simulator/model/graph_facts.h"
#include "simulator/order/problem/made_schedules.h"
#include "simulator/plan/made_order.h"
#include "simulator/report/json.h"
#include "simulator/search/combinations.h"
#include "simulator/search/orders.h"
#include "simulator/search/ranking.h"
#include "simulator/step/compiled_rows.h"
#include "simulator/text/json_text.h"

namespace pw {
namespace {

/// The profiles of files and those at hand. Throws UsageError where they are not of this model, or do not go together.
std::vector<std::shared_ptr<const Profile>> givenProfiles(const SearchOptions& o, const ModelGraph& graph) {
  std::vector<std::pair<std::string, std::shared_ptr<const Profile>>> given;
  for (const std::string& file : o.profiles) given.emplace_back(file, std::make_shared<Profile>(loadProfile(file)));
  for (const Profile& profile : o.profilesAtHand)
    given.emplace_back(fmt::format("profile {}", given.size() + 1), std::make_shared<Profile>(profile));
  std::vector<std::shared_ptr<const Profile>> profiles;
  for (const auto& [source, added] : given) {
    if (added->nodes.size() != graph.nodes.size())
      throw UsageError(fmt::format("{} is not a profile of {}; profile this model.", source, graph.name));
    for (std::size_t i = 0; i < profiles.size(); ++i) {
      const std::string& other = given[i].first;
      if (profiles[i]->microbatch == added->microbatch)
        throw UsageError(fmt::format("{} and {} are both of microbatch {}; omit one of them.", other, source, added->microbatch));
      if (profiles[i]->computing != added->computing) {
        throw UsageError(fmt::format("{} was measured {} and {} {}; profile all sizes in the same way.", other,
                                     computingText(profiles[i]->computing), source, computingText(added->computing)));
      }
    }
    profiles.push_back(added);
  }
  return profiles;
}

/// Measured costs on the ranks and links of a cluster.
Profile withTopology(Profile profile, const Cluster& cluster) {
  placeOn(profile, cluster);
  return profile;
}

LayerOptions layersOfSearch(const SearchOptions& o) {
  return {o.cluster, !o.profiles.empty() || !o.profilesAtHand.empty(), false, o.microbatch, o.loss, o.how};
}

/// Costs of a layer table, estimated for a cluster, from the given profiles, or measured here at each size.
ProfileSource sourceOf(const SearchOptions& o, const ModelGraph& graph, const Cluster& cluster, const Tell& tell) {
  if (isLayerChain(graph)) {
    Profile profile = layerCosts(graph, layersOfSearch(o));
    if (o.job) profile.uncertainty = uncertaintyOfOthers(*o.job);
    return measuredProfiles({std::make_shared<Profile>(std::move(profile))});
  }
  if (!o.profiles.empty() || !o.profilesAtHand.empty()) {
    std::vector<std::shared_ptr<const Profile>> profiles = givenProfiles(o, graph);
    for (std::shared_ptr<const Profile>& profile : profiles) {
      if (!o.cluster.empty()) profile = std::make_shared<const Profile>(withTopology(*profile, cluster));
    }
    return measuredProfiles(std::move(profiles));
  }
  if (!o.cluster.empty()) return estimatedProfiles(graph, cluster, o.how.precision, o.how.attention, lossNamed(o.loss, graph));
  return [&o, &graph, &tell](std::int64_t microbatch) {
    return SizedProfile{std::make_shared<Profile>(measureWithRanks(o.models, microbatch, o.ranks, o.how, lossNamed(o.loss, graph), tell)),
                        false};
  };
}

SearchSpace spaceOf(const SearchOptions& o) {
  SearchSpace space;
  space.base.ranks = o.ranks;
  space.base.replicas = o.replicas;
  for (const int rank : o.rankOrder) space.base.rankOrder.emplace_back(rank);
  space.base.batch = o.batch;
  requireConsistent(o.optimizer);
  space.base.optimizer = o.optimizer;
  space.base.zero1 = o.zero1;
  space.base.memoryLimit = o.memoryLimit.empty() ? 0 : parseSize(o.memoryLimit);
  space.fixedMicrobatch = o.microbatch > 0;
  if (o.microbatch > 0) space.base.microbatch = o.microbatch;
  space.microbatches = o.microbatches;
  space.schedules = o.schedules;
  space.chunks = o.chunks;
  space.recompute = !o.noRecompute;
  space.threads = o.threads;
  return space;
}

using Json = nlohmann::ordered_json;

double utilisationOf(const Candidate& c, const Profile& profile) {
  return flopUtilisation(profile, c.samples, c.step, c.request.ranks * c.request.replicas);
}

/// The ranks along the pipeline.
Json rankOrderJson(const PlanRequest& r) {
  Json order = Json::array();
  for (int i = 0; i < r.ranks; ++i) order.push_back(r.rankOrder.empty() ? i : r.rankOrder[static_cast<std::size_t>(i)].value);
  return order;
}

Json jsonOf(const Candidate& c, const std::map<std::int64_t, std::vector<SplitPoint>>& points, const Profile& profile) {
  const PlanRequest& r = c.request;
  Json json{{"schedule", r.schedule},
            {"ranks", r.ranks},
            {"chunks", r.chunks},
            {"stages", c.stages},
            {"microbatches", r.microbatches},
            {"microbatch", r.microbatch},
            {"batch", c.samples},
            {"replicas", r.replicas},
            {"balance", nameOf(c.split)},
            {"moves", c.moves},
            {"splits", splitNames(points.at(r.microbatch), r.begins)},
            {"recompute", wordsOf(r.recompute)},
            {"rank_order", rankOrderJson(r)},
            {"step_ns", c.step},
            {"makespan_ns", c.makespan},
            {"bubble_fraction", c.bubbleFraction},
            {"peak_bytes", c.peak},
            {"fits", c.fits()},
            {"samples_per_second", c.samplesPerSecond},
            {"flop_utilisation", utilisationOf(c, profile)},
            {"scaled_costs", c.scaled},
            {"pareto", c.onFront}};
  for (const auto& begins : r.replicaBegins) json["replica_splits"].push_back(splitNames(points.at(r.microbatch), begins));
  if (c.certificate) {
    Json certificate = ownJson(toJson(*c.certificate));
    certificate.erase("time_ns");  // the makespan
    json.update(certificate);
  }
  return json;
}

void requireSearchInRange(const SearchOptions& o) {
  requireWhole("--ranks", o.ranks, 1, kMostPlanRanks);
  for (const int chunks : o.chunks) requireWhole("--chunks", chunks, 1, kMostPlanChunks);
  for (const int count : o.microbatches) requireWhole("--microbatches", count, 1, kMaxMicrobatches);
  requireWhole("--microbatch", o.microbatch, 0, kMostMicrobatchSamples);
  requireWhole("--batch", o.batch, 0, kMostBatchSamples);
  requireWhole("--replicas", o.replicas, 1, kMaxReplicas);
  requireWhole("--threads", o.how.threads, 0, kMostThreads);
  requireNumber("--momentum", o.optimizer.momentum, 0, 1);
}

/// Throws UsageError where no schedule of the search keeps two copies of a stage whose state --zero1 could spread.
void requireCopiesFor(const SearchOptions& o) {
  const auto copies = [](const std::string& name) {
    return madeSchedule(name) == nullptr && familyOf(name).placement == PlacementKind::Bidirectional;
  };
  const bool none = o.replicas == 1 && !o.schedules.empty() && std::ranges::none_of(o.schedules, copies);
  if (o.zero1 && none && !o.isPart)
    throw UsageError("--zero1 spreads the optimizer's state over replicas, and the plans have one; add --replicas, or omit it.");
}

bool measuresHere(const SearchOptions& o, const ModelGraph& graph) {
  return !isLayerChain(graph) && o.profiles.empty() && o.profilesAtHand.empty() && o.cluster.empty();
}

/// The model and what is searched, before anything is found.
SearchedModel prepared(SearchOptions options) {
  SearchedModel result;
  SearchOptions& o = result.options = std::move(options);
  requireSearchInRange(o);
  if (!o.job) o.job = jobOfModel(o.models);
  if (o.job) requireBackwards(*o.job);
  if (o.job && !o.memoryLimit.empty()) requireMemory(*o.job);
  result.graph = o.job ? jobModel(*o.job, o.models.front()) : loadModel(o.models);  // first of all: a file that is not there matters most
  if (isLayerChain(result.graph)) {
    static_cast<void>(layerCosts(result.graph, layersOfSearch(o)));  // for what it refuses
  } else {
    const bool given = !o.profiles.empty() || !o.profilesAtHand.empty();
    refuseWhatCannotMeasure(o.how, given ? CostsFrom::Profile : o.cluster.empty() ? CostsFrom::Measuring : CostsFrom::Cluster);
  }
  static_cast<void>(libraryPaths(o.how.libraries));  // of the plan that is written
  requireCopiesFor(o);
  result.space = spaceOf(o);
  result.space.base.loss = lossNamed(o.loss, result.graph);
  return result;
}

SearchedModel preparedForParts(SearchOptions options) {
  SearchedModel result = prepared(std::move(options));
  if (measuresHere(result.options, result.graph)) throw UsageError("searches in parts need the same costs; give --profile or --cluster");
  return result;
}

/// Of what was found: the best candidate's microbatches on one rank.
void weighOneRank(SearchedModel& result) {
  if (result.found.candidates.empty() || result.found.candidates.front().stages < 2) return;
  const PlanRequest& best = result.found.candidates.front().request;
  const Profile& profile = *result.profiles.at(best.microbatch).profile;
  ModelCosts model(result.graph, profile, best.microbatch);
  result.oneRank = onOneRank(best, model, true);
}

void requireFound(const SearchedModel& result) {
  if (!result.found.candidates.empty() || result.found.cancelled) return;
  throw UsageError(fmt::format("No plan can be made of {} on {} ranks: {}", result.graph.name, result.options.ranks,
                               result.found.skipped.empty() ? "nothing was tried" : result.found.skipped.front()));
}

}  // namespace

SearchedModel searchModel(SearchOptions options, const SearchProgress& progress, const Tell& tell, const Measuring& measuring) {
  SearchedModel result = prepared(std::move(options));
  const SearchOptions& o = result.options;
  const bool measures = measuresHere(o, result.graph);
  const Cluster cluster = o.cluster.empty() ? Cluster{} : loadCluster(o.cluster);
  const ProfileSource source = sourceOf(o, result.graph, cluster, tell);
  const auto costs = [&](std::int64_t microbatch) {
    if (measures && measuring) measuring(true);
    SizedProfile& profile = result.profiles[microbatch] = source(microbatch);
    if (measures && measuring) measuring(false);
    return profile;
  };
  try {
    result.found = searchPlans(result.graph, costs, result.space, progress);
  } catch (const NothingToTry& none) {
    if (!o.isPart) throw;
    result.found.skipped.emplace_back(none.what());
  }
  if (!o.isPart) requireFound(result);
  weighOneRank(result);
  return result;
}

void requireSearchInParts(SearchOptions options) { static_cast<void>(preparedForParts(std::move(options))); }

SearchedModel mergeSearches(SearchOptions options, std::vector<Found> parts) {
  SearchedModel result = preparedForParts(std::move(options));
  Found& found = result.found;
  for (Found& part : parts) {
    found.candidates.insert(found.candidates.end(), part.candidates.begin(), part.candidates.end());
    found.skipped.insert(found.skipped.end(), part.skipped.begin(), part.skipped.end());
    found.shapes += part.shapes;
    found.cancelled = found.cancelled || part.cancelled;
  }
  std::sort(found.skipped.begin(), found.skipped.end());
  rankCandidates(found.candidates);
  requireFound(result);
  const Cluster cluster = result.options.cluster.empty() ? Cluster{} : loadCluster(result.options.cluster);
  const ProfileSource source = sourceOf(result.options, result.graph, cluster, {});
  for (const Candidate& c : found.candidates) {
    const std::int64_t samples = c.request.microbatch;
    if (!result.profiles.contains(samples)) result.profiles[samples] = source(samples);
  }
  weighOneRank(result);
  return result;
}

Plan planOf(const SearchedModel& searched, const Candidate& candidate) {
  const PlanRequest& r = candidate.request;
  const Profile& profile = *searched.profiles.at(r.microbatch).profile;
  ModelCosts model(searched.graph, profile, r.microbatch);
  const Schedule rows = rowsFor(r, model, candidate.stages, {.seconds = kOrderSeconds});
  CompiledRows compiled(rows);
  Plan plan = planOf(r, searched.graph, profile, rows, price(r, model, compiled),
                     splitPoints(searched.graph, bindBatch(searched.graph, r.microbatch)));
  plan.certificate = candidate.certificate;
  plan.libraries = libraryPaths(searched.options.how.libraries);
  return plan;
}

std::map<std::int64_t, std::vector<SplitPoint>> splitPointsOf(const SearchedModel& searched) {
  std::map<std::int64_t, std::vector<SplitPoint>> points;
  for (const Candidate& c : searched.found.candidates) {
    const std::int64_t samples = c.request.microbatch;
    if (!points.contains(samples)) points[samples] = splitPoints(searched.graph, bindBatch(searched.graph, samples));
  }
  return points;
}

std::vector<const Candidate*> bestOf(const Found& found, int most) {
  std::vector<const Candidate*> best;
  for (const Candidate& c : found.candidates) {
    if (c.leads && static_cast<int>(best.size()) < most) best.push_back(&c);
  }
  return best;
}

std::vector<const Candidate*> frontOf(const Found& found) {
  std::vector<const Candidate*> front;
  for (const Candidate& c : found.candidates) {
    if (c.onFront) front.push_back(&c);
  }
  std::stable_sort(front.begin(), front.end(),
                   [](const Candidate* a, const Candidate* b) { return a->samplesPerSecond > b->samplesPerSecond; });
  return front;
}

std::string searchJson(const SearchedModel& searched, int most) {
  const auto points = splitPointsOf(searched);
  const auto profileOf = [&](const Candidate& c) -> const Profile& { return *searched.profiles.at(c.request.microbatch).profile; };
  const ModelGraph& graph = searched.graph;
  const Found& found = searched.found;
  Json json{{"model", graph.name},    {"ranks", searched.options.ranks},  {"replicas", searched.options.replicas},
            {"shapes", found.shapes}, {"tried", found.candidates.size()}, {"cancelled", found.cancelled},
            {"best", Json::array()},  {"pareto", Json::array()},          {"skipped", found.skipped}};
  if (!found.candidates.empty()) {
    const Candidate& first = found.candidates.front();
    if (const auto& uncertainty = profileOf(first).uncertainty) {
      const auto alike =
          std::ranges::count_if(found.candidates, [&](const Candidate& c) { return areIndistinguishable(*uncertainty, first, c); });
      json["uncertainty"] = {{"deviation", uncertainty->deviation}, {"runs", uncertainty->runs}, {"indistinguishable", alike}};
    }
  }
  if (searched.oneRank) {
    json["one_rank"] = {{"step_ns", searched.oneRank->step}, {"peak_bytes", searched.oneRank->peak}};
    if (searched.oneRank->rank) json["one_rank"]["rank"] = searched.oneRank->rank->value;
    if (searched.oneRank->replicas > 1) json["one_rank"]["replicas"] = searched.oneRank->replicas;
  }
  if (!found.candidates.empty())
    json["not_counted"] = ownJson(notCountedJson(notCounted(graph, found.candidates.front().request.microbatch)));
  for (const Candidate* c : bestOf(found, most)) json["best"].push_back(jsonOf(*c, points, profileOf(*c)));
  for (const Candidate* c : frontOf(found)) json["pareto"].push_back(jsonOf(*c, points, profileOf(*c)));
  return json.dump(2, ' ', false, Json::error_handler_t::replace);
}

}  // namespace pw
