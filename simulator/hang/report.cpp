#include "simulator/hang/report.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "schedules/printable.h"
#include "simulator/hang/inquiry.h"
#include "simulator/text/counted.h"

namespace pw::hang {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::size_t kMostShown = 16;

Json json(const Spot& spot) {
  Json j{{"rank", spot.rank.value}};
  j["position"] = spot.position >= 0 ? Json(spot.position) : Json(nullptr);
  j["in_schedule"] = spot.inRow;
  j["action"] = spot.action ? Json(toString(*spot.action)) : Json(nullptr);
  j["operation"] = spot.operation.empty() ? Json(nullptr) : Json(spot.operation);
  j["set_up"] = spot.setsUp;
  j["step"] = spot.step >= 0 ? Json(spot.step) : Json(nullptr);
  j["waits_for"] = spot.on.value >= 0 ? Json(spot.on.value) : Json(nullptr);
  j["posted_ns"] = spot.posted > 0 ? Json(spot.posted) : Json(nullptr);
  return j;
}

Json json(const std::optional<Spot>& spot) { return spot ? json(*spot) : Json(nullptr); }

Json json(const std::vector<Spot>& spots) {
  Json list = Json::array();
  for (const Spot& spot : spots) list.push_back(json(spot));
  return list;
}

std::string ranksText(const std::vector<JobRank>& ranks) {
  std::string text;
  for (std::size_t i = 0; i < ranks.size() && i < kMostShown; ++i) text += fmt::format("{}{}", i > 0 ? ", " : "", ranks[i].value);
  return ranks.size() > kMostShown ? text + fmt::format(" and {} more", ranks.size() - kMostShown) : text;
}

/// Whether `check` would have told before the launch; nothing of a job that does not hang.
std::string checkText(const Diagnosis& d) {
  if (d.verdict == Verdict::Nothing || (d.problems.empty() && !d.checkWouldCatch)) return {};
  if (d.problems.empty())
    return fmt::format("`pipewright check` would not have caught it: the schedule is sound{}\n",
                       !d.followed  ? ", but was not followed"
                       : !d.inOrder ? ", but ranks exchange messages in another order, so it may not be what they ran"
                                    : "");
  const Problem& problem = d.problems[d.caughtBy.value_or(0)];
  return fmt::format("`pipewright check` {}: rank {}: {}\n",
                     d.caughtBy          ? "would have caught it"
                     : d.checkWouldCatch ? "refuses this schedule for another reason"
                                         : "refuses this schedule",
                     problem.rank.value, printableLine(problem.message));
}

}  // namespace

std::string diagnosisJson(const Dumps& dumps, const Diagnosis& d) {
  Json j{{"verdict", nameOf(d.verdict)}, {"sentence", d.sentence}, {"ranks", dumps.ranks}};
  j["first_stuck"] = json(d.firstStuck);
  j["cause"] = json(d.cause);
  j["cycle"] = json(d.cycle);
  j["silent_ranks"] = Json::array();
  for (const SilentRank& silent : d.silent) {
    j["silent_ranks"].push_back({{"rank", silent.rank.value},
                                 {"dump", silent.file.empty() ? Json(nullptr) : Json(silent.file)},
                                 {"why", silent.why},
                                 {"last", json(silent.last)},
                                 {"next", json(silent.next)},
                                 {"possible", Json::array()}});
    for (const Action& action : silent.possible) j["silent_ranks"].back()["possible"].push_back(toString(action));
  }
  j["missing_ranks"] = Json::array();
  for (const JobRank rank : d.missing) j["missing_ranks"].push_back(rank.value);
  j["check_would_catch"] = d.checkWouldCatch ? Json(*d.checkWouldCatch) : Json(nullptr);
  const bool isKnown = d.checkWouldCatch && (d.inOrder || !d.followed);
  j["schedule_followed"] = isKnown ? Json(d.followed) : Json(nullptr);
  j["problems"] = Json::array();
  for (const Problem& problem : d.problems) {
    j["problems"].push_back({{"rank", problem.rank.value},
                             {"position", problem.position},
                             {"action", toString(problem.action)},
                             {"stops", nameOf(problem.stops)},
                             {"message", problem.message}});
  }
  j["waits"] = json(d.waits);
  j["dumps"] = Json::array();
  for (const RankDump& dump : dumps.dumps) {
    j["dumps"].push_back({{"rank", dump.rank.value}, {"file", dump.file}, {"operations", dump.ops.size()}, {"complete", dump.complete}});
  }
  j["notes"] = d.notes;
  return j.dump(2, ' ', false, Json::error_handler_t::replace);
}

std::string diagnosisText(const Dumps& dumps, const Diagnosis& d) {
  std::string text = fmt::format("{}: {}\n", nameOf(d.verdict), printableLine(d.sentence));
  if (d.cause) text += fmt::format("cause: rank {}, {}\n", d.cause->rank.value, placeText(*d.cause));
  if (!d.waits.empty()) text += "\nwaiting:\n";
  for (std::size_t i = 0; i < d.waits.size() && i < kMostShown; ++i) text += "  " + textOf(d.waits[i]) + "\n";
  if (d.waits.size() > kMostShown)
    text += fmt::format("  and {} more\n", counted(static_cast<std::int64_t>(d.waits.size() - kMostShown), "rank"));
  if (!d.silent.empty()) text += "\nsilent:\n";
  for (std::size_t i = 0; i < d.silent.size() && i < kMostShown; ++i) {
    const SilentRank& silent = d.silent[i];
    text +=
        fmt::format("  rank {}: {}{}{}\n", silent.rank.value, printableLine(silent.why),
                    silent.last ? "; last done " + placeText(*silent.last) : "", silent.next ? "; next " + placeText(*silent.next) : "");
  }
  if (d.silentRanks > kMostShown)
    text += fmt::format("  and {} more\n", counted(static_cast<std::int64_t>(d.silentRanks - kMostShown), "rank"));
  text += fmt::format("\n{} of {}", counted(static_cast<std::int64_t>(dumps.dumps.size()), "dump"), counted(dumps.ranks, "rank"));
  text += d.missing.empty() ? "\n" : fmt::format("; missing: {}\n", ranksText(d.missing));
  text += checkText(d);
  for (const std::string& note : d.notes) text += "note: " + printableLine(note) + "\n";
  return text;
}

}  // namespace pw::hang
