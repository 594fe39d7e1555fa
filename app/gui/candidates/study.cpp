#include "app/gui/candidates/study.h"

#include <QFileInfo>
#include <algorithm>
#include <iterator>
#include <limits>
#include <memory>
#include <set>
#include <sstream>
#include <utility>

#include "app/gui/common/format.h"
#include "engine/planning/study_worker.h"
#include "schedules/error.h"
#include "simulator/costs/layer_chain.h"
#include "simulator/partition/split.h"

namespace pw::gui {

std::vector<Candidate> StudyPlans::candidates() const {
  std::vector<Candidate> all;
  for (const auto& [p, r] : rows) {
    Candidate c;
    c.request.schedule = p.schedule;
    c.request.ranks = p.ranks;
    c.request.replicas = p.replicas;
    c.request.chunks = r.stages / p.ranks;
    c.request.microbatches = p.microbatches;
    const std::int64_t parts = std::int64_t{p.replicas} * p.microbatches;
    c.request.microbatch = (r.samples + parts - 1) / parts;
    c.request.batch = r.samples;
    c.request.recompute = p.recompute;
    c.request.optimizer = p.optimizer;
    c.request.zero1 = p.zero1;
    c.request.memoryLimit = p.memoryLimit;
    c.stages = r.stages;
    c.split = splitSource(p.balance);
    c.step = r.step;
    c.makespan = r.makespan;
    c.bubbleFraction = r.bubbleFraction;
    c.peak = r.peak;
    c.excess = r.excess;
    c.samples = r.samples;
    c.samplesPerSecond = r.samplesPerSecond;
    if (!r.foundBy.empty()) c.certificate = Certificate{StepClock::Flush, r.makespan, r.lowerBound, r.foundBy, {}};
    all.push_back(std::move(c));
  }
  return all;
}

StudyPlans readStudy(const std::string& path) {
  constexpr int kMost = 20'000;
  const StudyStore store(path);
  return {path, store.counts(), pointsOf(store.study()), !store.study().profiles.empty(), store.best(kMost)};
}

namespace {

std::string folderOf(const StudyPlans& study) { return QFileInfo(QString::fromStdString(study.path)).absolutePath().toStdString(); }

/// Empty where the model has them no more.
std::vector<NodeId> beginsOf(const ModelGraph& graph, const std::string& splits) {
  std::vector<NodeId> begins;
  std::istringstream names(splits);
  try {
    for (std::string name; names >> name;) begins.push_back(findSplit(graph, name));
  } catch (const UsageError&) {
    begins.clear();
  }
  return begins;
}

void markFrontOfRanks(const std::set<int>& known, std::vector<ScatterPoint>& points) {
  std::vector<ScatterPoint*> order;
  order.reserve(points.size());
  for (ScatterPoint& point : points) order.push_back(&point);
  std::ranges::stable_sort(order, {}, [](const ScatterPoint* p) { return std::pair(p->time, p->bytes); });
  for (const int ranks : known) {
    Bytes least = std::numeric_limits<Bytes>::max();
    for (ScatterPoint* point : order) {
      if (point->ranks > ranks) continue;
      if (point->ranks == ranks) point->front = point->bytes < least;
      least = std::min(least, point->bytes);
    }
  }
}

}  // namespace

QString countsOf(const StudyPlans& study) {
  return translated("%1: %2 of %3 points, %4 fit, %5 need too much memory, %6 are impossible.")
      .arg(QFileInfo(QString::fromStdString(study.path)).fileName())
      .arg(study.counts.done)
      .arg(study.points)
      .arg(study.counts.fitting)
      .arg(study.counts.tooLarge)
      .arg(study.counts.impossible);
}

void showRanks(const std::vector<Candidate>& candidates, std::vector<ScatterPoint>& points) {
  std::set<int> known;
  for (const Candidate& c : candidates) known.insert(c.request.ranks * c.request.replicas);
  if (known.size() < 2) return;
  for (std::size_t i = 0; i < points.size(); ++i) {
    ScatterPoint& point = points[i];
    point.ranks = candidates[i].request.ranks * candidates[i].request.replicas;
    const auto place = static_cast<double>(std::distance(known.begin(), known.find(point.ranks)));
    point.scale = 0.7 + 0.7 * place / static_cast<double>(known.size() - 1);
    point.title = translated("%1, ranks %2").arg(point.title).arg(point.ranks);
  }
  markFrontOfRanks(known, points);
}

std::string clusterOf(const StudyPlans& study, const StudyPoint& point) {
  return isClusterFile(point.cluster) ? studyPath(folderOf(study), point.cluster) : point.cluster;
}

QString whyNotLoaded(const StudyPlans& study, const StudyPoint& point, const std::string& openModel) {
  const QString name = QFileInfo(QString::fromStdString(point.model)).fileName();
  if (QFileInfo(QString::fromStdString(openModel)).fileName() != name) return translated("Open %1 to load this plan.").arg(name);
  if (study.measured) return translated("This plan has measured costs of the study's profiles; use `pipewright plan --profile`.");
  if (!isClusterFile(point.cluster)) return {};
  if (const std::string file = clusterFile(folderOf(study), point.cluster); !QFileInfo::exists(QString::fromStdString(file)))
    return translated("This plan is for the cluster file %1, which is not there; move the study's results beside it.")
        .arg(QString::fromStdString(file));
  return {};
}

void takeStudied(const StudyPlans& study, const StudyRow& plan, const ModelGraph& graph, Design& design) {
  const StudyPoint& point = plan.point;
  design.customRows = nullptr;
  design.request.optimizer = point.optimizer;
  design.request.zero1 = point.zero1;
  design.request.memoryLimit = point.memoryLimit;
  design.request.begins = beginsOf(graph, plan.result.splits);
  design.precision = point.precision;
  design.attention = point.attention;
  design.profile.reset();
  if (const std::string cluster = clusterOf(study, point); !cluster.empty()) {
    design.cluster = cluster;
  } else {
    design.profile = std::make_shared<const Profile>(profileOf(graph));  // a layer table's own
  }
}

}  // namespace pw::gui
