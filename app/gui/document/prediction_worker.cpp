#include "app/gui/document/prediction_worker.h"

#include <QMetaObject>
#include <condition_variable>
#include <mutex>
#include <new>
#include <string>
#include <thread>
#include <tuple>
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

namespace pw::gui {

struct PredictionWorker::Private {
  Private(QObject& owner, std::function<void(const PredictionAnswer&)> take)
      : owner_(owner), take_(std::move(take)), thread_([this] { run(); }) {}
  ~Private() {
    {
      const std::lock_guard lock(mutex_);
      stop_ = true;
    }
    wake_.notify_one();
    thread_.join();
  }
  void ask(PredictionRequest request) {
    {
      const std::lock_guard lock(mutex_);
      next_ = std::move(request);
    }
    wake_.notify_one();
  }

 private:
  void run() {
    for (;;) {
      PredictionRequest request;
      {
        std::unique_lock lock(mutex_);
        wake_.wait(lock, [this] { return stop_ || next_; });
        if (stop_) return;
        request = std::move(*next_);
        next_.reset();
      }
      const bool orders = request.graph && !request.design.customRows && !drawnOf(request.design) &&
                          madeSchedule(request.design.request.schedule) != nullptr;
      const PredictionAnswer first = answerTo(request, [&](PredictionAnswer& answer) {
        predict(request, answer);
        answer.ordering = orders;
      });
      give(first);
      if (!orders || !first.prediction) continue;
      PredictionAnswer second = answerTo(request, [&](PredictionAnswer& answer) { order(request, first, answer); });
      if (second.prediction || !second.problem.isEmpty()) give(std::move(second));
    }
  }

  void give(PredictionAnswer answer) {
    QMetaObject::invokeMethod(
        &owner_, [take = take_, answer = std::move(answer)] { take(answer); }, Qt::QueuedConnection);
  }

  /// Whether another design is waiting, or the document ends.
  bool isSuperseded() {
    const std::lock_guard lock(mutex_);
    return stop_ || next_;
  }

  PredictionAnswer answerTo(const PredictionRequest& request, const std::function<void(PredictionAnswer&)>& fill) {
    PredictionAnswer answer;
    answer.number = request.number;
    answer.request = request.design.request;
    answer.begins = request.design.request.begins;
    try {
      fill(answer);
    } catch (const std::bad_alloc&) {
      answer.problem = Document::tr("There is not enough memory to simulate this plan; use fewer microbatches.");
    } catch (const std::exception& e) {
      answer.problem = QString::fromUtf8(e.what());
    }
    return answer;
  }

  void predict(const PredictionRequest& request, PredictionAnswer& answer) {
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
                                             speedsOn(drawnFor(design, *drawn).placement, wanted, *answer.profile))
                            : balancedFor(wanted, *request.graph, *answer.profile, stages, Balance::Time);
      answer.begins = wanted.begins;
    }
    answer.prediction = priced(request, wanted, *answer.profile, rowsOf(request, wanted, answer));
    if (design.certified && design.customRows && design.certified->isOf(design)) answer.certificate = design.certified->certificate;
    if (!wanted.replicaBegins.empty()) answer.begins = beginsOf(answer.prediction->priced.partition);  // of the slowest replica
  }

  /// With the times of the model, or of the design's job.
  std::shared_ptr<const Prediction> priced(const PredictionRequest& request, const PlanRequest& wanted, const Profile& profile,
                                           const std::shared_ptr<const Schedule>& rows) {
    if (!request.design.job) return predictor_.predict(wanted, *request.graph, profile, rows);
    return predictor_.predict(wanted, *request.graph, profile, rows, jobTimes_.of(request.design.job, wanted, rows));
  }

  /// An order made for the costs of a design that was already answered; nothing where another design comes meanwhile.
  void order(const PredictionRequest& request, const PredictionAnswer& first, PredictionAnswer& answer) {
    answer = first;
    answer.prediction.reset();
    answer.splitPoints.reset();
    answer.ordering = false;
    PlanRequest wanted = request.design.request;
    wanted.begins = first.begins;
    const OrderEffort effort{.threads = kOrderThreads, .shouldContinue = [this](double) { return !isSuperseded(); }};
    if (request.design.job) {
      JobTimes::Order made = jobTimes_.order(request.design.job, wanted, stagesOf(request.design), effort);
      if (isSuperseded()) return;
      rows_ = std::make_shared<const Schedule>(std::move(made.rows));
      answer.certificate = std::move(made.certificate);
    } else {
      ModelCosts model(*request.graph, *first.profile, wanted.microbatch);
      MadeOrder made = makeOrder(wanted, model, stagesOf(request.design), effort);
      if (isSuperseded()) return;
      rows_ = std::make_shared<const Schedule>(std::move(made.rows));
      answer.certificate = std::move(made.certificate);
    }
    answer.prediction = priced(request, wanted, *first.profile, rows_);
  }

  /// Rows of the design's schedule; the previous ones if nothing changed, so that the predictor recognises them. For `auto` those of the
  /// last costs, or at first those of a short search.
  std::shared_ptr<const Schedule> rowsOf(const PredictionRequest& request, const PlanRequest& wanted, const PredictionAnswer& answer) {
    const OrderEffort atOnce{.seconds = 0.02};
    if (request.design.customRows) return request.design.customRows;
    if (drawnOf(request.design)) return drawnRows(request.design);
    const int stages = stagesOf(request.design);
    const auto key = std::tuple(wanted.schedule, wanted.ranks, stages, wanted.microbatches, wanted.replicas, wanted.rankOrder);
    if (rows_ && key == rowsKey_) return rows_;
    if (request.design.job && madeSchedule(wanted.schedule) != nullptr) {
      rows_ = std::make_shared<const Schedule>(jobTimes_.order(request.design.job, wanted, stages, atOnce).rows);
    } else {
      ModelCosts model(*request.graph, *answer.profile, wanted.microbatch);
      rows_ = std::make_shared<const Schedule>(rowsFor(wanted, model, stages, atOnce));
    }
    rowsKey_ = key;
    return rows_;
  }

  /// Rows of the design's drawn schedule; the previous ones if nothing changed.
  std::shared_ptr<const Schedule> drawnRows(const Design& design) {
    const auto drawn = drawnOf(design);
    if (drawn == nullptr)
      throw UsageError(
          Document::tr("There is no schedule %1; choose another.").arg(QString::fromStdString(design.request.schedule)).toStdString());
    const auto key = std::tuple(drawn, design.request.ranks, design.request.chunks, design.request.microbatches, design.request.replicas);
    if (drawnRows_ && key == drawnKey_) return drawnRows_;
    drawnRows_ = std::make_shared<const Schedule>(planRows(drawnFor(design, *drawn), design.request.replicas));
    drawnKey_ = key;
    return drawnRows_;
  }

  static StageSpeeds speedsOn(const Placement& placement, const PlanRequest& request, const Profile& profile) {
    return allAtFullSpeed(profile.topology) ? StageSpeeds() : stageSpeeds(profile, placement, request.replicas);
  }

  /// Profile, cluster and split points of the request's model; kept until model, microbatch or cluster change.
  void costsOf(const PredictionRequest& request, PredictionAnswer& answer) {
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
            Document::tr("Costs were measured with microbatches of %1 samples, but the plan has %2; profile again, or use estimated costs.")
                .arg(design.profile->microbatch)
                .arg(microbatch_)
                .toStdString());
      }
      answer.profile = design.profile;
      return;
    }
    const auto how = std::tuple(design.precision, design.attention, design.request.loss);
    if (!estimated_ || how != how_)
      estimated_ = std::make_shared<const Profile>(
          estimate(*request.graph, microbatch_, cluster_, design.precision, design.attention, design.request.loss));
    how_ = how;
    answer.profile = estimated_;
  }

  QObject& owner_;
  std::function<void(const PredictionAnswer&)> take_;
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
  std::tuple<DType, Attention, Loss> how_;
  JobTimes jobTimes_;

  std::mutex mutex_;
  std::condition_variable wake_;
  std::optional<PredictionRequest> next_;
  bool stop_ = false;
  std::thread thread_;  ///< last member: starts when everything else exists
};

PredictionWorker::PredictionWorker(QObject& owner, std::function<void(const PredictionAnswer&)> take)
    : d(std::make_unique<Private>(owner, std::move(take))) {}

PredictionWorker::~PredictionWorker() = default;

void PredictionWorker::ask(PredictionRequest request) { d->ask(std::move(request)); }

}  // namespace pw::gui
