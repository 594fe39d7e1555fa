#include "engine/run/trial_verdict.h"

#include <algorithm>

namespace pw {
namespace {

/// What was tried without --loss-count, if it could be.
const Trial* plainTrial(const std::vector<Trial>& trials) {
  const auto found =
      std::ranges::find_if(trials, [](const Trial& t) { return t.refused.empty() && t.lossCount.empty() && t.steps.size() > 1; });
  return found == trials.end() ? nullptr : &*found;
}

/// Combines the trial with what was derived from rules.
void combine(SplitVerdict& verdict, const Trial& trial) {
  const bool same = trial.sameResults();
  const bool ranAll = std::ranges::all_of(trial.steps, [](const TrialStep& s) { return s.failure.empty(); });
  switch (verdict.same) {
    case Sameness::Yes:
    case Sameness::Buffers:
      if (same || (!trial.random.empty() && ranAll)) {
        verdict.sentence += same ? "; tried, too" : "";
        return;
      }
      verdict.disagrees = true;
      verdict.same = Sameness::No;
      verdict.sentence = "no, see the trial below, although its operators' rules say yes; please report this model";
      return;
    case Sameness::Counted: verdict.sentence += same ? "; tried" : trial.ignoredTargets ? "; tried with unequally many" : "; tried"; return;
    case Sameness::Unknown:
      verdict.sentence += same ? "; the same on the batch that was tried" : "; not the same on the batch that was tried";
      if (!same && trial.random.empty()) verdict.same = Sameness::No;
      return;
    case Sameness::No:
      verdict.disagrees = same && trial.sameBuffers();
      verdict.sentence += same ? "; on the batch that was tried results were the same" : "; tried, too";
      return;
  }
}

}  // namespace

SplitVerdict withTrials(SplitVerdict verdict, const std::vector<Trial>& trials) {
  if (const Trial* trial = plainTrial(trials)) combine(verdict, *trial);
  return verdict;
}

}  // namespace pw
