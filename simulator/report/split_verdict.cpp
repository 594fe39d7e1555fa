#include "simulator/report/split_verdict.h"

#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace pw {
namespace {

bool any(const std::vector<Finding>& findings, FindingKind kind) {
  return std::ranges::find(findings, kind, &Finding::kind) != findings.end();
}

/// Operators that make the answer unknown, each once.
std::string unknowns(const std::vector<Finding>& findings) {
  std::vector<std::string> names;
  for (const Finding& finding : findings) {
    const bool byData = finding.kind == FindingKind::DataDependent;
    if (finding.kind != FindingKind::UnknownOperator && !byData) continue;
    const std::string name = byData ? finding.op + ", whose sizes depend on the data" : finding.op;
    if (std::ranges::find(names, name) == names.end()) names.push_back(name);
  }
  return fmt::format("{}", fmt::join(names, "; "));
}

/// What a finding of the kind alone leads to.
Sameness samenessOf(FindingKind kind) {
  switch (kind) {
    case FindingKind::BatchMixing:
    case FindingKind::BatchNorm:
    case FindingKind::PowerIteration:
    case FindingKind::LossBias: return Sameness::No;
    case FindingKind::UnknownOperator:
    case FindingKind::DataDependent: return Sameness::Unknown;
    case FindingKind::InPlaceBuffer: return Sameness::Buffers;
    case FindingKind::LossCount: return Sameness::Counted;
    case FindingKind::Unsupported:
    case FindingKind::FixedBatch:
    case FindingKind::Random:
    case FindingKind::OwnLoss:
    case FindingKind::SharedParameter:
    case FindingKind::UnusedParameter:
    case FindingKind::Nondeterministic: return Sameness::Yes;
  }
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

}  // namespace

std::string_view nameOf(Sameness sameness) {
  switch (sameness) {
    case Sameness::Yes: return "yes";
    case Sameness::Counted: return "counted";
    case Sameness::Buffers: return "buffers";
    case Sameness::Unknown: return "unknown";
    case Sameness::No: break;
  }
  return "no";
}

SplitVerdict splitVerdict(const std::vector<Finding>& findings) {
  SplitVerdict verdict;
  for (const Finding& finding : findings) verdict.same = std::max(verdict.same, samenessOf(finding.kind));
  verdict.draws = any(findings, FindingKind::Random);
  if (verdict.same == Sameness::Unknown) verdict.why = unknowns(findings);
  verdict.sentence = sentenceOf(verdict, any(findings, FindingKind::LossCount));
  return verdict;
}

}  // namespace pw
