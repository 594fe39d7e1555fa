#include "engine/run/session.h"

#include <algorithm>
#include <map>
#include <set>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "backends/resources/resources.h"
#include "engine/batch_agreement.h"
#include "engine/processes/failure.h"
#include "engine/processes/meeting.h"
#include "engine/run/connection.h"
#include "engine/run/job.h"
#include "engine/run/loss_log.h"
#include "engine/run/record.h"
#include "engine/training.h"
#include "engine/worker.h"
#include "schedules/error.h"
#include "simulator/plan/plan_fits.h"

namespace pw {
namespace {

constexpr const char* kTextKey = "session/0";
constexpr char kText = '=', kUnusable = '!', kFailed = ' ';  // how rank 0's word begins

RankEnvironment ownEnvironment() {
  if (const auto environment = rankEnvironment()) return *environment;
  return {};
}

void say(const JobPlace& place, char how, const std::string& text) {
  if (place.meeting) place.meeting->set(kTextKey, how + text);
}

bool isWeight(const StatePiece& piece, const OptimizerSpec& optimizer) {
  return std::ranges::none_of(stateNames(optimizer), [&](const std::string& name) { return piece.name.starts_with(name + "/"); });
}

/// With each parameter of its groups under the name that the graph reads it by.
OptimizerSpec withNamesOf(const ModelGraph& graph, OptimizerSpec optimizer) {
  if (optimizer.groups.empty()) return optimizer;
  const std::map<std::string, std::string> aliases = aliasesOf(graph);
  std::set<std::string_view> known;
  for (const StateTensor& parameter : graph.parameters) known.insert(parameter.name);
  for (OptimizerGroup& group : optimizer.groups) {
    for (std::string& name : group.parameters) {
      for (auto other = aliases.find(name); other != aliases.end(); other = aliases.find(name)) name = other->second;
      if (!known.contains(name))
        throw UsageError(fmt::format("The optimizer has the parameter {}, which the exported model does not have.", name));
    }
  }
  return optimizer;
}

}  // namespace

JobPlace joinJob(std::chrono::milliseconds deadline) {
  JobPlace place{ownEnvironment(), {}};
  if (place.environment.worldSize < 2) return place;
  place.meeting = openMeeting(rendezvousOf(place.environment, deadline));
  return place;
}

JobPlace forTraining(const JobPlace& place, int number) {
  JobPlace part = place;
  if (part.meeting) part.meeting = part.meeting->part(fmt::format("training{}", number));
  return part;
}

void tellRanks(const JobPlace& place, const std::string& text) { say(place, kText, text); }

void refuseRanks(const JobPlace& place, const std::string& sentence, bool unusable) {
  say(place, unusable ? kUnusable : kFailed, sentence);
}

std::string hearRankZero(const JobPlace& place) {
  const std::string word = place.meeting->dictionary().get(kTextKey);
  const std::string text = word.empty() ? "" : word.substr(1);
  if (word.starts_with(kUnusable)) throw UsageError("Rank 0: " + text);
  if (!word.starts_with(kText)) throw Error("Rank 0: " + text);
  return text;
}

struct TrainingSession::Parts {
  Parts(PlanToRun run, RankEnvironment where, RunObserver watching)
      : plan(std::move(run.plan)), settings(std::move(run.settings)), environment(std::move(where)), observer(std::move(watching)) {}

  Plan plan, ownPlan;  ///< of the job, and as the rank's replica runs it
  RunSettings settings;
  RankEnvironment environment;
  RunObserver observer;
  ModelGraph graph;
  RankContact contact;
  StoredRun stored{settings, plan};
  std::optional<TrainingRecord> record;
  std::optional<LossLog> log;
  TrainOptions options;
  const TorchBackend* torch = nullptr;
  std::unique_ptr<Training> training;
  SessionStep done;
  std::string notFinite;  ///< on rank 0: what of the step was not finite
  const StepWatcher* watch = nullptr;
  OptimizerSpec optimizer;
  std::string failure;  ///< why nothing more is possible
  bool closed = false;

  void begin(const JobPlace& place);
  void note(int step, const StepLog& own);
  void gathered(int step, std::vector<StepLog> ranks);
  void requireUsable() const;
  void meet(const char* call);
  template <class Work>
  auto guarded(const Work& work);
};

void TrainingSession::Parts::begin(const JobPlace& place) {
  requireWorldSize(environment, worldSize(plan), settings.request.plan);
  graph = loadModel(plan.modelFiles);
  requireFits(plan, graph);
  ownPlan = ofReplica(plan, replicasOf(plan.schedule).replica(environment.rank));
  settings.update = withNamesOf(graph, settings.update);
  refuseForModel(settings, plan, graph);
  const bool isFirst = environment.rank == JobRank(0);
  if (isFirst) {
    prepareFiles(settings);
    for (const std::string& sentence : notesOn(settings, plan)) observer.warn(sentence);
    for (const std::string& sentence : {lossNote(settings, plan, graph), decayNote(settings, plan, graph)}) {
      if (!sentence.empty()) observer.warn(sentence);
    }
  }
  options = trainOptions(settings, ownPlan);
  options.executor.flightJob = jobMark(environment);
  options.executor.sumLoss = true;
  options.stage.tell = [this](const std::string& what) { observer.warn(fmt::format("rank {} {}", environment.rank.value, what)); };
  options.onStep = [this](int step, const StepLog& own) { note(step, own); };
  options.onGathered = [this](int step, std::vector<StepLog> ranks) { gathered(step, std::move(ranks)); };
  ConnectedRank connected =
      connectRank({settings, plan, ownPlan, graph, environment, place.meeting}, std::move(options), contact, observer);
  options = std::move(connected.options);
  torch = &connected.torch;
  if (isFirst && !settings.request.store.empty()) record.emplace(settings, plan, options.firstStep, stored, observer.warn);
  if (isFirst && !settings.request.log.empty()) log.emplace(settings.request.log, !settings.request.resume.empty());
  optimizer = settings.update;
  training = std::make_unique<Training>(graph, ownPlan, options, *contact.communicator, *torch);
}

void TrainingSession::Parts::note(int step, const StepLog& own) {
  done = {step, own.loss.value_or(0), own.gradientNorm, own.skipped};
  if (log) log->add(step, own, learningRateAt(optimizer, step));
}

void TrainingSession::Parts::gathered(int step, std::vector<StepLog> ranks) {
  notFinite = nonFinite(ranks);
  if (watch != nullptr && *watch) {
    const Trace measured = joinTraces(ranks, plan.schedule.rows.size());
    (*watch)(step, measured, metricsOf(measured));
  }
  if (record) record->add(step, std::move(ranks));
}

void TrainingSession::Parts::requireUsable() const {
  if (!failure.empty()) throw Error(fmt::format("This training has ended: {}", failure));
  if (closed) throw UsageError("This training is closed; make another trainer to continue.");
}

/// All ranks make this call, and are done with the one before; a rank that ended its training makes another.
void TrainingSession::Parts::meet(const char* call) {
  agreeOnCall(call, {}, *contact.communicator);
  contact.communicator->barrier();
}

/// Lets the other ranks notice what ends this one.
template <class Work>
auto TrainingSession::Parts::guarded(const Work& work) {
  requireUsable();
  try {
    return work();
  } catch (const std::exception& problem) {
    failure = causeOf(problem);
    record.reset();  // its thread uses the store
    if (environment.rank == JobRank(0)) stored.fail(failure);
    if (contact.communicator) contact.communicator->abort();
    throw;
  }
}

TrainingSession::TrainingSession(const RunRequest& request, const JobPlace& place, std::function<void(const std::string&)> warn) {
  parts_ = std::make_unique<Parts>(planToRun(request), place.environment, RunObserver{std::move(warn), {}});
  Parts& p = *parts_;
  try {
    p.begin(place);
  } catch (const std::exception& problem) {
    p.failure = causeOf(problem);
    const bool stored = p.record.has_value();
    p.record.reset();
    if (stored) p.stored.fail(p.failure);
    if (p.contact.communicator) p.contact.communicator->abort();
    throw;
  }
}

TrainingSession::~TrainingSession() { close(false); }

const Plan& TrainingSession::plan() const { return parts_->plan; }
int TrainingSession::nextStep() const {
  parts_->requireUsable();
  return parts_->training->nextStep();
}

std::vector<std::string> TrainingSession::inputs() const {
  std::vector<std::string> names;
  for (const ValueId id : parts_->graph.inputs) names.push_back(parts_->graph.value(id).name);
  return names;
}

SessionStep TrainingSession::step(const OptimizerSpec& given, const StepWatcher& watch) {
  Parts& p = *parts_;
  p.requireUsable();
  const OptimizerSpec optimizer = withNamesOf(p.graph, given);
  if (!(optimizer == p.optimizer)) p.training->setOptimizer(optimizer);
  p.optimizer = optimizer;
  p.watch = &watch;
  try {
    p.training->agree();
  } catch (const UsageError&) {  // the same on all ranks, and nothing has happened
    throw;
  } catch (const std::exception&) {
    p.guarded([]() { throw; });
  }
  return p.guarded([&] {
    const int number = p.training->nextStep();
    if (p.training->step()) return p.done;
    if (p.notFinite.empty()) throw Error(fmt::format("Step {} is not finite; rank 0 says what was not.", number));
    throw Error(nonFiniteSentence(number, p.notFinite, p.settings.request.findNan) + ".");
  });
}

std::vector<StateTensorCopy> TrainingSession::weights() {
  Parts& p = *parts_;
  return p.guarded([&] {
    p.meet("state_dict");
    std::vector<StatePiece> own = p.training->state();
    std::erase_if(own, [&](const StatePiece& piece) { return !isWeight(piece, p.optimizer); });
    std::vector<StateTensorCopy> all = wholeState(own, *p.contact.communicator);
    for (const auto& [name, of] : aliasesOf(p.graph)) {
      const auto first = std::ranges::find(all, of, &StateTensorCopy::name);
      if (first == all.end() || std::ranges::find(all, name, &StateTensorCopy::name) != all.end()) continue;
      StateTensorCopy alias = *first;
      alias.name = name;
      all.push_back(std::move(alias));
    }
    return all;
  });
}

void TrainingSession::save(const std::string& path) {
  Parts& p = *parts_;
  p.guarded([&] { p.meet("save"); });
  try {
    p.training->save(path);
  } catch (const std::exception&) {  // a file that cannot be written fails on all ranks, and they continue; a lost rank ends them
    p.guarded([&] { p.contact.communicator->barrier(); });
    throw;
  }
}

void TrainingSession::load(const std::string& path, bool onlyWeights) {
  Parts& p = *parts_;
  p.requireUsable();
  const Resumption from = resumptionOf(path, p.optimizer, onlyWeights);  // before anything is given up
  p.guarded([&] {
    TrainOptions options = p.options;
    options.firstStep = from.firstStep;
    options.stage.updates = from.updates;
    options.resumeNote = onlyWeights ? "" : from.note;
    options.executor.lossScale = from.lossScale ? LossScale(*from.lossScale, from.goodSteps) : LossScale();
    if (!onlyWeights && !p.settings.request.seed) options.stage.seed = seedIn(path).value_or(options.stage.seed);
    options.stage.resume = path;
    options.stage.resetOptimizer = onlyWeights;
    options.stage.optimizer = p.optimizer;
    p.meet("load");
    p.training.reset();
    p.training = std::make_unique<Training>(p.graph, p.ownPlan, options, *p.contact.communicator, *p.torch);
  });
}

void TrainingSession::close(bool inOrder) noexcept {
  if (parts_ == nullptr || std::exchange(parts_->closed, true)) return;
  Parts& p = *parts_;
  try {
    if (p.failure.empty() && p.training != nullptr && inOrder) {
      p.meet("the end");  // nobody leaves before the others have what it sent
      if (p.record) static_cast<void>(p.record->finish({p.training->log()}));
    } else if (p.failure.empty() && p.record) {
      p.record.reset();
      p.stored.fail("the program ended before it closed the training");
    }
  } catch (const std::exception& problem) {
    p.observer.warn(fmt::format("the training did not shut down cleanly: {}", causeOf(problem)));
  }
  p.training.reset();
  p.record.reset();
  p.contact.communicator.reset();
}

}  // namespace pw
