#include "app/gui/document/document.h"

#include <algorithm>
#include <utility>

#include "app/gui/document/loading.h"
#include "app/gui/document/prediction_worker.h"
#include "schedules/error.h"
#include "simulator/partition/stage_costs.h"
#include "simulator/plan/planner.h"

namespace pw::gui {
namespace {

constexpr std::size_t kMostUndo = 100'000;  // a design is a few hundred bytes

}  // namespace

bool CertifiedOrder::isOf(const Design& design) const {
  return request == design.request && profile == design.profile && cluster == design.cluster && precision == design.precision &&
         attention == design.attention;
}

Document::Document(QObject* parent)
    : QObject(parent),
      saved_(Design{}),
      worker_(std::make_unique<PredictionWorker>(*this, [this](const PredictionAnswer& answer) { take(answer); })) {}

Document::~Document() { worker_.reset(); }

bool Document::isPredicting() const { return answered_ < requested_; }

QString Document::title() const { return title_; }

Plan Document::plan() const {
  if (!graph_) throw UsageError(tr("No model is open, so there is nothing to plan; open one first.").toStdString());
  if (isPredicting() || !prediction_ || !problem_.isEmpty()) {
    throw UsageError(problem_.isEmpty() ? tr("The plan is still being predicted; try again in a moment.").toStdString()
                                        : problem_.toStdString());
  }
  return planOf(design_.request, *graph_, *profile_, *prediction_->rows, prediction_->priced, splitPoints_);
}

// ---- Edits ----

void Document::remember(const QString& what, const Design& before) {
  undo_.push_back({what, before});
  if (undo_.size() > kMostUndo) undo_.erase(undo_.begin());
  redo_.clear();
  emit undoChanged();
}

void Document::edit(const QString& what, const std::function<void(Design&)>& change) {
  Design design = design_;
  change(design);
  PlanRequest& request = design.request;
  if (request.rankOrder.size() != static_cast<std::size_t>(request.ranks)) request.rankOrder.clear();  // of another number of ranks
  // Splits of each replica stay where they were chosen, as long as nothing gives all replicas others.
  const PlanRequest& old = design_.request;
  if (request.replicaBegins == old.replicaBegins &&
      (request.begins != old.begins || request.replicas != old.replicas || stagesOf(design) != stagesOf(design_)))
    request.replicaBegins.clear();
  if (design == design_) return;
  if (!beforeDrag_) {
    noteBefore();
    remember(what, design_);
  }
  apply(design);
}

/// Of changes that follow each other faster than they are predicted, the first counts.
void Document::noteBefore() {
  if (!isPredicting() && problem_.isEmpty()) before_ = prediction_;
}

void Document::beginDrag(const QString& what) {
  if (beforeDrag_) return;
  noteBefore();
  beforeDrag_ = design_;
  dragName_ = what;
}

void Document::endDrag(bool keep) {
  if (!beforeDrag_) return;
  const Design before = *std::exchange(beforeDrag_, std::nullopt);
  if (before == design_) return;
  if (!keep) {
    before_.reset();
    return apply(before);
  }
  remember(dragName_, before);
  if (!isPredicting()) emit predictionChanged();  // for what was put off during the drag
}

void Document::undo() {
  endDrag(false);
  if (undo_.empty()) return;
  noteBefore();
  Step step = std::move(undo_.back());
  undo_.pop_back();
  redo_.push_back({step.what, design_});
  apply(step.design);
  emit undoChanged();
}

void Document::redo() {
  endDrag(false);
  if (redo_.empty()) return;
  noteBefore();
  Step step = std::move(redo_.back());
  redo_.pop_back();
  undo_.push_back({step.what, design_});
  apply(step.design);
  emit undoChanged();
}

QString Document::undoText() const { return undo_.empty() ? QString() : undo_.back().what; }
QString Document::redoText() const { return redo_.empty() ? QString() : redo_.back().what; }

void Document::apply(const Design& design) {
  Design noted = design_;
  noted.notes = design.notes;
  const bool isPredicted = noted == design;
  design_ = design;
  if (!isPredicted) request();
  emit designChanged();
}

// ---- Predictions ----

void Document::request() { worker_->ask({++requested_, design_, graph_}); }

void Document::take(const PredictionAnswer& answer) {
  answered_ = std::max(answered_, answer.number);
  if (answer.number <= adopted_) return;
  problem_ = answer.problem;
  certificate_ = answer.certificate;
  ordering_ = answer.ordering && problem_.isEmpty();
  if (answer.prediction) {
    prediction_ = answer.prediction;
    predicted_ = answer.request;
  }
  if (answer.profile) {
    profile_ = answer.profile;
    cluster_ = answer.cluster;
  }
  if (answer.splitPoints) {
    splitPoints_ = *answer.splitPoints;
    emit modelChanged();
  }
  if (answer.number == requested_ && answer.begins != design_.request.begins) {  // balanced: part of the edit that requested it
    design_.request.begins = answer.begins;
    emit designChanged();
  }
  emit predictionChanged();
}

// ---- Files ----

void Document::adopt(const Loaded& loaded) {
  if (!loaded.store.isEmpty()) setStorePath(loaded.store);
  if (loaded.hasDesign) {
    beforeDrag_.reset();
    undo_.clear();
    redo_.clear();
    title_ = loaded.title;
    graph_ = loaded.graph;
    splitPoints_ = loaded.splitPoints;
    profile_.reset();
    prediction_.reset();
    before_.reset();
    certificate_.reset();
    ordering_ = false;
    problem_.clear();
    design_ = loaded.design;
    saved_ = loaded.design;
    adopted_ = requested_;
    setProjectPath(loaded.project);
    setMeasured(nullptr);
    request();
    emit modelChanged();
    emit designChanged();
    emit predictionChanged();
    emit undoChanged();
  }
  if (!loaded.measured.empty()) {
    if (title_.isEmpty()) title_ = loaded.title;
    setMeasured(loaded.measured.at(loaded.chosen));
  }
}

void Document::setStorePath(const QString& path) {
  storePath_ = path;
  emit storeChanged();
}

void Document::setProjectPath(const QString& path) {
  projectPath_ = path;
  emit undoChanged();
}

bool Document::isModified() const { return saved_ != design_; }

void Document::markSaved() {
  saved_ = design_;
  emit undoChanged();
}

void Document::markUnsaved() {
  saved_.reset();
  emit undoChanged();
}

void Document::setMeasured(std::shared_ptr<const Measured> measured) {
  measured_ = std::move(measured);
  emit measuredChanged();
}

std::vector<Bytes> Document::rankLimits() const {
  if (!prediction()) return {};
  PlanRequest request = predicted();
  request.memoryLimit = design().request.memoryLimit;
  const std::size_t ranks = prediction()->ranks.size();
  const std::vector<Bytes> ofPlan(ranks, request.memoryLimit);
  // While a design is not possible, the profile may be of a cluster with fewer ranks than the prediction before it.
  const bool isOfProfile = profile() && graph() && !lackOfRanks(*profile(), static_cast<int>(ranks) * request.replicas);
  return isOfProfile ? memoryLimits(request, *profile(), ranks) : ofPlan;
}

}  // namespace pw::gui
