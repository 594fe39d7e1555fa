#include "simulator/hang/diagnose.h"

#include <algorithm>
#include <functional>
#include <iterator>
#include <map>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "simulator/hang/caught.h"
#include "simulator/hang/inquiry.h"

namespace pw::hang {
namespace {

constexpr std::size_t kMostSilent = 64;  ///< that are described

/// Whether any dump has a message, or work of another kind than collectives.
bool holdMessages(const Dumps& dumps) {
  return std::ranges::any_of(dumps.dumps, [](const RankDump& dump) {
    return std::ranges::any_of(dump.ops, [](const RecordedOp& op) { return op.kind != OpKind::Collective; });
  });
}

/// All waits that hold for a condition.
std::vector<Wait> waitsWhere(const std::vector<std::vector<Wait>>& all, const std::function<bool(const Wait&)>& holds) {
  std::vector<Wait> some;
  for (const std::vector<Wait>& waits : all) std::ranges::copy_if(waits, std::back_inserter(some), holds);
  return some;
}

/// Each rank's reason to wait for the next in a cycle of ranks that wait for each other; empty where there is none. Of several the one
/// reached from the lowest rank.
std::vector<Wait> cycleOf(const Inquiry& inquiry) {
  enum class Mark : std::uint8_t { New, Open, Closed };
  std::vector<Mark> marks(inquiry.primary.size(), Mark::New);
  for (std::size_t start = 0; start < marks.size(); ++start) {
    if (marks[start] != Mark::New) continue;
    std::vector<std::pair<std::size_t, std::size_t>> path{{start, 0}};  // a dump, and the next of its waits
    marks[start] = Mark::Open;
    while (!path.empty()) {
      const std::size_t at = path.back().first;
      const std::vector<Wait>& waits = inquiry.primary[at];
      if (path.back().second == waits.size()) {
        marks[at] = Mark::Closed;
        path.pop_back();
        continue;
      }
      const Wait& wait = waits[path.back().second++];
      const std::optional<std::size_t> next = inquiry.leadsOn(wait) ? inquiry.dumpOf(wait.on) : std::nullopt;
      if (!next || marks[*next] == Mark::Closed) continue;
      if (marks[*next] == Mark::New) {
        marks[*next] = Mark::Open;
        path.emplace_back(*next, 0);
        continue;
      }
      std::vector<Wait> cycle;
      const auto begin = std::ranges::find(path, *next, &std::pair<std::size_t, std::size_t>::first);
      for (auto step = begin; step != path.end(); ++step) cycle.push_back(inquiry.primary[step->first][step->second - 1]);
      return cycle;
    }
  }
  return {};
}

/// `rank 2 is silent: WHY`, or with the reason of the first: `ranks 2, 5 are silent (rank 2: WHY)`. Of at least one rank.
std::string sentenceOf(const std::vector<JobRank>& ranks, std::string_view what, std::string_view why) {
  if (ranks.size() == 1) return fmt::format("rank {} is {}: {}", ranks.front().value, what, why);
  std::string text = "ranks ";
  for (std::size_t i = 0; i < ranks.size() && i < 8; ++i) text += fmt::format("{}{}", i > 0 ? ", " : "", ranks[i].value);
  if (ranks.size() > 8) text += fmt::format(" and {} more", ranks.size() - 8);
  return fmt::format("{} are {} (rank {}: {})", text, what, ranks.front().value, why);
}

/// A sentence as a part of another.
std::string withoutStop(std::string sentence) {
  while (sentence.ends_with('.')) sentence.pop_back();
  return sentence;
}

class Diagnosing {
 public:
  Diagnosing(Inquiry& inquiry, Diagnosis& result) : inquiry_(inquiry), result_(result) {}
  void run();

 private:
  void listWaits();
  bool foundDeparture();
  [[nodiscard]] std::vector<Wait> onOddOne(std::vector<Wait> differ) const;
  bool foundSizes();
  bool foundUnalike();
  bool foundNeverPosted();
  bool foundSilent();
  bool foundCycle();
  bool foundInFlight();
  bool foundCounts();
  void settleNothing();
  [[nodiscard]] bool scheduleIsSound() const {
    return inquiry_.rows != nullptr && inquiry_.rows->exact && result_.problems.empty() &&
           std::ranges::none_of(inquiry_.rows->ranks, [](const RankRow& row) { return row.departure.has_value(); });
  }

  Inquiry& inquiry_;
  Diagnosis& result_;
};

void Diagnosing::run() {
  const bool placed = inquiry_.rows != nullptr && inquiry_.rows->exact, sound = scheduleIsSound();
  if (placed && inquiry_.postsBeyondNeeds())
    inquiry_.devicesWait();
  else if (placed && (inquiry_.postsAhead() || (sound && !cycleOf(inquiry_).empty())))
    inquiry_.receivesArePostedAhead();
  while (sound && inquiry_.silenceDoubtful(cycleOf(inquiry_))) continue;
  listWaits();
  bool found = foundDeparture() || foundSizes() || foundUnalike() || foundNeverPosted() || foundCycle() || foundSilent();
  if (!found && inquiry_.preferMissing()) {
    listWaits();
    found = foundCycle() || foundSilent();
  }
  found = found || foundInFlight() || foundCounts();
  if (!found && inquiry_.lastMayHaveFailed()) {
    listWaits();
    found = foundSilent();
    if (found)
      result_.notes.emplace_back(
          "Gloo's recorder calls a collective over whether it ended or failed: ranks are taken to wait in the last that they posted");
  }
  if (!found) settleNothing();
}

/// Whether a schedule's ranks exchange messages.
bool hasMessages(const Schedule& schedule) {
  return std::ranges::any_of(schedule.rows, [](const std::vector<Action>& row) {
    return std::ranges::any_of(row, [](const Action& action) { return isSend(action.kind) || isReceive(action.kind); });
  });
}

/// Nothing is known to wait: which tells something only of operations that would have been recorded.
void Diagnosing::settleNothing() {
  const Dumps& dumps = inquiry_.dumps;
  const auto any = [&](const auto& holds) {
    return std::ranges::any_of(dumps.dumps, [&](const RankDump& dump) { return std::ranges::any_of(dump.ops, holds); });
  };
  result_.verdict = Verdict::CannotTell;
  const auto failed = std::ranges::find_if(dumps.dumps, [](const RankDump& dump) { return !dump.failure.empty(); });
  if (failed != dumps.dumps.end()) {
    std::string absent;
    for (int r = 0; r < dumps.ranks && absent.empty(); ++r) {
      if (dumps.of(JobRank(r)) == nullptr) absent = fmt::format("; rank {} left no record, so look there first", r);
    }
    result_.sentence =
        fmt::format("rank {} gave up, and none of what it posted is open: {}{}", failed->rank.value, withoutStop(failed->failure), absent);
  } else if (dumps.dumps.empty()) {
    result_.sentence =
        "NCCL RAS counts what ranks enqueued, not what waits, and no rank is behind in a collective; give what torch's Flight Recorder has "
        "of the job, too";
  } else if (!holdMessages(dumps) && (!any([](const RecordedOp&) { return true; }) || any([](const RecordedOp& op) {
               return op.name.starts_with("gloo:");
             }) || (inquiry_.rows != nullptr && hasMessages(inquiry_.rows->schedule)))) {
    result_.sentence =
        "the dumps hold no send or receive, which torch's Flight Recorder does not keep of Gloo, so they do not show what waits; dump a "
        "job on NCCL, or run it with `pipewright run`, which writes flight records";
  } else {
    result_.verdict = Verdict::Nothing;
    result_.sentence = "no operation is open: nothing waits";
  }
}

void Diagnosing::listWaits() {
  result_.waits.clear();
  for (const std::vector<Wait>& waits : inquiry_.primary) {
    if (!waits.empty()) result_.waits.push_back(inquiry_.spotOf(waits.front()));
  }
}

/// A rank that others wait for, or that waits itself, posted something else than its row says.
bool Diagnosing::foundDeparture() {
  if (inquiry_.rows == nullptr) return false;
  std::vector<Wait> departures;
  for (std::size_t d = 0; d < inquiry_.rows->ranks.size(); ++d) {
    const RankRow& row = inquiry_.rows->ranks[d];
    if (row.departure && row.departure->op < inquiry_.dumps.dumps[d].ops.size())
      departures.push_back({inquiry_.dumps.dumps[d].rank, row.departure->op, JobRank{-1}});
  }
  const std::optional<Wait> first = inquiry_.earliest(departures);
  if (!first) return false;
  const JobRank rank = first->rank;
  std::vector<Wait> stuck = waitsWhere(inquiry_.waits.open, [&](const Wait& w) { return w.on == rank && w.reason == Reason::NotPosted; });
  const RankRow& row = inquiry_.rows->ranks[*inquiry_.dumpOf(rank)];
  if (stuck.empty() && row.departure->extra) stuck = waitsWhere(inquiry_.primary, [&](const Wait& w) { return w.rank == rank; });
  if (stuck.empty()) return false;  // another order of its own, which nobody minds
  Spot posted = inquiry_.spotOf(*inquiry_.dumpOf(rank), first->op, JobRank{-1});
  result_.verdict = Verdict::MissingMessage;
  result_.cause = inquiry_.spotAt(rank, row.row, row.departure->expected);
  result_.firstStuck = inquiry_.spotOf(*inquiry_.earliest(stuck));
  if (row.departure->extra && inquiry_.opOf(*first).state != OpState::Done) {  // nobody takes it
    posted.position = -1;
    posted.inRow = false;
    posted.step = result_.cause->step;
    posted.action = row.departure->extra;
    posted.on = inquiry_.opOf(*first).peer;
    result_.firstStuck = posted;
    const std::vector<Wait>& own = inquiry_.primary[*inquiry_.dumpOf(rank)];
    for (Spot& spot : result_.waits) {  // under the name that the sentence gives it
      if (spot.rank == rank && !own.empty() && own.front().op == first->op) spot = posted;
    }
  }
  const std::string wanted = result_.cause->action ? placeText(*result_.cause) : "no message";
  result_.sentence =
      fmt::format("rank {} posted {} where the schedule has {}; {}", rank.value, posted.operation, wanted, textOf(*result_.firstStuck));
  return true;
}

/// Of a collective's members one disagrees with all others, and those with it alone: where there is such a rank, the waits on it.
std::vector<Wait> Diagnosing::onOddOne(std::vector<Wait> differ) const {
  std::map<JobRank, std::size_t> others;  // by rank: with how many it disagrees
  for (const Wait& wait : differ) {
    if (inquiry_.opOf(wait).kind == OpKind::Collective) ++others[wait.rank];
  }
  if (others.empty()) return differ;
  const auto most = std::ranges::max_element(others, {}, [](const auto& entry) { return entry.second; });
  const auto isAsOften = [&](const auto& entry) { return entry.second == most->second; };
  if (std::ranges::count_if(others, isAsOften) > 1) return differ;
  std::vector<Wait> onIt;
  std::ranges::copy_if(differ, std::back_inserter(onIt), [&](const Wait& wait) { return wait.on == most->first; });
  return onIt.empty() ? differ : onIt;
}

bool Diagnosing::foundSizes() {
  std::vector<Wait> differ = waitsWhere(inquiry_.primary, [](const Wait& w) { return w.reason == Reason::SizesDiffer; });
  if (differ.empty() && !result_.waits.empty()) {
    std::ranges::copy_if(inquiry_.waits.mismatched, std::back_inserter(differ), [&](const Wait& wait) {
      return inquiry_.dumps.dumps[*inquiry_.dumpOf(wait.rank)].complete && inquiry_.dumps.dumps[*inquiry_.dumpOf(wait.on)].complete;
    });
  }
  std::optional<Wait> first = inquiry_.earliest(onOddOne(std::move(differ)));
  if (!first) return false;
  // Of a message the receiver is named as stuck, whichever end is open.
  if (inquiry_.opOf(*first).kind == OpKind::Send) first = Wait{first->on, *first->other, first->rank, Reason::SizesDiffer, first->op};
  const std::size_t theirs = *inquiry_.dumpOf(first->on);
  result_.verdict = Verdict::SizeMismatch;
  result_.firstStuck = inquiry_.spotOf(*first);
  result_.cause = inquiry_.spotOf(theirs, *first->other, first->rank);
  const Bytes mine = inquiry_.opOf(*first).bytes, other = inquiry_.dumps.dumps[theirs].ops[*first->other].bytes;
  result_.sentence =
      fmt::format("the two ends disagree about the size: rank {} has {} bytes in {}, rank {} has {} bytes in {}", first->rank.value,
                  mine.value, placeText(*result_.firstStuck), first->on.value, other.value, placeText(*result_.cause));
  return true;
}

bool Diagnosing::foundUnalike() {
  const std::optional<Wait> first =
      inquiry_.earliest(onOddOne(waitsWhere(inquiry_.primary, [](const Wait& w) { return w.reason == Reason::Unalike; })));
  if (!first) return false;
  result_.verdict = Verdict::CollectiveMismatch;
  result_.firstStuck = inquiry_.spotOf(*first);
  result_.cause = inquiry_.spotOf(*inquiry_.dumpOf(first->on), *first->other, first->rank);
  result_.sentence = fmt::format("rank {} is in {}, but rank {} in {}", first->rank.value, placeText(*result_.firstStuck), first->on.value,
                                 placeText(*result_.cause));
  return true;
}

/// A rank waits for a message that the schedule gives no rank to post.
bool Diagnosing::foundNeverPosted() {
  const Rows* const rows = inquiry_.rows;
  if (rows == nullptr || !rows->exact) return false;
  const std::vector<Wait> never = waitsWhere(inquiry_.primary, [&](const Wait& wait) {
    const std::size_t d = *inquiry_.dumpOf(wait.rank);
    const RecordedOp& op = inquiry_.opOf(wait);
    if (!isMessage(op.kind) || (wait.reason != Reason::NotPosted && wait.reason != Reason::NoDump) || !rows->ranks[d].places[wait.op])
      return false;
    const Rank row = rowOf(inquiry_.dumps, op.group, wait.on, static_cast<int>(rows->schedule.rows.size()));
    if (row.value < 0) return false;
    const std::vector<Action>& actions = rows->schedule.rows[row.index()];
    return std::ranges::find(actions, counterpart(rows->at(rows->ranks[d].row, *rows->ranks[d].places[wait.op]))) == actions.end();
  });
  const std::optional<Wait> first = inquiry_.earliest(never);
  if (!first) return false;
  result_.verdict = Verdict::MissingMessage;
  result_.firstStuck = inquiry_.spotOf(*first);
  Spot cause;
  cause.rank = first->on;
  cause.row = rowOf(inquiry_.dumps, inquiry_.opOf(*first).group, first->on, static_cast<int>(rows->schedule.rows.size()));
  cause.action = counterpart(*result_.firstStuck->action);
  cause.step = result_.firstStuck->step;
  result_.cause = cause;
  result_.sentence =
      fmt::format("{}, but the schedule of rank {} has no {}", textOf(*result_.firstStuck), first->on.value, toString(*cause.action));
  return true;
}

bool Diagnosing::foundCycle() {
  const std::vector<Wait> cycle = cycleOf(inquiry_);
  if (cycle.empty()) return false;
  const auto inCycle = [&](JobRank rank) { return std::ranges::any_of(cycle, [&](const Wait& w) { return w.rank == rank; }); };
  // With receives posted ahead the oldest open operation need not be the one that a rank waits in.
  const bool doubtful = !waitsWhere(inquiry_.waits.open, [&](const Wait& w) { return inCycle(w.rank) && inquiry_.isSilent(w.on); }).empty();
  if (doubtful && result_.problems.empty()) return false;
  const Wait first = *inquiry_.earliest(cycle);
  const auto begin = std::ranges::find_if(cycle, [&](const Wait& w) { return w.rank == first.rank; });
  std::vector<Wait> turned(begin, cycle.end());
  turned.insert(turned.end(), cycle.begin(), begin);
  for (const Wait& wait : turned) result_.cycle.push_back(inquiry_.spotOf(wait));
  result_.verdict = Verdict::Cycle;
  result_.firstStuck = result_.cycle.front();
  result_.sentence = fmt::format("{} ranks wait for each other: ", cycle.size());
  for (std::size_t i = 0; i < result_.cycle.size() && i < 6; ++i) result_.sentence += (i > 0 ? "; " : "") + textOf(result_.cycle[i]);
  if (result_.cycle.size() > 6) result_.sentence += "; …";
  const auto mayBeAhead = [&](const Wait& w) {
    const RecordedOp& op = inquiry_.opOf(w);
    return op.kind == OpKind::Receive && op.batch == 0 && !op.awaited && !op.setsUp;
  };
  if (inquiry_.rows == nullptr && std::ranges::any_of(turned, mayBeAhead))
    result_.notes.emplace_back(
        "a receive that its rank posted before it needs it looks like one that it waits in: if one of these ranks computes, there is no "
        "cycle "
        "and that rank is stopped; the schedule tells");
  return true;
}

bool Diagnosing::foundSilent() {
  const auto toSilent = [&](const Wait& wait) { return inquiry_.isSilent(wait.on) && wait.reason != Reason::TheyAreDone; };
  std::vector<Wait> direct = waitsWhere(inquiry_.primary, toSilent);
  if (direct.empty()) direct = waitsWhere(inquiry_.waits.open, toSilent);
  std::set<JobRank> ranks;
  for (const Wait& wait : direct) ranks.insert(wait.on);
  for (const RankReport& report : inquiry_.dumps.gone) ranks.insert(report.rank);
  // Of ranks that left no dump those count first: a rank with a dump may only have ended when another did.
  const bool anyGone = std::ranges::any_of(
      ranks, [&](JobRank r) { return !inquiry_.dumpOf(r) || std::ranges::count(inquiry_.dumps.gone, r, &RankReport::rank) > 0; });
  if (anyGone)
    std::erase_if(direct, [&](const Wait& w) {
      return inquiry_.dumpOf(w.on) && std::ranges::count(inquiry_.dumps.gone, w.on, &RankReport::rank) == 0;
    });
  if (ranks.empty()) return false;
  for (const JobRank rank : ranks) {
    if (result_.silent.size() < kMostSilent) result_.silent.push_back(inquiry_.silentOf(rank));
  }
  result_.silentRanks = ranks.size();
  result_.verdict = Verdict::SilentRank;
  if (const std::optional<Wait> first = inquiry_.earliest(direct)) result_.firstStuck = inquiry_.spotOf(*first);
  const SilentRank& silent = result_.silent.front();
  const std::string next = silent.next ? ", and the schedule has " + placeText(*silent.next) + " next" : "";
  result_.sentence = sentenceOf({ranks.begin(), ranks.end()}, "silent", silent.why + next);
  if (result_.firstStuck) result_.sentence += "; " + textOf(*result_.firstStuck);
  return true;
}

bool Diagnosing::foundInFlight() {
  // Preferably in a message that both of its ends wait in.
  std::vector<Wait> waiting =
      waitsWhere(inquiry_.primary, [&](const Wait& w) { return w.reason == Reason::Unfinished && !inquiry_.leadsOn(w); });
  if (waiting.empty())
    waiting = waitsWhere(inquiry_.primary, [](const Wait& w) { return w.reason == Reason::Unfinished || w.reason == Reason::TheyAreDone; });
  const std::optional<Wait> first = inquiry_.earliest(waiting);
  if (!first) return false;
  result_.verdict = Verdict::InFlight;
  result_.firstStuck = inquiry_.spotOf(*first);
  result_.sentence = fmt::format("{}, which posted its end with the same size: one of the two is stopped, or their link is broken",
                                 textOf(*result_.firstStuck));
  return true;
}

/// Only counts of operations are known: the ranks that enqueued fewer than others of their communicator.
bool Diagnosing::foundCounts() {
  std::map<JobRank, std::string> behind;
  for (const OperationCounts& counted : inquiry_.dumps.counted) {
    if (counted.counts.empty()) continue;
    const auto [least, most] = std::ranges::minmax(counted.counts);
    if (least == most) continue;
    for (std::size_t i = 0; i < counted.ranks.size(); ++i) {
      if (counted.counts[i] == least)
        behind.emplace(counted.ranks[i], fmt::format("it enqueued {} {} times, others of communicator {} {} times", counted.operation,
                                                     least, counted.group, most));
    }
  }
  if (behind.empty()) return false;
  std::vector<JobRank> ranks;
  for (const auto& [rank, why] : behind) {
    ranks.push_back(rank);
    if (result_.silent.size() < kMostSilent) result_.silent.push_back({.rank = rank, .why = why});
  }
  result_.silentRanks = ranks.size();
  result_.verdict = Verdict::SilentRank;
  result_.sentence = sentenceOf(ranks, "behind", behind.begin()->second);
  return true;
}

}  // namespace

Diagnosis diagnose(const Dumps& dumps, const Schedule* schedule) {
  Diagnosis result;
  result.notes = dumps.notes;
  std::optional<Rows> rows;
  bool fits = false;
  if (schedule != nullptr) {
    result.problems = check(*schedule);
    rows = placeOps(dumps, *schedule);
    result.followed = std::ranges::none_of(rows->ranks, [](const RankRow& row) { return row.departure.has_value(); });
    result.inOrder = rows->exact;
    fits = std::ranges::any_of(rows->ranks, [](const RankRow& row) { return row.row.value >= 0; });
    if (!fits && !dumps.dumps.empty())
      result.notes.push_back(fmt::format("no rank exchanges messages in a group that fits the schedule's {}; actions cannot be named",
                                         schedule->rows.size() == 1 ? "1 rank" : fmt::format("{} ranks", schedule->rows.size())));
  }
  for (int r = 0; r < dumps.ranks; ++r) {
    if (dumps.of(JobRank{r}) == nullptr) result.missing.emplace_back(r);
  }
  Inquiry inquiry(dumps, rows ? &*rows : nullptr);
  Diagnosing(inquiry, result).run();
  if (result.verdict == Verdict::CannotTell) return result;
  if (!dumps.dumps.empty() && !holdMessages(dumps))
    result.notes.emplace_back("no dump has a send or receive: torch's Flight Recorder keeps those of NCCL, but of Gloo only collectives");
  result.caughtBy = problemThatHangs(inquiry, result);
  if (fits) result.checkWouldCatch = result.caughtBy.has_value();
  return result;
}

}  // namespace pw::hang
