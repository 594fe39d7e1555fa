#include "engine/processes/meeting.h"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <future>
#include <optional>
#include <set>
#include <thread>
#include <utility>

#include <fmt/format.h>

#include "backends/messages/local_address.h"
#include "backends/messages/transport.h"
#include "schedules/error.h"
#include "simulator/text/digest.h"

namespace pw {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr milliseconds kVerdictSlack{2000};   // so that rank 0 can name the missing ranks before others only notice the delay
constexpr milliseconds kGoodbye{1000};        // for the others to read why the job ends
constexpr milliseconds kAbsenceReport{3000};  // for others of a job that start at the same time on a busy machine

constexpr const char* kPlaceKey = "meeting/0";
constexpr const char* kVerdictKey = "verdict/0";
constexpr char kAgreed = '=', kUnusable = '!', kFailed = ' ', kFields = '#';  // how a rank's word, or the verdict, begins

std::string wordKey(int rank) { return fmt::format("word/{}", rank); }
std::string heardKey(int rank) { return fmt::format("heard/{}", rank); }

/// The result of `work` if it returns within the time; it may continue forever.
template <class Work>
auto within(milliseconds time, const std::string& late, Work work) {
  std::packaged_task<std::invoke_result_t<Work>()> task(std::move(work));
  auto result = task.get_future();
  std::thread(std::move(task)).detach();
  if (result.wait_for(time) != std::future_status::ready) throw Error(late);
  return result.get();
}

/// `port address proof`; the address is `-` where rank 0 is on the host of the master.
std::string signedPlace(const std::string& token, const std::string& place) { return place + " " + hex(hmacSha256(token, place)); }

/// Where rank 0 serves, if the entry was written by this job.
std::optional<std::pair<int, std::string>> placeIn(const std::string& token, const std::string& text) {
  const std::size_t last = text.rfind(' '), first = text.find(' ');
  if (last == std::string::npos || first == last || !equalInConstantTime(text, signedPlace(token, text.substr(0, last))))
    return std::nullopt;
  int port = 0;
  std::from_chars(text.data(), text.data() + first, port);
  return std::pair(port, text.substr(first + 1, last - first - 1));
}

std::string packed(const JobFields& fields) {
  std::string text(1, kFields);
  for (const JobField& field : fields) {
    for (const std::string* part : {&field.name, &field.value, &field.shown}) text += fmt::format("{}:{}", part->size(), *part);
  }
  return text;
}

/// Nothing where it is not what `packed` writes.
std::optional<JobFields> unpacked(std::string_view text) {
  if (!text.starts_with(kFields)) return std::nullopt;
  JobFields fields;
  text.remove_prefix(1);
  while (!text.empty()) {
    JobField& field = fields.emplace_back();
    for (std::string* part : {&field.name, &field.value, &field.shown}) {
      std::size_t size = 0;
      const auto number = std::from_chars(text.data(), text.data() + text.size(), size);
      const auto begin = static_cast<std::size_t>(number.ptr - text.data()) + 1;
      if (number.ec != std::errc{} || begin > text.size() || size > text.size() - begin) return std::nullopt;
      *part = text.substr(begin, size);
      text.remove_prefix(begin + size);
    }
  }
  return fields;
}

/// The fields of the ranks that arrived in time, by rank.
std::vector<std::optional<std::string>> wordsOf(const Meeting& meeting, const Rendezvous& rendezvous) {
  std::vector<std::optional<std::string>> words(static_cast<std::size_t>(rendezvous.size));
  const auto until = Clock::now() + rendezvous.deadline;
  for (int r = 1; r < rendezvous.size; ++r) {
    const auto left = std::chrono::ceil<milliseconds>(until - Clock::now());
    words[static_cast<std::size_t>(r)] = meeting.find(wordKey(r), std::max(left, milliseconds(0)));
    if (const auto& word = words[static_cast<std::size_t>(r)]; word && !word->starts_with(kFields)) break;  // it is over anyway
  }
  return words;
}

std::string listed(const std::vector<int>& ranks) {
  constexpr std::size_t kMost = 8;
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (std::size_t i = 0; i < std::min(ranks.size(), kMost); ++i) text += fmt::format("{}{}", i == 0 ? "" : ", ", ranks[i]);
  return ranks.size() > kMost ? text + fmt::format(" and {} more", ranks.size() - kMost) : text;
}

/// Rank 0's judgement.
std::string judge(const Meeting& meeting, const Rendezvous& rendezvous, const JobFields& fields) {
  const auto words = wordsOf(meeting, rendezvous);
  std::vector<int> missing;
  for (int r = 1; r < rendezvous.size; ++r) {
    const auto& word = words[static_cast<std::size_t>(r)];
    if (word && !word->empty() && word->front() != kFields) return *word;
    if (!word) missing.push_back(r);
  }
  if (!missing.empty()) return kFailed + missingSentence(listed(missing), rendezvous);
  for (int r = 1; r < rendezvous.size; ++r) {
    const auto other = unpacked(*words[static_cast<std::size_t>(r)]);
    const std::string difference = other ? differenceBetween(fields, *other, JobRank(r))
                                         : fmt::format("Rank 0 and rank {} are of different builds of pipewright; run the same on all", r);
    if (!difference.empty()) return kUnusable + difference;
  }
  return {kAgreed};
}

/// Rank 0 serves until the others, of those that came, have read why the job ends.
void publish(const Meeting& meeting, const Rendezvous& rendezvous, const std::string& verdict, milliseconds patience) {
  meeting.set(kVerdictKey, verdict);
  if (verdict.front() == kAgreed) return;
  const auto until = Clock::now() + patience;
  for (int r = 1; r < rendezvous.size; ++r) {
    const auto left = std::chrono::ceil<milliseconds>(until - Clock::now());
    static_cast<void>(meeting.find(heardKey(r), std::max(left, milliseconds(0))));
  }
}

}  // namespace

Meeting openMeeting(const Rendezvous& rendezvous, const TorchBackend& (*torch)()) {
  if (!rendezvous.storeIsElsewhere) return meet(rendezvous);
  const std::string late = unmetSentence(rendezvous.size, rendezvous.masterAddress, rendezvous.masterPort, rendezvous.deadline, "");
  const TorchBackend& backend = torch();
  if (rendezvous.rank.value == 0) {
    Rendezvous own = rendezvous;
    own.masterPort = 0;
    Meeting meeting = meet(own);
    const std::string address = rendezvous.oneHost ? "127.0.0.1" : localAddressTowards(rendezvous.masterAddress);
    const std::string place = fmt::format("{} {}", meeting.port(), isLoopback(address) ? "-" : address);
    within(rendezvous.deadline, late, [&backend, rendezvous, place] {
      backend.connectStore(rendezvous).set(kPlaceKey, signedPlace(rendezvous.token, place));
      return 0;
    });
    return meeting;
  }
  const std::string said =
      within(rendezvous.deadline, late, [&backend, rendezvous] { return backend.connectStore(rendezvous).get(kPlaceKey); });
  const auto place = placeIn(rendezvous.token, said);
  if (!place) {
    throw Error(
        fmt::format("what the store at {}:{} says of rank 0 was not written by a rank of this job; start it again, with the same "
                    "PIPEWRIGHT_JOB_TOKEN for all ranks",
                    rendezvous.masterAddress, rendezvous.masterPort));
  }
  Rendezvous elsewhere = rendezvous;
  elsewhere.masterPort = place->first;
  if (place->second != "-") elsewhere.masterAddress = place->second;
  return meet(elsewhere);
}

std::string differenceBetween(const JobFields& first, const JobFields& other, JobRank rank) {
  std::vector<std::string> names;
  std::string values;
  const auto note = [&](const std::string& name, const std::string& here, const std::string& there) {
    names.push_back(name);
    if (names.size() == 1 && !(here.empty() && there.empty()))
      values = fmt::format(": {} and {}", here.empty() ? "none" : here, there.empty() ? "none" : there);
  };
  const auto named = [](const JobFields& fields, const std::string& name) { return std::ranges::find(fields, name, &JobField::name); };
  for (const JobField& field : first) {
    const auto found = named(other, field.name);
    if (found == other.end())
      note(field.name, field.shown, "");
    else if (found->value != field.value)
      note(field.name, field.shown, found->shown);
  }
  for (const JobField& field : other) {
    if (named(first, field.name) == first.end()) note(field.name, "", field.shown);
  }
  if (names.empty()) return "";
  std::string more;
  if (names.size() > 1)
    more = fmt::format(" (and in {}{})", names[1], names.size() > 2 ? fmt::format(" and {} more", names.size() - 2) : "");
  return fmt::format("Rank 0 and rank {} differ in {}{}{}; start all ranks with the same", rank.value, names.front(), values, more);
}

void requireSameFields(const Meeting& meeting, const Rendezvous& rendezvous, const JobFields& fields) {
  std::string verdict;
  if (rendezvous.rank.value == 0) {
    verdict = judge(meeting, rendezvous, fields);
    publish(meeting, rendezvous, verdict, kGoodbye);
  } else {
    meeting.set(wordKey(rendezvous.rank.value), packed(fields));
    const auto found = meeting.find(kVerdictKey, rendezvous.deadline + kVerdictSlack);
    if (!found || found->empty()) throw Error(missingSentence("rank 0", rendezvous));
    verdict = *found;
    if (verdict.front() != kAgreed) meeting.set(heardKey(rendezvous.rank.value), "");
  }
  if (verdict.front() == kUnusable) throw UsageError(verdict.substr(1));
  if (verdict.front() == kFailed) throw Error(verdict.substr(1));
}

void reportAbsence(const Rendezvous& rendezvous, const std::string& sentence, bool unusable) noexcept {
  try {
    Rendezvous brief = rendezvous;
    brief.deadline = std::min(rendezvous.deadline, kAbsenceReport);
    const auto end = Clock::now() + brief.deadline;
    const Meeting meeting = openMeeting(brief);
    const std::string word = (unusable ? kUnusable : kFailed) + sentence;
    if (rendezvous.rank.value == 0) return publish(meeting, brief, word, std::chrono::ceil<milliseconds>(end - Clock::now()));
    meeting.set(wordKey(rendezvous.rank.value), word);
    meeting.set(heardKey(rendezvous.rank.value), "");
  } catch (const std::exception&) {
    // The others then wait until their deadline; this rank has said why it ends.
  }
}

}  // namespace pw
