#include "engine/planning/study_worker.h"

#include <algorithm>
#include <filesystem>
#include <new>
#include <set>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "backends/host/files.h"
#include "backends/host/paths.h"
#include "backends/resources/resources.h"
#include "engine/planning/inputs/layer_costs.h"
#include "schedules/error.h"
#include "schedules/generate.h"
#include "simulator/costs/estimate.h"
#include "simulator/costs/layer_chain.h"
#include "simulator/costs/rank_profiles.h"
#include "simulator/job/memory.h"
#include "simulator/model/graph_facts.h"
#include "simulator/partition/balancer.h"
#include "simulator/partition/stage_costs.h"
#include "simulator/plan/made_order.h"
#include "simulator/plan/possible.h"
#include "simulator/search/fitted_splits.h"
#include "simulator/search/rank_order.h"
#include "simulator/search/replica_splits.h"

namespace pw {
namespace {

constexpr std::size_t kKept = 16;  ///< models with costs; of a 70 B export each takes some 30 MB

/// A preset's name, or a file beside the study.
Cluster clusterIn(const std::string& folder, const std::string& name) {
  return loadCluster(isClusterFile(name) ? studyPath(folder, name) : name);
}

void requireTogether(const Profile& a, const Profile& b, const std::string& file) {
  if (a.microbatch == b.microbatch)
    throw UsageError(fmt::format("{} is a second profile of {} at microbatch {}; omit one of them.", file, b.model, b.microbatch));
  if (a.computing != b.computing)
    throw UsageError(fmt::format("{} was measured {}, another profile of {} {}; profile all sizes in the same way.", file,
                                 computingText(b.computing), b.model, computingText(a.computing)));
}

}  // namespace

std::string studyPath(const std::string& folder, const std::string& path) { return (std::filesystem::path(folder) / path).string(); }

bool isClusterFile(const std::string& name) {
  return name.find('/') != std::string::npos || name.substr(0, name.find('+')).ends_with(".json");
}

std::string clusterFile(const std::string& folder, const std::string& name) {
  std::string path = studyPath(folder, name);
  for (std::size_t plus = path.rfind('+'); plus != std::string::npos && !pathExists(path); plus = path.rfind('+')) path.resize(plus);
  return path;
}

struct StudyCosts::Shared {
  std::shared_ptr<const ModelGraph> graph;
  SizedProfile profile;
  std::shared_ptr<ModelCosts> model;
  std::vector<SplitPoint> points;
  std::optional<Balancer> balancer;
  std::mutex mutex;  ///< of what follows
  std::map<std::tuple<int, Balance, StageSpeeds>, std::vector<NodeId>> begins;

  /// As `plan` cuts: at the marks in the model where they make so many stages, else balanced; or why it cannot be cut into so many.
  Answer<std::vector<NodeId>> beginsFor(const SearchShape& shape, Balance balance) {
    if (static_cast<int>(graph->splitMarkers.size()) + 1 == shape.stages) return graph->splitMarkers;
    const std::lock_guard lock(mutex);
    const auto [found, isNew] = begins.try_emplace({shape.stages, balance, shape.speeds});
    if (isNew) {
      Answer<std::vector<NodeId>> balanced = balancer->begins(shape.stages, balance, shape.speeds);
      if (!balanced) {
        begins.erase(found);
        return balanced;
      }
      found->second = *std::move(balanced);
    }
    return found->second;
  }
};

StudyCosts::StudyCosts(const Study& study, std::string folder) : study_(study), folder_(std::move(folder)) {
  std::set<std::string> used;  // profiles
  for (const std::string& name : study.models) {
    const auto graph = std::make_shared<const ModelGraph>(loadModel({studyPath(folder_, name)}));
    graphs_[name] = graph;
    if (std::ranges::any_of(study.memoryLimits, [](Bytes limit) { return limit > 0; })) requireMemory(*graph, "memory_limit");
    const bool layers = isLayerChain(*graph);
    if (!study.profiles.empty() && !layers) {
      std::vector<std::shared_ptr<const Profile>> profiles;
      for (const std::string& file : study.profiles) {
        auto profile = std::make_shared<const Profile>(loadProfile(studyPath(folder_, file)));
        if (profile->nodes.size() != graph->nodes.size() || profile->model != graph->name) continue;
        used.insert(file);
        for (const auto& other : profiles) requireTogether(*other, *profile, file);
        profiles.push_back(std::move(profile));
      }
      if (profiles.empty()) throw UsageError(fmt::format("None of the study's profiles is of {}; profile this model.", name));
      measured_[name] = measuredProfiles(std::move(profiles));
    }
    const bool estimates = std::ranges::none_of(study.clusters, [](const std::string& cluster) { return cluster.empty(); });
    if (!layers && !measured_.contains(name) && !estimates)
      throw UsageError(fmt::format("The study measures nothing, and {} has no costs; give a cluster or profiles.", name));
  }
  for (const std::string& file : study.profiles) {
    if (!used.contains(file)) throw UsageError(fmt::format("The profile {} is of none of the study's models; profile them again.", file));
  }
  const bool plain = study.precisions == std::vector{DType::Unknown} && study.attentions == std::vector{Attention::AsTraced};
  const bool estimates =
      std::ranges::none_of(graphs_, [](const auto& entry) { return isLayerChain(*entry.second); }) && study.profiles.empty();
  if (!plain && !estimates)
    throw UsageError(
        "Precision and attention are of estimates, but the study has layer tables or profiles with costs of their own; omit them.");
  for (const std::string& name : study.clusters) {
    if (!name.empty()) clusters_[name] = clusterIn(folder_, name);
  }
}

StudyCosts::~StudyCosts() = default;

Answer<std::shared_ptr<StudyCosts::Shared>> StudyCosts::made(const StudyPoint& point, std::int64_t microbatch) const {
  auto shared = std::make_shared<Shared>();
  shared->graph = graphs_.at(point.model);
  const ModelGraph& graph = *shared->graph;
  const Cluster* cluster = point.cluster.empty() ? nullptr : &clusters_.at(point.cluster);
  if (isLayerChain(graph)) {
    shared->profile.profile =
        std::make_shared<const Profile>(cluster == nullptr ? profileOf(graph) : estimate(graph, exportedBatch(graph), *cluster));
  } else if (const auto source = measured_.find(point.model); source != measured_.end()) {
    shared->profile = source->second(microbatch);
    if (cluster != nullptr) {
      Profile placed = *shared->profile.profile;
      placeOn(placed, *cluster);
      shared->profile.profile = std::make_shared<const Profile>(std::move(placed));
    }
  } else if (auto no = obstacleToPrecision(*cluster, point.precision)) {
    return *std::move(no);
  } else {
    shared->profile.profile = std::make_shared<const Profile>(estimate(graph, microbatch, *cluster, point.precision, point.attention));
  }
  shared->model = std::make_shared<ModelCosts>(graph, *shared->profile.profile, microbatch);
  shared->points = splitPoints(graph, bindBatch(graph, microbatch));
  shared->balancer.emplace(graph, *shared->profile.profile);
  return shared;
}

Answer<std::shared_ptr<StudyCosts::Shared>> StudyCosts::of(const StudyPoint& point, std::int64_t microbatch) {
  const Key key{point.model, point.cluster, point.precision, point.attention, microbatch};
  const std::lock_guard lock(mutex_);  // others wait: most need the same
  const auto found = std::ranges::find(kept_, key, &std::pair<Key, std::shared_ptr<Shared>>::first);
  if (found != kept_.end()) {
    kept_.splice(kept_.begin(), kept_, found);
  } else {
    Answer<std::shared_ptr<Shared>> shared = made(point, microbatch);
    if (!shared) return shared;
    kept_.emplace_front(key, *std::move(shared));
    if (kept_.size() > kKept) kept_.pop_back();
  }
  return kept_.front().second;
}

Answer<PlanRequest> StudyWorker::requestOf(const StudyPoint& point) const {
  const ModelGraph& graph = costs_.graph(point.model);
  PlanRequest request;
  request.schedule = point.schedule;
  request.ranks = point.ranks;
  request.replicas = point.replicas;
  request.microbatches = point.microbatches;
  request.chunks = point.chunks > 0 ? point.chunks : usualChunks(point.schedule);
  const auto sizes = trySettledBatch({point.batch, point.microbatchSize}, point.replicas * point.microbatches, graph);
  if (!sizes) return sizes.refusal();
  request.batch = sizes->batch;
  request.microbatch = sizes->microbatch;
  request.loss = defaultLoss(graph);
  request.optimizer = point.optimizer;
  request.zero1 = point.zero1;
  request.memoryLimit = point.memoryLimit;
  const Shape shape{request.ranks, request.ranks * request.chunks, request.microbatches};
  const bool isMade = madeSchedule(point.schedule) != nullptr;
  if (const auto no = isMade ? std::nullopt : generatorOf(point.schedule).refusal(shape)) return Impossible{*no};
  return request;
}

Answer<Candidate> StudyWorker::evaluated(const StudyPoint& point) {
  Answer<PlanRequest> requested = requestOf(point);
  if (!requested) return requested.refusal();
  const PlanRequest request = *std::move(requested);
  const Answer<std::shared_ptr<StudyCosts::Shared>> shared = costs_.of(point, request.microbatch);
  if (!shared) return shared.refusal();
  const Profile& profile = *(*shared)->profile.profile;
  if (auto no = lackOfRanks(profile, request.ranks * request.replicas)) return *std::move(no);
  if (*shared != shared_ || shape_.request != request || !evaluator_) {
    evaluator_.reset();
    shared_ = *shared;
    SearchShape shape{request, request.ranks * request.chunks, shared_->profile, shared_->model, {}};
    shape.speeds = speedsOf(shape);
    if (!haveSameRows(shape, shape_)) rows_ = nullptr;
    shape_ = std::move(shape);
  }
  Answer<std::vector<NodeId>> balanced = shared_->beginsFor(shape_, point.balance);
  if (!balanced) return balanced.refusal();
  const SplitStart start{splitSource(point.balance), *std::move(balanced)};
  const bool movable = point.balance == Balance::Time && start.begins != shared_->graph->splitMarkers;  // as `planModel` moves them
  if (madeSchedule(point.schedule) != nullptr) return withMadeOrder(request, point, start, movable);
  if (!rows_) rows_ = std::make_shared<CandidateRows>(shape_);
  if (!evaluator_) evaluator_.emplace(shape_, rows_);
  Answer<Candidate> candidate = evaluator_->evaluate(start, point.recompute);
  if (!candidate || !movable) return candidate;
  if (!candidate->fits()) {
    const std::vector<NodeId> begins = splitsToFit(shape_, *shared_->balancer, *evaluator_, point.recompute, start.begins);
    if (begins != start.begins) candidate = evaluator_->evaluate({SplitSource::Fit, begins}, point.recompute);
  }
  return candidate ? withOwnSplits(shape_, *std::move(candidate), rows_->rows) : candidate;
}

/// Of a schedule that is made for the costs.
Answer<Candidate> StudyWorker::withMadeOrder(PlanRequest request, const StudyPoint& point, const SplitStart& start, bool movable) {
  const OrderEffort effort{.seconds = study_.seconds, .shouldContinue = [this](double) { return shouldContinue_(); }};
  request.begins = start.begins;
  request.recompute = point.recompute;
  if (auto no = obstacleToOrder(request, *shared_->model, shape_.stages)) return *std::move(no);
  if (movable) request.begins = splitsForMadeOrder(shape_, *shared_->balancer, point.recompute, start.begins, effort);
  MadeOrder order = makeOrder(request, *shared_->model, shape_.stages, effort);
  Answer<Candidate> candidate = Evaluator(shape_, order.rows).evaluate({start.source, request.begins}, point.recompute);
  if (!candidate) return candidate;
  candidate->certificate = std::move(order.certificate);  // gone with other splits
  return movable ? withOwnSplits(shape_, *std::move(candidate), order.rows) : candidate;
}

StudyResult StudyWorker::run(const StudyPoint& point) {
  StudyResult result;
  result.point = point.number;
  try {
    const Answer<Candidate> candidate = evaluated(point);
    if (!candidate) {
      result.problem = candidate.refusal().why;
      return result;
    }
    const Candidate& c = *candidate;
    result.stages = c.stages;
    result.samples = c.samples;
    result.step = c.step;
    result.makespan = c.makespan;
    result.bubbleFraction = c.bubbleFraction;
    result.peak = c.peak;
    result.excess = c.excess;
    result.samplesPerSecond = c.samplesPerSecond;
    result.flopUtilisation = flopUtilisation(*shared_->profile.profile, c.samples, c.step, point.ranks * point.replicas);
    if (c.certificate) {
      result.lowerBound = c.certificate->lowerBound;
      result.foundBy = c.certificate->foundBy;
    }
    result.splits = fmt::format("{}", fmt::join(splitNames(shared_->points, c.request.begins), " "));
  } catch (const Error& error) {  // numbers of this point that are too large to add up: the others are not affected
    result.problem = error.what();
  } catch (const std::bad_alloc&) {  // no result: another time, or on another machine, there may be enough
    throw Error(fmt::format("there is not enough memory to simulate point {} of the study; use fewer threads, or fewer microbatches",
                            point.number));
  }
  return result;
}

}  // namespace pw
