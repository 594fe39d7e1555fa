#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

#include <fmt/format.h>
#include <simdjson.h>

#include "backends/dumps/fields.h"
#include "backends/dumps/formats.h"

namespace pw::dumps {
namespace {

namespace dom = simdjson::dom;

constexpr std::size_t kMostCounted = 100'000;

std::string shortTextAt(const dom::object& object, std::string_view key) { return std::string(textAt(object, key).substr(0, 200)); }

bool nestedFlagAt(const dom::object& object, std::string_view first, std::string_view second) {
  bool flag = false;
  return object[first][second].get(flag) == simdjson::SUCCESS && flag;
}

/// What tells GPUs of a job apart.
using Place = std::tuple<std::string, std::int64_t, std::int64_t>;

Place placeOf(const dom::object& rank) { return {shortTextAt(rank, "host"), numberAt(rank, "pid", -1), numberAt(rank, "cuda_dev", -1)}; }

class RasReader {
 public:
  explicit RasReader(const Source& source) : source_(source) {}
  void read(const dom::object& root);

 private:
  [[nodiscard]] dom::array listAt(const dom::object& object, const char* key) const {
    dom::array list;
    if (object[key].get(list) != simdjson::SUCCESS) source_.refuse(fmt::format("a communicator has no list \"{}\"", key));
    return list;
  }
  [[nodiscard]] dom::object objectOf(const dom::element& element) const {
    dom::object object;
    if (element.get(object) != simdjson::SUCCESS) source_.refuse("an entry of a list is not an object");
    return object;
  }
  void readJob(const dom::object& job);
  void readCounts(const dom::object& communicator, bool isJob);

  const Source& source_;
  std::map<Place, JobRank> ranks_{};
};

void RasReader::readJob(const dom::object& job) {
  const auto note = [&](JobRank rank, const char* what) { source_.dumps.notes.push_back(fmt::format("rank {} {}", rank.value, what)); };
  for (const dom::element element : listAt(job, "ranks")) {
    const dom::object rank = objectOf(element);
    const JobRank number = source_.rank(numberAt(rank, "rank", -1), "a rank");
    ranks_.emplace(placeOf(rank), number);
    std::int64_t error = 0;
    if (rank["status"]["async_error"].get(error) == simdjson::SUCCESS && error != 0) note(number, "reports an error of NCCL");
    if (nestedFlagAt(rank, "status", "abort_flag")) note(number, "aborts its communicator");
  }
  for (const dom::element element : listAt(job, "missing_ranks")) {
    const dom::object rank = objectOf(element);
    const JobRank number = source_.rank(numberAt(rank, "rank", -1), "a missing rank");
    ranks_.emplace(placeOf(rank), number);
    source_.dumps.gone.push_back({number, nestedFlagAt(rank, "status", "considered_dead")});
  }
}

/// The counts of each collective; of a communicator of two ranks also those of messages from one to the other.
void RasReader::readCounts(const dom::object& communicator, bool isJob) {
  std::map<std::string, hang::OperationCounts> counted;
  const std::string name = shortTextAt(communicator, "hash");
  std::vector<std::pair<JobRank, dom::object>> ranks;
  for (const dom::element element : listAt(communicator, "ranks")) {
    const dom::object rank = objectOf(element);
    const auto known = ranks_.find(placeOf(rank));
    if (!isJob && known == ranks_.end()) continue;
    const JobRank number = isJob ? source_.rank(numberAt(rank, "rank", -1), "a rank") : known->second;
    dom::object counts;
    if (rank["collective_counts"].get(counts) != simdjson::SUCCESS) continue;
    ranks.emplace_back(number, counts);
    for (const auto [key, value] : counts) {
      std::int64_t count = 0;
      if (key == "Send" || key == "Recv" || key == "SendRecv" || value.get(count) != simdjson::SUCCESS || counted.size() > 64) continue;
      hang::OperationCounts& all = counted[std::string(key.substr(0, 64))];
      all.ranks.push_back(number);
      all.counts.push_back(count);
    }
  }
  for (auto& [operation, counts] : counted) {
    if (source_.dumps.counted.size() >= kMostCounted) return;
    counts.group = name;
    counts.operation = operation;
    source_.dumps.counted.push_back(std::move(counts));
  }
  if (ranks.size() != 2 || numberAt(communicator, "size", 0) != 2) return;
  for (const std::size_t from : {std::size_t{0}, std::size_t{1}}) {
    const std::int64_t sent = numberAt(ranks[from].second, "Send", -1), received = numberAt(ranks[1 - from].second, "Recv", -1);
    if (sent >= 0 && received >= 0)
      source_.dumps.counted.push_back(
          {name,
           fmt::format("messages from rank {} to rank {}", ranks[from].first.value, ranks[1 - from].first.value),
           {ranks[from].first, ranks[1 - from].first},
           {sent, received}});
  }
}

void RasReader::read(const dom::object& root) {
  dom::array communicators;
  if (root["communicators"].get(communicators) != simdjson::SUCCESS) source_.refuse("it has no list of communicators");
  std::vector<dom::object> all;
  for (const dom::element element : communicators) all.push_back(objectOf(element));
  if (all.empty()) source_.refuse("it has no communicator; query RAS while the job runs");
  const auto size = [](const dom::object& communicator) { return numberAt(communicator, "size", 0); };
  const auto job = std::ranges::max_element(all, {}, size);
  if (size(*job) < 1 || size(*job) > kMostJobRanks)
    source_.refuse(fmt::format("the size of a communicator is not from 1 to {}", kMostJobRanks));
  source_.dumps.ranks = std::max(source_.dumps.ranks, static_cast<int>(size(*job)));
  readJob(*job);
  for (auto communicator = all.begin(); communicator != all.end(); ++communicator) readCounts(*communicator, communicator == job);
}

}  // namespace

bool isRas(const dom::element& root) {
  dom::object object;
  dom::element any;
  return root.get(object) == simdjson::SUCCESS && object["communicators"].get(any) == simdjson::SUCCESS;
}

void readRas(const dom::element& root, const Source& source) {
  dom::object object;
  if (root.get(object) != simdjson::SUCCESS) source.refuse("it is not an object");
  RasReader(source).read(object);
}

}  // namespace pw::dumps
