#include "app/gui/document/document.h"

#include <QMetaObject>
#include <algorithm>
#include <condition_variable>
#include <functional>
#include <map>
#include <mutex>
#include <thread>
#include <utility>

#include "app/gui/document/drawn.h"
#include "app/gui/document/job_design.h"
#include "app/gui/document/loading.h"
#include "backends/resources/resources.h"
#include "schedules/error.h"
#include "simulator/costs/estimate.h"
#include "simulator/partition/split.h"
#include "simulator/partition/stage_costs.h"
#include "simulator/plan/made_order.h"
#include "simulator/step/compile.h"

namespace pw::gui {
namespace {

constexpr std::size_t kMostUndo = 100'000;  // a design is a few hundred bytes

}  // namespace

/// The worker's result for one request.
struct Document::Answer {
  std::uint64_t number = 0;
  std::shared_ptr<const Prediction> prediction;
  std::shared_ptr<const Profile> profile;
  Cluster cluster;
  std::optional<std::vector<SplitPoint>> splitPoints;  ///< where the microbatch changed
  std::vector<NodeId> begins;                          ///< as given, or balanced
  std::optional<Certificate> certificate;              ///< of an order made for this design
  bool ordering = false;                               ///< a better order follows
  QString problem;
};

/// A thread that predicts the newest design it was given.
struct Document::Worker {
  struct Request {
    std::uint64_t number = 0;
    Design design;
    std::shared_ptr<const ModelGraph> graph;
  };

  explicit Worker(Document& document) : document_(document), thread_([this] { run(); }) {}
  ~Worker() {
    {
      const std::lock_guard lock(mutex_);
      stop_ = true;
    }
    wake_.notify_one();
    thread_.join();
  }
  void ask(Request request) {
    {
      const std::lock_guard lock(mutex_);
      next_ = std::move(request);
    }
    wake_.notify_one();
  }

 private:
  void run() {
    for (;;) {
      Request request;
      {
        std::unique_lock lock(mutex_);
        wake_.wait(lock, [this] { return stop_ || next_; });
        if (stop_) return;
        request = std::move(*next_);
        next_.reset();
      }
      const bool orders = request.graph && !request.design.customRows && !drawnOf(request.design) &&
                          madeSchedule(request.design.request.schedule) != nullptr;
      const Answer first = answerTo(request, [&](Answer& answer) {
        predict(request, answer);
        answer.ordering = orders;
      });
      give(first);
      if (!orders || !first.prediction) continue;
      Answer second = answerTo(request, [&](Answer& answer) { order(request, first, answer); });
      if (second.prediction || !second.problem.isEmpty()) give(std::move(second));
    }
  }

  void give(Answer answer) {
    QMetaObject::invokeMethod(
        &document_, [this, answer = std::move(answer)] { document_.take(answer); }, Qt::QueuedConnection);
  }

  /// Whether another design is waiting, or the document ends.
  bool isSuperseded() {
    const std::lock_guard lock(mutex_);
    return stop_ || next_;
  }

  Answer answerTo(const Request& request, const std::function<void(Answer&)>& fill) {
    Answer answer;
    answer.number = request.number;
    answer.begins = request.design.request.begins;
    try {
      fill(answer);
    } catch (const std::bad_alloc&) {
      answer.problem = tr("There is not enough memory to simulate this plan; use fewer microbatches.");
    } catch (const std::exception& e) {
      answer.problem = QString::fromUtf8(e.what());
    }
    return answer;
  }

  void predict(const Request& request, Answer& answer) {
    const Design& design = request.design;
    if (!request.graph && !design.customCosts) return;  // nothing is open
    if (!request.graph) {
      answer.prediction = predictor_.predict(design.customRows ? design.customRows : drawnRows(design), *design.customCosts);
      return;
    }
    costsOf(request, answer);
    PlanRequest wanted = design.request;
    const int stages = stagesOf(design);
    if (static_cast<int>(wanted.begins.size()) + 1 != stages && request.design.job) {
      wanted.begins = evenBegins(request.design.job->job, stages);
      answer.begins = wanted.begins;
    } else if (static_cast<int>(wanted.begins.size()) + 1 != stages) {
      const auto drawn = drawnOf(design);
      wanted.begins = drawn ? balancedSplits(*request.graph, *answer.profile, stages, Balance::Time,
                                             slownessOn(drawnFor(design, *drawn).placement, wanted, *answer.profile))
                            : balancedFor(wanted, *request.graph, *answer.profile, stages, Balance::Time);
      answer.begins = wanted.begins;
    }
    answer.prediction = priced(request, wanted, *answer.profile, rowsOf(request, wanted, answer));
  }

  /// With the times of the model, or of the design's job.
  std::shared_ptr<const Prediction> priced(const Request& request, const PlanRequest& wanted, const Profile& profile,
                                           const std::shared_ptr<const Schedule>& rows) {
    if (!request.design.job) return predictor_.predict(wanted, *request.graph, profile, rows);
    return predictor_.predict(wanted, *request.graph, profile, rows, jobTimes_.of(request.design.job, wanted, rows));
  }

  /// An order made for the costs of a design that was already answered; nothing where another design comes meanwhile.
  void order(const Request& request, const Answer& first, Answer& answer) {
    answer = first;
    answer.prediction.reset();
    answer.splitPoints.reset();
    answer.ordering = false;
    PlanRequest wanted = request.design.request;
    wanted.begins = first.begins;
    ModelCosts model(*request.graph, *first.profile, wanted.microbatch);
    const OrderEffort effort{.threads = kOrderThreads, .goOn = [this](double) { return !isSuperseded(); }};
    MadeOrder made = makeOrder(wanted, model, stagesOf(request.design), effort);
    if (isSuperseded()) return;
    rows_ = std::make_shared<const Schedule>(std::move(made.rows));
    answer.certificate = std::move(made.certificate);
    answer.prediction = priced(request, wanted, *first.profile, rows_);
  }

  /// Rows of the design's schedule; the previous ones if nothing changed, so that the predictor recognises them. For `auto` those of the
  /// last costs, or at first those of a short search.
  std::shared_ptr<const Schedule> rowsOf(const Request& request, const PlanRequest& wanted, const Answer& answer) {
    const OrderEffort atOnce{.seconds = 0.02};
    if (request.design.customRows) return request.design.customRows;
    if (drawnOf(request.design)) return drawnRows(request.design);
    const int stages = stagesOf(request.design);
    const auto key = std::tuple(wanted.schedule, wanted.ranks, stages, wanted.microbatches, wanted.replicas, wanted.rankOrder);
    if (rows_ && key == rowsKey_) return rows_;
    ModelCosts model(*request.graph, *answer.profile, wanted.microbatch);
    rows_ = std::make_shared<const Schedule>(rowsFor(wanted, model, stages, atOnce));
    rowsKey_ = key;
    return rows_;
  }

  /// Rows of the design's drawn schedule; the previous ones if nothing changed.
  std::shared_ptr<const Schedule> drawnRows(const Design& design) {
    const auto drawn = drawnOf(design);
    if (drawn == nullptr)
      throw UsageError(tr("There is no schedule %1; choose another.").arg(QString::fromStdString(design.request.schedule)).toStdString());
    const auto key = std::tuple(drawn, design.request.ranks, design.request.chunks, design.request.microbatches, design.request.replicas);
    if (drawnRows_ && key == drawnKey_) return drawnRows_;
    drawnRows_ = std::make_shared<const Schedule>(planRows(drawnFor(design, *drawn), design.request.replicas));
    drawnKey_ = key;
    return drawnRows_;
  }

  static std::vector<double> slownessOn(const Placement& placement, const PlanRequest& request, const Profile& profile) {
    return allAtFullSpeed(profile.topology) ? std::vector<double>() : stageSlowness(profile, placement, request.replicas);
  }

  /// Profile, cluster and split points of the request's model; kept until model, microbatch or cluster change.
  void costsOf(const Request& request, Answer& answer) {
    const Design& design = request.design;
    if (design.cluster != clusterName_) {
      cluster_ = loadCluster(design.cluster);
      clusterName_ = design.cluster;
      estimated_.reset();
    }
    answer.cluster = cluster_;
    if (request.graph != graph_ || design.request.microbatch != microbatch_) {
      answer.splitPoints = pw::splitPoints(*request.graph, bindBatch(*request.graph, design.request.microbatch));
      graph_ = request.graph;
      microbatch_ = design.request.microbatch;
      estimated_.reset();
    }
    if (design.profile) {
      if (design.profile->microbatch != microbatch_) {
        throw UsageError(
            tr("Costs were measured with microbatches of %1 samples, but the plan has %2; profile again, or use estimated costs.")
                .arg(design.profile->microbatch)
                .arg(microbatch_)
                .toStdString());
      }
      answer.profile = design.profile;
      return;
    }
    const auto how = std::pair(design.precision, design.attention);
    if (!estimated_ || how != how_)
      estimated_ = std::make_shared<const Profile>(estimate(*request.graph, microbatch_, cluster_, design.precision, design.attention));
    how_ = how;
    answer.profile = estimated_;
  }

  Document& document_;
  Predictor predictor_;
  std::shared_ptr<const Schedule> rows_;
  std::tuple<std::string, int, int, int, int, std::vector<Rank>> rowsKey_;
  std::shared_ptr<const Schedule> drawnRows_;
  std::tuple<std::shared_ptr<const Schedule>, int, int, int, int> drawnKey_;
  std::shared_ptr<const ModelGraph> graph_;
  std::int64_t microbatch_ = 0;
  std::string clusterName_;
  Cluster cluster_;
  std::shared_ptr<const Profile> estimated_;
  std::pair<DType, Attention> how_;
  JobTimes jobTimes_;

  std::mutex mutex_;
  std::condition_variable wake_;
  std::optional<Request> next_;
  bool stop_ = false;
  std::thread thread_;  ///< last member: starts when everything else exists
};

Document::Document(QObject* parent) : QObject(parent), saved_(Design{}), worker_(std::make_unique<Worker>(*this)) {}

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
  if (design == design_) return;
  if (!beforeDrag_) remember(what, design_);
  apply(design);
}

void Document::beginDrag(const QString& what) {
  if (beforeDrag_) return;
  beforeDrag_ = design_;
  dragName_ = what;
}

void Document::endDrag(bool keep) {
  if (!beforeDrag_) return;
  const Design before = *std::exchange(beforeDrag_, std::nullopt);
  if (before == design_) return;
  if (!keep) return apply(before);
  remember(dragName_, before);
  if (!isPredicting()) emit predictionChanged();  // for what was put off during the drag
}

void Document::undo() {
  endDrag(false);
  if (undo_.empty()) return;
  Step step = std::move(undo_.back());
  undo_.pop_back();
  redo_.push_back({step.what, design_});
  apply(step.design);
  emit undoChanged();
}

void Document::redo() {
  endDrag(false);
  if (redo_.empty()) return;
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

void Document::take(const Answer& answer) {
  answered_ = std::max(answered_, answer.number);
  if (answer.number <= adopted_) return;
  problem_ = answer.problem;
  certificate_ = answer.certificate;
  ordering_ = answer.ordering && problem_.isEmpty();
  if (answer.prediction) prediction_ = answer.prediction;
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

}  // namespace pw::gui
