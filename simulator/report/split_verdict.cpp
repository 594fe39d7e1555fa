#include "app/cli/split_verdict.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <algorithm>
#include <string_view>

#include "app/cli/output.h"

namespace pw::cli {
namespace {

bool any(const std::vector<Finding>& findings, std::initializer_list<std::string_view> kinds) {
  return std::ranges::any_of(findings, [&](const Finding& f) { return std::ranges::find(kinds, f.kind) != kinds.end(); });
}

/// Operators that make the answer unknown, each once.
std::string unknowns(const std::vector<Finding>& findings) {
  std::vector<std::string> names;
  for (const Finding& finding : findings) {
    if (finding.kind != "unknown-operator" && finding.kind != "data-dependent") continue;
    const std::string name = finding.kind == "data-dependent" ? finding.op + ", whose sizes depend on the data" : finding.op;
    if (std::ranges::find(names, name) == names.end()) names.push_back(name);
  }
  return fmt::format("{}", fmt::join(names, "; "));
}

Sameness derived(const std::vector<Finding>& findings) {
  if (any(findings, {"batch-mixing", "batch-norm", "power-iteration", "loss-bias"})) return Sameness::No;
  if (any(findings, {"unknown-operator", "data-dependent"})) return Sameness::Unknown;
  if (any(findings, {"in-place-buffer"})) return Sameness::Buffers;
  if (any(findings, {"loss-count"})) return Sameness::Counted;
  return Sameness::Yes;
}

std::string sentenceOf(const SplitVerdict& verdict, bool counted) {
  const std::string apart = verdict.draws ? ", apart from random draws" : "";
  const std::string targets = counted ? ", where microbatches hold as many targets that count" : "";
  switch (verdict.same) {
    case Sameness::Yes: return verdict.draws ? "yes, apart from random draws" : "yes, each sample is computed by itself";
    case Sameness::Counted: return "yes" + targets + apart + ", see below";
    case Sameness::Buffers: return "loss and gradients yes" + targets + apart + ", buffers no, see below";
    case Sameness::Unknown: return "unknown: " + verdict.why;
    case Sameness::No: break;
  }
  return "no, see below";
}

/// What was tried without --loss-count, if it could be.
const Trial* plainTrial(const std::vector<Trial>& trials) {
  const auto found =
      std::ranges::find_if(trials, [](const Trial& t) { return t.refused.empty() && t.lossCount.empty() && t.steps.size() > 1; });
  return found == trials.end() ? nullptr : &*found;
}

/// Combines the trial with what was derived from rules.
void compare(SplitVerdict& verdict, const Trial& trial) {
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

std::string listed(const std::vector<int>& numbers) {
  std::string text;
  for (std::size_t i = 0; i < numbers.size(); ++i)
    text += fmt::format("{}{}", i == 0 ? "" : i + 1 == numbers.size() ? " and " : ", ", numbers[i]);
  return text;
}

std::string words(std::string_view what, const TrialDifference& difference) {
  if (difference.relative == 0) return fmt::format("{} equal", what);
  const std::string where = difference.name.empty() || what == "loss" ? "" : fmt::format(" ({})", difference.name);
  if (difference.equal) return fmt::format("{} equal to {:.1g}{}", what, difference.relative, where);
  return fmt::format("{} {} by {:.2g}{}", what, what == "loss" ? "DIFFERS" : "DIFFER", difference.relative, where);
}

std::string lineOf(const TrialStep& step) {
  if (!step.failure.empty()) return step.failure;
  return fmt::format("{}, {}, {}, {}", words("loss", step.lossDifference), words("outputs", step.outputs),
                     words("gradients", step.gradients), words("buffers", step.buffers));
}

}  // namespace

std::string_view name(Sameness sameness) {
  switch (sameness) {
    case Sameness::Yes: return "yes";
    case Sameness::Counted: return "counted";
    case Sameness::Buffers: return "buffers";
    case Sameness::Unknown: return "unknown";
    case Sameness::No: break;
  }
  return "no";
}

SplitVerdict splitVerdict(const std::vector<Finding>& findings, const std::vector<Trial>& trials) {
  SplitVerdict verdict;
  verdict.same = derived(findings);
  verdict.draws = any(findings, {"random"});
  if (verdict.same == Sameness::Unknown) verdict.why = unknowns(findings);
  verdict.sentence = sentenceOf(verdict, any(findings, {"loss-count"}));
  if (const Trial* trial = plainTrial(trials)) compare(verdict, *trial);
  return verdict;
}

std::string trialText(const Trial& trial) {
  if (!trial.refused.empty()) return fmt::format("Not tried: {}.\n", trial.refused);
  std::vector<int> numbers;
  for (const TrialStep& step : trial.steps) numbers.push_back(step.microbatches);
  std::string how = "loss " + trial.loss;
  if (!trial.lossCount.empty()) how += " with --loss-count " + trial.lossCount;
  if (trial.ignoredTargets) how += ", some targets ignored";
  if (!trial.switchedOff.empty()) how += fmt::format(", without {}", fmt::join(trial.switchedOff, " and "));
  const std::string pieces = numbers.size() == 1 ? "" : listed(numbers) + " microbatches of ";
  std::string text =
      fmt::format("Tried: {}a random batch of {} ({}), relative to the largest element of each tensor:\n", pieces, trial.batch, how);
  for (const TrialStep& step : trial.steps) {
    if (step.microbatches == 1 && step.failure.empty()) continue;
    text += fmt::format("  {}: {}\n", counted(step.microbatches, "microbatch"), lineOf(step));
  }
  if (!trial.random.empty()) {
    text += fmt::format("  {} cannot be switched off and {} anew for each microbatch, so that results differ by that.\n",
                        fmt::join(trial.random, " and "), trial.random.size() == 1 ? "draws" : "draw");
  }
  return text;
}

}  // namespace pw::cli
