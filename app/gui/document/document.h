#pragma once

#include <QObject>
#include <QString>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "app/gui/document/default_times.h"
#include "app/gui/document/notes.h"
#include "backends/store/run_store.h"
#include "engine/planning/inputs/job_source.h"
#include "simulator/costs/attention.h"
#include "simulator/costs/cluster.h"
#include "simulator/partition/partition.h"
#include "simulator/partition/split.h"
#include "simulator/plan/model_cut.h"
#include "simulator/plan/predictor.h"
#include "simulator/report/certificate.h"
#include "simulator/report/metrics.h"
#include "simulator/trace/reductions.h"

namespace pw::gui {

/// A job whose usual times a plan is made from, and the files that it was read from.
struct JobBasis {
  JobOptions from;
  pw::Job job;
  std::optional<Uncertainty> ofOwn{}, ofOthers{};  ///< of predictions of the schedule that it ran, and of others (`uncertaintyOf`)
};

struct Design;

/// How good the order of a plan file is, for what the file plans.
struct CertifiedOrder {
  PlanRequest request;
  std::shared_ptr<const Profile> profile;
  std::string cluster;
  DType precision = DType::Unknown;
  Attention attention = Attention::AsTraced;
  Certificate certificate;

  /// Whether a design with these rows is the one that the file plans.
  [[nodiscard]] bool isOf(const Design& design) const;
};

/// The user's decisions: what undo restores and a project saves. A value.
struct Design {
  std::vector<std::string> models;  ///< archives; empty: a schedule (or only a trace) without a model
  PlanRequest request;
  std::string cluster = "cpu-workstation";    ///< of `loadCluster`: costs are estimated for it where there is no `profile`
  DType precision = DType::Unknown;           ///< of estimates: BFloat16, Float16, Float8; Unknown: as traced
  Attention attention = Attention::AsTraced;  ///< of estimates
  std::shared_ptr<const Profile> profile;     ///< measured; null: estimated
  std::shared_ptr<const Schedule>
      customRows;  ///< from a CSV or plan file that no generator produces; null: `request.schedule` names the generator
  std::vector<std::shared_ptr<const Schedule>> drawn;  ///< the project's own, compute-only, each with a name that no other schedule has;
                                                       ///< `request.schedule` may name one (drawn.h)
  std::string source;                                  ///< the file `customRows` were read from
  std::shared_ptr<const CertifiedOrder> certified;     ///< of `customRows`, where their file says it; holds for that request only
  std::shared_ptr<const CostTable> customCosts;        ///< without a model: the costs that its schedule is simulated with
  std::optional<DefaultTimes> defaultTimes;            ///< that they are made from, of a schedule that has no times of its own
  std::shared_ptr<const JobBasis> job;                 ///< whose times are the costs; then the model is the job's table of layers

  std::vector<Note> notes;  ///< on the timeline; no prediction depends on them

  bool operator==(const Design&) const = default;  ///< shared values by identity
};

/// A measured trace for display: of a stored run, of another tool's file, or of a run in progress.
struct Measured {
  QString title;  ///< `run 7 · 22 Nov 14:03`, a file's name
  Trace trace;
  Timeline timeline;
  std::optional<RunRecord> run;      ///< of a stored run: its plan and prediction
  std::optional<Metrics> metrics;    ///< of another tool's trace
  std::optional<Schedule> executed;  ///< likewise, where it shows a whole schedule (`executedSchedule`)
  int step = 0;
  bool live = false;        ///< the run is still in progress
  QString pinnedAs;         ///< it is the predicted step of this pinned plan (`A`); empty: it was measured
  JobOptions from;          ///< the run or the traces that it is a step of; without paths and store: of nothing that can be read again
  std::string stepName;     ///< of that job's steps: `step 3`
  bool isReplayed = false;  ///< made from a job's times, which have no spans
  std::optional<ModelCut> cut{};  ///< of a pinned plan's step; nothing: not known
  std::int64_t samples = 0;       ///< of a pinned plan's step, over all replicas
  ReductionGroups reductions{};   ///< of another tool's trace
};

constexpr int kReadableMs = 30;  ///< update interval of the numbers during a drag; the timeline follows every move

/// What a file brings; see loading.h.
struct Loaded;
struct PredictionAnswer;
class PredictionWorker;

/// The current values. All panels read them here, change them through `edit`, and react to the signals. Predictions are made in the
/// background: the newest design wins, and the last prediction stays until then. Main thread only.
class Document : public QObject {
  Q_OBJECT
  Q_DISABLE_COPY_MOVE(Document)
 public:
  explicit Document(QObject* parent = nullptr);
  ~Document() override;

  // ---- Values ----
  [[nodiscard]] const Design& design() const { return design_; }
  [[nodiscard]] std::shared_ptr<const ModelGraph> graph() const { return graph_; }  ///< null without a model
  [[nodiscard]] const std::vector<SplitPoint>& splitPoints() const {
    return splitPoints_;
  }  ///< possible ones, ascending, for the design's microbatch size
  [[nodiscard]] std::shared_ptr<const Profile> profile() const {
    return profile_;
  }  ///< in use: measured or estimated; null without a model
  [[nodiscard]] const Cluster& cluster() const { return cluster_; }
  [[nodiscard]] std::shared_ptr<const Prediction> prediction() const { return prediction_; }  ///< null: not available yet, or not possible
  /// What `prediction` is of: earlier than the design's while a new one is awaited or not possible.
  [[nodiscard]] const PlanRequest& predicted() const { return predicted_; }
  /// What each rank of the prediction may hold: the design's limit, or its device's memory where that is less; 0: as much as it needs.
  [[nodiscard]] std::vector<Bytes> rankLimits() const;
  /// That of the plan before its last change, or before the drag; null: none, or of another model.
  [[nodiscard]] std::shared_ptr<const Prediction> before() const { return before_; }
  [[nodiscard]] std::shared_ptr<const Measured> measured() const { return measured_; }  ///< null: none chosen
  [[nodiscard]] QString problem() const { return problem_; }  ///< why the design cannot be predicted, one sentence; empty when it can
  [[nodiscard]] bool isPredicting() const;                    ///< the prediction does not match the design yet
  /// How good the order of the schedule `auto` is. Nothing for another schedule, where none fits, and while a better order is searched for:
  /// `prediction` then has the order of an earlier design, or the first one found, and changes once more.
  [[nodiscard]] const std::optional<Certificate>& certificate() const { return certificate_; }
  [[nodiscard]] bool isOrdering() const { return ordering_; }     ///< a better order is searched for
  [[nodiscard]] QString storePath() const { return storePath_; }  ///< where runs are recorded
  [[nodiscard]] QString projectPath() const { return projectPath_; }
  [[nodiscard]] QString title() const;  ///< model or file name, for display
  /// The plan of the design, for saving and running. Throws UsageError when there is no model, or no prediction of this design yet.
  [[nodiscard]] Plan plan() const;

  // ---- Edits: each is one undo step ----
  /// Changes the design. If its number of stages then differs from what the splits make, the splits are balanced again with the prediction.
  void edit(const QString& what, const std::function<void(Design&)>& change);
  /// Begins a drag: edits until `endDrag` are one undo step; with `keep` false they are all reverted.
  void beginDrag(const QString& what);
  void endDrag(bool keep);
  [[nodiscard]] bool isDragging() const { return beforeDrag_.has_value(); }
  void undo();
  void redo();
  [[nodiscard]] QString undoText() const;  ///< description of what would be undone; empty: nothing
  [[nodiscard]] QString redoText() const;

  // ---- Files ----
  /// Replaces everything by what was loaded (see loading.h) and clears the undo history.
  void adopt(const Loaded& loaded);
  void setStorePath(const QString& path);
  void setProjectPath(const QString& path);
  [[nodiscard]] bool isModified() const;  ///< design differs from the saved one
  void markSaved();
  void markUnsaved();  ///< of recovered work

  void setMeasured(std::shared_ptr<const Measured> measured);

 signals:
  void modelChanged();  ///< graph, split points
  void designChanged();
  void predictionChanged();  ///< prediction or problem
  void measuredChanged();
  void storeChanged();  ///< another store, or a run was added
  void undoChanged();

 private:
  struct Step {
    QString what;
    Design design;
  };
  void remember(const QString& what, const Design& before);
  void noteBefore();
  void apply(const Design& design);
  void request();
  void take(const PredictionAnswer& answer);

  Design design_;
  std::optional<Design> saved_;  ///< nothing: the current design was never saved
  std::optional<Design> beforeDrag_;
  QString dragName_;
  std::vector<Step> undo_, redo_;
  std::shared_ptr<const ModelGraph> graph_;
  std::vector<SplitPoint> splitPoints_;
  std::shared_ptr<const Profile> profile_;
  Cluster cluster_;
  std::shared_ptr<const Prediction> prediction_, before_;
  PlanRequest predicted_;
  std::optional<Certificate> certificate_;
  bool ordering_ = false;
  std::shared_ptr<const Measured> measured_;
  QString title_, problem_, storePath_, projectPath_;
  std::uint64_t requested_ = 0, answered_ = 0;  ///< numbers of requests
  std::uint64_t adopted_ = 0;                   ///< answers to requests up to this one belong to another model
  std::unique_ptr<PredictionWorker> worker_;
};

}  // namespace pw::gui
