#pragma once

#include <functional>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <tuple>
#include <utility>

#include "simulator/search/evaluate.h"
#include "simulator/search/study.h"

namespace pw {

/// A path of a study, which is relative to its folder.
[[nodiscard]] std::string studyPath(const std::string& folder, const std::string& path);
/// Whether a cluster is a file, also with links added; else it is a preset.
[[nodiscard]] bool isClusterFile(const std::string& name);
/// The file itself, in the study's folder, without links that were added; it need not exist.
[[nodiscard]] std::string clusterFile(const std::string& folder, const std::string& name);

/// The models and costs of a study, read and estimated once; the last ones used are kept. Keeps a reference to the study, which must
/// outlive it. May be used by several threads at once.
class StudyCosts {
 public:
  /// `folder`: what paths of the study are relative to. Throws UsageError where a model or profile cannot be read, where models have no
  /// costs (a study measures nothing), for a profile that is of none of them, and for a memory limit of a job whose traces show no memory.
  StudyCosts(const Study& study, std::string folder);
  ~StudyCosts();
  StudyCosts(const StudyCosts&) = delete;
  StudyCosts& operator=(const StudyCosts&) = delete;

  /// What plans with one model, cluster, precision and microbatch size share.
  struct Shared;
  /// Or why there are no such costs.
  Answer<std::shared_ptr<Shared>> of(const StudyPoint& point, std::int64_t microbatch);
  [[nodiscard]] const ModelGraph& graph(const std::string& model) const { return *graphs_.at(model); }

 private:
  using Key = std::tuple<std::string, std::string, DType, Attention, std::int64_t>;
  Answer<std::shared_ptr<Shared>> made(const StudyPoint& point, std::int64_t microbatch) const;

  const Study& study_;
  std::string folder_;
  std::map<std::string, std::shared_ptr<const ModelGraph>> graphs_;
  std::map<std::string, ProfileSource> measured_;  ///< by model
  std::map<std::string, Cluster> clusters_;
  std::mutex mutex_;
  std::list<std::pair<Key, std::shared_ptr<Shared>>> kept_;  ///< last used first
};

/// Predicts points of a study, one after the other; fastest in the order of their numbers. Keeps references to both arguments. One for each
/// thread.
class StudyWorker {
 public:
  /// `shouldContinue`: polled while an order is searched; false: the result is of no use.
  StudyWorker(const Study& study, StudyCosts& costs, std::function<bool()> shouldContinue)
      : study_(study), costs_(costs), shouldContinue_(std::move(shouldContinue)) {}

  /// The plan that `plan` makes with these options, with the search's order for `auto`. What cannot be planned has a `problem`. Throws
  /// Error where memory runs out.
  [[nodiscard]] StudyResult run(const StudyPoint& point);

 private:
  Answer<PlanRequest> requestOf(const StudyPoint& point) const;
  Answer<Candidate> evaluated(const StudyPoint& point);
  Answer<Candidate> withMadeOrder(PlanRequest request, const StudyPoint& point, const SplitStart& start, bool movable);

  const Study& study_;
  StudyCosts& costs_;
  std::function<bool()> shouldContinue_;
  std::shared_ptr<StudyCosts::Shared> shared_;
  SearchShape shape_;                    ///< of the last point
  std::shared_ptr<CandidateRows> rows_;  ///< of this shape, unless its order is made
  std::optional<Evaluator> evaluator_;   ///< of this shape
};

}  // namespace pw
