#include "simulator/hang/caught.h"

#include <algorithm>
#include <cctype>
#include <set>
#include <string>
#include <vector>

namespace pw::hang {
namespace {

using Names = std::set<std::string, std::less<>>;

/// How many of these actions a problem's sentence names.
std::size_t namedIn(const Problem& problem, const Names& names) {
  const std::string& text = problem.message;
  const auto isPart = [](unsigned char c) { return std::isalnum(c) != 0 || c == '_'; };
  std::set<std::string_view> found;
  for (auto begin = std::find_if(text.begin(), text.end(), isPart); begin != text.end();) {
    const auto end = std::find_if_not(begin, text.end(), isPart);
    const std::string_view word(&*begin, static_cast<std::size_t>(end - begin));
    if (names.contains(word)) found.insert(word);
    begin = std::find_if(end, text.end(), isPart);
  }
  return found.size();
}

class Comparison {
 public:
  Comparison(const Inquiry& inquiry, const Diagnosis& diagnosis);
  [[nodiscard]] bool isWhatHangs(const Problem& problem) const;

 private:
  void addStuck(const Spot& spot);
  void addName(const Action& message);
  [[nodiscard]] bool leavesOut(const Problem& problem) const;

  const Inquiry& inquiry_;
  const Diagnosis& diagnosis_;
  bool lowered_;               ///< the schedule as given has messages; else what it says of actions is said of their messages
  std::vector<Spot> stuck_{};  ///< with an action
  Names names_{};              ///< what ranks are stuck in, and what they wait for there
  Names stuckSends_{};
  Names open_{};  ///< what was posted and waits, whether its rank waits for it or not
};

Comparison::Comparison(const Inquiry& inquiry, const Diagnosis& diagnosis)
    : inquiry_(inquiry),
      diagnosis_(diagnosis),
      lowered_(std::ranges::none_of(inquiry.rows->inFile, [](const std::vector<int>& row) { return std::ranges::count(row, -1) > 0; })) {
  if (diagnosis.verdict == Verdict::Cycle) {
    for (const Spot& spot : diagnosis.cycle) addStuck(spot);
  } else {
    for (const Spot& spot : diagnosis.waits) addStuck(spot);
    if (diagnosis.firstStuck) addStuck(*diagnosis.firstStuck);
  }
  for (const std::vector<Wait>& waits : inquiry.waits.open) {
    for (const Wait& wait : waits) {
      if (const std::optional<Action> action = inquiry.spotOf(wait).action) open_.insert(toString(*action));
    }
  }
}

void Comparison::addStuck(const Spot& spot) {
  if (!spot.action || !(isSend(spot.action->kind) || isReceive(spot.action->kind))) return;
  stuck_.push_back(spot);
  if (isSend(spot.action->kind)) stuckSends_.insert(toString(*spot.action));
  addName(*spot.action);
  addName(counterpart(*spot.action));
}

void Comparison::addName(const Action& message) {
  names_.insert(toString(message));
  if (lowered_) return;
  if (isForward(message.kind)) {
    names_.insert(toString(Action{message.stage, ActionKind::Forward, message.microbatch}));
    return;
  }
  for (const ActionKind kind : {ActionKind::Backward, ActionKind::BackwardInput})
    names_.insert(toString(Action{message.stage, kind, message.microbatch}));
}

/// Whether a rank waits for a message from one whose row lacks such a message.
bool Comparison::leavesOut(const Problem& problem) const {
  if (problem.position >= 0) return false;
  if (names_.contains(toString(problem.action))) return true;
  if (!isSend(problem.action.kind) && !isReceive(problem.action.kind)) return false;
  const Action other = counterpart(problem.action);
  const Rank waits = inquiry_.rows->schedule.placement.rankOf(other.stage, other.microbatch);
  const int rows = static_cast<int>(inquiry_.rows->schedule.rows.size());
  const auto isAlike = [&](const Spot& spot) {
    return spot.row == waits && isSend(spot.action->kind) == isSend(other.kind) && rowOf(inquiry_.dumps, spot.on, rows) == problem.rank;
  };
  if (std::ranges::none_of(stuck_, isAlike)) return false;
  // A silent rank may only be late: unless it has posted all that its row has.
  const auto isOpen = [&](const SilentRank& silent) {
    return silent.row == problem.rank && (silent.file.empty() || std::ranges::any_of(silent.possible, [](const Action& action) {
                                            return isSend(action.kind) || isReceive(action.kind);
                                          }));
  };
  return diagnosis_.verdict != Verdict::SilentRank || std::ranges::none_of(diagnosis_.silent, isOpen);
}

bool Comparison::isWhatHangs(const Problem& problem) const {
  const bool together = diagnosis_.verdict == Verdict::Cycle || diagnosis_.verdict == Verdict::InFlight;
  switch (problem.stops) {
    case Stops::Always: return leavesOut(problem) || (diagnosis_.verdict != Verdict::SilentRank && namedIn(problem, names_) > 0);
    case Stops::OneChannel: return together && namedIn(problem, open_) > 1;
    case Stops::Blocking: return together && namedIn(problem, stuckSends_) > 0;
    case Stops::Nothing: return false;
  }
  return false;
}

}  // namespace

std::optional<std::size_t> problemThatHangs(const Inquiry& inquiry, const Diagnosis& diagnosis) {
  if (inquiry.rows == nullptr || diagnosis.verdict == Verdict::Nothing) return std::nullopt;
  if (diagnosis.verdict == Verdict::MissingMessage && !diagnosis.followed) return std::nullopt;
  const Comparison comparison(inquiry, diagnosis);
  const auto found = std::ranges::find_if(diagnosis.problems, [&](const Problem& p) { return comparison.isWhatHangs(p); });
  if (found == diagnosis.problems.end()) return std::nullopt;
  return static_cast<std::size_t>(found - diagnosis.problems.begin());
}

}  // namespace pw::hang
