#include <string>
#include <vector>

#include <fmt/format.h>

#include "schedules/units.h"
#include "simulator/report/explain.h"
#include "simulator/report/explain_text.h"

namespace pw {
namespace {

std::string said(const Segment& s) {
  return s.partner ? fmt::format("{} with {}", toString(s.action), toString(*s.partner)) : toString(s.action);
}

/// One or more consecutive segments of the same rank.
struct Clause {
  const Segment* first = nullptr;
  const Segment* last = nullptr;
};

std::vector<Clause> clausesOf(const std::vector<Segment>& causes) {
  std::vector<Clause> clauses;
  for (const Segment& cause : causes) {
    const bool joins = !clauses.empty() && cause.doing == Doing::Compute && clauses.back().last->doing == Doing::Compute &&
                       clauses.back().last->rank == cause.rank;
    if (joins)
      clauses.back().last = &cause;
    else
      clauses.push_back({&cause, &cause});
  }
  return clauses;
}

std::string toString(const Clause& clause, const Segment* before) {
  const Segment& s = *clause.first;
  const std::string until = formatDuration(clause.last->to);
  const bool its =
      before != nullptr && before->rank == s.rank && (before->action == s.action || (before->partner && before->partner == s.action));
  const std::string message = !its                       ? fmt::format("the message of {}", toString(s.action))
                              : isMessage(before->doing) ? "then it"
                                                         : "its message";
  switch (s.doing) {
    case Doing::Load: return fmt::format("rank {} loads until {}", s.rank.value, until);
    case Doing::Store: return fmt::format("rank {} stores until {}", s.rank.value, until);
    case Doing::Transfer: return fmt::format("{} takes the channel to rank {} until {}", message, s.peer.value, until);
    case Doing::Queue:
      return fmt::format("the message of {} holds the channel to rank {} until {}", toString(s.action), s.peer.value, until);
    case Doing::Latency: return fmt::format("{} is in flight until {}", message, until);
    case Doing::Compute: break;
  }
  const std::string who = fmt::format("rank {} computes {}", s.rank.value, said(s));
  const auto count = clause.last - clause.first + 1;
  if (count == 1) return fmt::format("{} until {}", who, until);
  if (count == 2) return fmt::format("{} until {}, then {} until {}", who, formatDuration(s.to), said(*clause.last), until);
  return fmt::format("{} until {}, then {} more up to {} until {}", who, formatDuration(s.to), count - 1, said(*clause.last), until);
}

}  // namespace

std::string toString(const Bubble& bubble) {
  constexpr std::size_t kShown = 6;
  const std::string time = formatDuration(bubble.end - bubble.start);
  std::string text = fmt::format("rank {} waits {} for {}: ", bubble.rank.value, time, toString(bubble.awaited));
  if (!bubble.next)
    text = fmt::format("rank {} is done {} before {} ends: ", bubble.rank.value, time, toString(bubble.awaited));
  else if (bubble.awaitedRank == bubble.rank)
    text = fmt::format("rank {} waits {} to hand over {}: ", bubble.rank.value, time, toString(bubble.awaited));
  const std::vector<Clause> clauses = clausesOf(bubble.causes);
  const Segment* before = nullptr;
  for (std::size_t i = 0; i < clauses.size(); ++i) {
    if (i > 0) text += ", ";
    if (clauses.size() > kShown && i == kShown / 2) {
      const std::size_t cut = clauses.size() - kShown;
      i += cut;
      text += fmt::format("{} more until {}, ", cut, formatDuration(clauses[i - 1].last->to));
      before = nullptr;
    }
    text += toString(clauses[i], before);
    before = clauses[i].last;
  }
  return text;
}

}  // namespace pw
