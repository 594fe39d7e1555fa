#include "app/gui/candidates/plan_search.h"

#include <mutex>
#include <utility>

#include "backends/resources/resources.h"
#include "simulator/search/profiles.h"

namespace pw::gui {

/// Candidates passed from the searching threads to the window.
struct PlanSearch::Queue {
  std::mutex mutex;
  std::vector<Candidate> candidates;

  void add(const Candidate& candidate) {
    const std::lock_guard lock(mutex);
    candidates.push_back(candidate);
  }
  std::vector<Candidate> take() {
    const std::lock_guard lock(mutex);
    return std::exchange(candidates, {});
  }
};

SearchBasis::SearchBasis(const Design& design)
    : cluster(design.cluster), precision(design.precision), attention(design.attention), profile(design.profile), base(design.request) {
  base = {.schedule = {},
          .ranks = base.ranks,
          .chunks = 0,
          .microbatches = 0,
          .replicas = base.replicas,
          .microbatch = 0,
          .batch = 0,
          .begins = {},
          .replicaBegins = {},
          .loss = base.loss,
          .recompute = RecomputeNone(),
          .sharing = base.sharing,
          .optimizer = base.optimizer,
          .zero1 = base.zero1,
          .memoryLimit = base.memoryLimit,
          .rankOrder = {}};
}

QString skippedIn(const Found& found) {
  if (found.skipped.empty()) return {};
  return found.skipped.size() == 1 ? PlanSearch::tr("1 combination is impossible.")
                                   : PlanSearch::tr("%1 combinations are impossible.").arg(found.skipped.size());
}

QString reasonsIn(const Found& found) {
  QStringList reasons;
  for (const std::string& reason : found.skipped) reasons << QString::fromStdString(reason);
  return reasons.join(QLatin1Char('\n'));
}

PlanSearch::PlanSearch(QObject* parent) : QObject(parent) {
  arrivals_.setInterval(120);
  connect(&arrivals_, &QTimer::timeout, this, [this] { drain(); });
  connect(&job_, &Job::progressed, this, [this](qint64 done, qint64 all, const QString&) { emit progressed(done, all); });
  connect(&job_, &Job::failed, this, &PlanSearch::failed);
  connect(&job_, &Job::finished, this, [this] {
    drain();
    drop();
    arrivals_.stop();
    emit ended();
  });
}

void PlanSearch::start(std::shared_ptr<const ModelGraph> graph, const Design& design, const SearchSpace& space) {
  queue_ = std::make_shared<Queue>();
  arrivals_.start();
  job_.start(
      tr("Search plans"), [this, graph = std::move(graph), space, queue = queue_, design](JobControl& control) -> std::function<void()> {
        const Cluster cluster = design.profile ? Cluster{} : loadCluster(design.cluster);
        const ProfileSource source = design.profile
                                         ? measuredProfiles({design.profile})
                                         : estimatedProfiles(*graph, cluster, design.precision, design.attention, design.request.loss);
        auto result = std::make_shared<Found>(searchPlans(*graph, source, space, [&](int done, int all, const Candidate* candidate) {
          if (candidate != nullptr) queue->add(*candidate);
          control.progress(done, all);
          return !control.isCancelled();
        }));
        return [this, result] {
          queue_.reset();  // all of it is in the result
          emit found(*result);
        };
      });
}

void PlanSearch::stop() {
  drain();
  job_.cancel();
}

void PlanSearch::drop() {
  queue_.reset();
  if (job_.isRunning()) job_.cancel();
}

void PlanSearch::drain() {
  if (!queue_) return;
  if (const std::vector<Candidate> more = queue_->take(); !more.empty()) emit arrived(more);
}

}  // namespace pw::gui
