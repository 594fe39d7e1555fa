#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "schedules/answer.h"
#include "simulator/partition/model_costs.h"
#include "simulator/search/profiles.h"
#include "simulator/search/search.h"
#include "simulator/step/compiled_rows.h"
#include "simulator/step/path_bound.h"

namespace pw {

/// A combination that is tried: schedule, chunks and microbatches. For use within the search only.
struct SearchShape {
  PlanRequest request;  ///< without begins
  int stages = 0;
  SizedProfile profile;
  std::shared_ptr<ModelCosts> model;  ///< of the profile, shared by all combinations with one microbatch size
  StageSpeeds speeds;                 ///< `speedsOf`
};

/// In how many ways a model with so many places to cut at can be cut `begins` times; 0 if not at all.
[[nodiscard]] double cutsAt(std::size_t places, std::size_t begins);

/// Initial splits of a combination.
struct SplitStart {
  SplitSource source = SplitSource::Time;
  std::vector<NodeId> begins;
};

/// Rows of `planRows` and what has been compiled of them; of all combinations with the same schedule.
struct CandidateRows {
  explicit CandidateRows(Schedule planned) : rows(std::move(planned)), compiled(rows) {}
  /// Of the schedule that the combination names.
  explicit CandidateRows(const SearchShape& shape);
  CandidateRows(const CandidateRows&) = delete;
  CandidateRows& operator=(const CandidateRows&) = delete;
  ~CandidateRows() = default;

  const Schedule rows;
  CompiledRows compiled;
};

/// Whether two combinations have the same rows.
[[nodiscard]] bool haveSameRows(const SearchShape& a, const SearchShape& b);

/// Prices and simulates plans of one combination, one after the other. The program is compiled once, and again when its structure changes.
/// Keeps a reference to the combination.
class Evaluator {
 public:
  explicit Evaluator(const SearchShape& shape) : Evaluator(shape, std::make_shared<CandidateRows>(shape)) {}
  Evaluator(const SearchShape& shape, Schedule rows) : Evaluator(shape, std::make_shared<CandidateRows>(std::move(rows))) {}
  Evaluator(const SearchShape& shape, std::shared_ptr<CandidateRows> rows);
  ~Evaluator() = default;
  Evaluator(const Evaluator&) = delete;
  Evaluator& operator=(const Evaluator&) = delete;

  [[nodiscard]] const Schedule& rows() const { return compiled_.rows(); }

  /// Lower, in this order, in what is over the memory limit, the step, the peak.
  [[nodiscard]] static bool isBetterCut(const Candidate& a, const Candidate& b);

  /// The prediction for these splits and this recomputation, or why the model cannot be cut or recomputed so (`tryPrice`).
  Answer<Candidate> evaluate(const SplitStart& start, const Recompute& recompute);

  /// The candidate with other begins among `places` (ascending) that are better (`isBetterCut`). Where there are few choices (5,000) all
  /// are tried and the result is the best; otherwise single begins move to places 1, 2 or 4 further as long as that is better, then
  /// neighbouring ones together by a place, at most `rounds` times over all begins. A cut is not simulated where its memory alone, or a
  /// path of the program (`PathBounds`), shows that it is no better: the result is that of simulating all. `shouldContinue` is called
  /// before every try with the share of the most work done. Of very large plans the tries end after some seconds' work, counted in actions
  /// and so the same everywhere. Ties: the first found.
  [[nodiscard]] Candidate improve(const Candidate& start, const std::vector<NodeId>& places, int rounds,
                                  const std::function<bool(double)>& shouldContinue);

 private:
  /// What is known without simulating: costs, memory.
  struct Weighed {
    Candidate candidate;
    CostTable costs;
  };
  /// A candidate whose begins are being moved.
  struct Moving {
    Candidate best;
    const std::function<bool(double)>& shouldContinue;
    std::int64_t work = 0;  ///< in actions
    int structure = 0;      ///< of the program, at the last cut
  };
  [[nodiscard]] bool tryCut(Moving& moving, const std::vector<NodeId>& begins);
  void tryAll(Moving& moving, const std::vector<NodeId>& places);
  void tryNeighbours(Moving& moving, const std::vector<NodeId>& places, int rounds);
  [[nodiscard]] bool tryShift(Moving& moving, const std::vector<NodeId>& places, std::size_t first, std::size_t last, bool ahead);
  [[nodiscard]] bool tryShifts(Moving& moving, const std::vector<NodeId>& places);
  Answer<Weighed> weigh(const SplitStart& start, const Recompute& recompute);
  void simulate(Weighed& weighed, bool keepsPath);
  [[nodiscard]] bool mayImprove(const Weighed& tried, const Candidate& best);

  const SearchShape& shape_;
  std::shared_ptr<CandidateRows> kept_;
  CompiledRows& compiled_;
  std::vector<Bytes> limits_;  ///< by rank
  Times times_;
  std::vector<Binding> bindings_;
  PathBounds bounds_;
  int boundsOf_ = 0;  ///< the structure that the paths are of
};

}  // namespace pw
