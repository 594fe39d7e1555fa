#include "app/gui/candidates/study.h"

#include <QCoreApplication>
#include <QFileInfo>
#include <algorithm>
#include <iterator>
#include <limits>
#include <set>
#include <utility>

#include "backends/resources/resources.h"

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
    c.split = std::string(nameOf(p.balance));
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

QString tr(const char* text) { return QCoreApplication::translate("pw::gui::Study", text); }

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

void showRanks(const std::vector<Candidate>& candidates, std::vector<ScatterPoint>& points) {
  std::set<int> known;
  for (const Candidate& c : candidates) known.insert(c.request.ranks * c.request.replicas);
  if (known.size() < 2) return;
  for (std::size_t i = 0; i < points.size(); ++i) {
    ScatterPoint& point = points[i];
    point.ranks = candidates[i].request.ranks * candidates[i].request.replicas;
    const auto place = static_cast<double>(std::distance(known.begin(), known.find(point.ranks)));
    point.scale = 0.7 + 0.7 * place / static_cast<double>(known.size() - 1);
    point.title = tr("%1, ranks %2").arg(point.title).arg(point.ranks);
  }
  markFrontOfRanks(known, points);
}

QString whyNotLoaded(const StudyPlans& study, const StudyPoint& point, const std::string& openModel) {
  const QString name = QFileInfo(QString::fromStdString(point.model)).fileName();
  if (QFileInfo(QString::fromStdString(openModel)).fileName() != name) return tr("Open %1 to load this plan.").arg(name);
  if (point.precision != "traced" || point.attention != Attention::AsTraced)
    return tr("This plan was estimated in %1 with attention %2, which the app does not estimate; use `pipewright plan`.")
        .arg(QString::fromStdString(point.precision), QString::fromUtf8(nameOf(point.attention).data()));
  if (point.cluster.empty()) return tr("This plan has the times of a layer table; use `pipewright plan --layers`.");
  if (study.measured) return tr("This plan has measured costs of the study's profiles; use `pipewright plan --profile`.");
  const std::string preset = point.cluster.substr(0, point.cluster.find('+'));
  if (!point.cluster.empty() && std::ranges::count(clusterPresets(), preset) == 0)
    return tr("This plan was made for the cluster file %1; open that file first, or use `pipewright plan`.")
        .arg(QString::fromStdString(point.cluster));
  return {};
}

}  // namespace pw::gui
