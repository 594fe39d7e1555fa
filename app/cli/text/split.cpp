#include "app/cli/text/split.h"

#include <algorithm>
#include <cstddef>
#include <string_view>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "app/cli/text/output.h"

namespace pw::cli {
namespace {

/// `blocks.12.mlp` → `blocks.*.mlp`.
std::string withoutNumbers(const std::string& path) {
  std::string result;
  for (std::size_t begin = 0; begin <= path.size();) {
    const std::size_t end = std::min(path.find('.', begin), path.size());
    const std::string step = path.substr(begin, end - begin);
    const bool number = !step.empty() && std::all_of(step.begin(), step.end(), [](char c) { return c >= '0' && c <= '9'; });
    result += (begin > 0 ? "." : "") + (number ? "*" : step);
    begin = end + 1;
  }
  return result;
}

/// Findings of one row, and how many they are.
struct Row {
  Finding first;
  int count = 1;
};

constexpr std::size_t kMostRows = 12;  // a kind takes no more than half a page

std::string tableOf(const ModelGraph& graph, const std::vector<Finding>& findings) {
  std::vector<Row> merged;
  for (const Finding& finding : findings) {
    const auto same = [&](const Row& row) {
      const Finding& f = row.first;
      return f.op == finding.op && f.source == finding.source && f.detail == finding.detail &&
             withoutNumbers(f.module) == withoutNumbers(finding.module);
    };
    const auto row = std::find_if(merged.begin(), merged.end(), same);
    row == merged.end() ? static_cast<void>(merged.push_back({finding, 1})) : static_cast<void>(++row->count);
  }
  const bool anyDetail = std::any_of(merged.begin(), merged.end(), [](const Row& row) { return !row.first.detail.empty(); });
  std::vector<std::vector<std::string>> rows{{"module", "what", "times", "source"}};
  if (anyDetail) rows.front().insert(rows.front().begin() + 3, "how");
  for (std::size_t r = 0; r < merged.size() && r < kMostRows; ++r) {
    const auto& [first, count] = merged[r];
    const std::string module = count > 1 ? withoutNumbers(first.module) : first.module;
    rows.push_back({module.empty() ? graph.name : module, first.op, fmt::format("{}", count), first.source});
    if (anyDetail) rows.back().insert(rows.back().begin() + 3, first.detail);
  }
  std::string text = table(rows);
  if (merged.size() > kMostRows) text += fmt::format("… and {} more; --json has all\n", merged.size() - kMostRows);
  return text;
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

std::string findingsText(const ModelGraph& graph, const std::vector<Finding>& findings) {
  std::string text;
  for (auto begin = findings.begin(); begin != findings.end();) {
    const auto end = std::find_if(begin, findings.end(), [&](const Finding& f) { return f.kind != begin->kind; });
    const FindingFacts& facts = factsOf(begin->kind);
    text += "\n" + std::string(facts.meaning) + ".\n";
    if (begin->kind != FindingKind::FixedBatch) text += tableOf(graph, {begin, end});
    text += "What to do: " + std::string(facts.cure) + ".\n";
    begin = end;
  }
  return text;
}

std::string trialText(const Trial& trial) {
  if (!trial.refused.empty()) return fmt::format("Not tried: {}.\n", trial.refused);
  std::vector<int> numbers;
  for (const TrialStep& step : trial.steps) numbers.push_back(step.microbatches);
  std::string how = "loss " + toString(trial.loss);
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
