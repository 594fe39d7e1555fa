#include "simulator/search/study.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <functional>
#include <limits>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "schedules/error.h"
#include "schedules/generate.h"
#include "schedules/units.h"
#include "simulator/costs/profile.h"
#include "simulator/order/find.h"
#include "simulator/search/search.h"
#include "simulator/text/json_part.h"

namespace pw {
namespace {

constexpr std::int64_t kMostRanks = 1024, kMostReplicas = 1024, kMostChunks = 1024, kMostMicrobatches = 1'000'000;  ///< as of `plan`
constexpr std::int64_t kMostSamples = 1 << 20, kMostBatch = 1 << 24;
constexpr std::size_t kMostValues = 100'000;  ///< of one list

/// One value, or a list of them.
template <class Read>
auto valuesIn(const JsonPart& part, const Read& read) {
  std::vector<decltype(read(part))> values;
  if (!part.json().is_array()) {
    values.push_back(read(part));
  } else {
    if (part.size() > kMostValues) part.fail(fmt::format("has more than {} values", kMostValues));
    for (std::size_t i = 0, count = part.size(); i < count; ++i) values.push_back(read(part[i]));
  }
  if (values.empty()) part.fail("is empty");
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (std::find(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(i), values[i]) !=
        values.begin() + static_cast<std::ptrdiff_t>(i))
      part.fail("has a value twice");
  }
  return values;
}

/// One value that `read` takes, a list of them, or a range `{"from": 8, "to": 64, "step": 8}` or `{…, "times": 2}`, both ends included.
template <class Number>
std::vector<Number> numbersIn(const JsonPart& part, std::int64_t most, const std::function<Number(const JsonPart&)>& read) {
  if (!part.json().is_object()) return valuesIn(part, read);
  for (const std::string& key : part.keys()) {
    if (key != "from" && key != "to" && key != "step" && key != "times")
      part.fail(fmt::format("has {}; a range has from, to, and step or times", key));
  }
  if (part.has("step") && part.has("times")) part.fail("has both step and times");
  const std::int64_t from{read(part["from"])}, to{read(part["to"])};
  const bool byFactor = part.has("times");
  const std::int64_t step = byFactor ? part["times"].within(2, most) : part.has("step") ? std::int64_t{read(part["step"])} : 1;
  if (step == 0) part.fail("has steps of 0");
  if (from > to) part.fail("is empty");
  if (byFactor && from == 0) part.fail("multiplies 0");
  std::vector<Number> numbers;
  for (std::int64_t n = from; n <= to; n = byFactor ? n * step : n + step) {
    numbers.push_back(static_cast<Number>(n));
    if (byFactor && n > to / step) break;
    if (numbers.size() > kMostValues) part.fail(fmt::format("has more than {} values", kMostValues));
  }
  return numbers;
}

template <class Number>
std::vector<Number> numbersIn(const JsonPart& part, std::int64_t least, std::int64_t most) {
  return numbersIn<Number>(part, most, [&](const JsonPart& p) { return p.within<Number>(least, most); });
}

constexpr std::int64_t kMostBytes = std::int64_t{1} << 60;

Bytes sizeIn(const JsonPart& part) {
  if (part.json().is_number_float()) part.fail("has a fraction or an exponent; write a whole number of bytes, or a text as \"24GB\"");
  if (part.json().is_number()) return part.within<Bytes>(0, kMostBytes);
  return parseSize(part.as<std::string>());
}

Recompute recomputeIn(const JsonPart& part) {
  return parseRecompute(part.json().is_array() ? part.listOf<std::string>() : std::vector<std::string>{part.as<std::string>()});
}

std::string scheduleIn(const JsonPart& part) {
  auto name = part.as<std::string>();
  if (madeSchedule(name) != nullptr) return name;
  const Generator& family = familyOf(name);
  if (!family.trains) part.fail(fmt::format("has {}, which does not train; omit it", family.name));
  return std::string(family.name);
}

/// Each cluster with each link, `NAME+LINK`; an empty link: those that the cluster has.
std::vector<std::string> withLinks(const std::vector<std::string>& clusters, const JsonPart& part) {
  std::vector<std::string> all;
  for (const std::string& cluster : clusters) {
    if (cluster.empty()) part.fail("is of no cluster; add the member cluster");
    const bool hasLink = cluster.find('+') != std::string::npos && !cluster.ends_with(".json");
    for (const std::string& link : valuesIn(part, [](const JsonPart& p) { return p.as<std::string>(); })) {
      if (hasLink && !link.empty())
        part.fail(
            fmt::format("gives {} another link than it has; list the cluster without its link, or leave out the member link", cluster));
      all.push_back(link.empty() ? cluster : fmt::format("{}+{}", cluster, link));
    }
  }
  return all;
}

/// All members, so that none is misspelt unnoticed.
constexpr std::array<std::string_view, 20> kMembers{
    "version",    "model",        "cluster",  "link",   "profile", "precision", "attention", "ranks", "replicas",     "batch",
    "microbatch", "microbatches", "schedule", "chunks", "balance", "recompute", "optimizer", "zero1", "memory_limit", "seconds"};

}  // namespace

Study parseStudy(std::string_view json, const std::string& source) {
  const JsonDocument document{source, "study", "the user guide has an example"};
  const auto root = document.parse(json);
  const JsonPart part(root, document);
  if (!root.is_object()) part.fail("is not a JSON object");
  if (part["version"].within(1, std::numeric_limits<std::int64_t>::max()) > 1)
    throw UsageError(fmt::format("The study {} is newer than this Pipewright reads; update it.", source));
  for (const std::string& key : part.keys()) {
    if (std::ranges::find(kMembers, key) == kMembers.end()) part.fail(fmt::format("has the unknown member {}", key));
  }
  const auto text = [](const JsonPart& p) { return p.as<std::string>(); };
  Study study;
  study.models = valuesIn(part["model"], text);
  if (part.has("cluster")) study.clusters = valuesIn(part["cluster"], text);
  if (part.has("link")) study.clusters = withLinks(study.clusters, part["link"]);
  if (part.has("profile")) study.profiles = valuesIn(part["profile"], text);
  if (part.has("precision")) {
    study.precisions = valuesIn(part["precision"], [](const JsonPart& p) {
      const auto precision = precisionNamed(p.as<std::string>());
      if (!precision) p.fail("is not traced, bf16, fp16 or fp8");
      return *precision;
    });
  }
  if (part.has("attention")) {
    study.attentions = valuesIn(part["attention"], [](const JsonPart& p) {
      const auto attention = valueNamed<Attention>(p.as<std::string>());
      if (!attention) p.fail("is not traced, fused or unfused");
      return *attention;
    });
  }
  study.ranks = numbersIn<int>(part["ranks"], 1, kMostRanks);
  if (part.has("replicas")) study.replicas = numbersIn<int>(part["replicas"], 1, kMostReplicas);
  if (part.has("batch")) study.batches = numbersIn<std::int64_t>(part["batch"], 0, kMostBatch);
  if (part.has("microbatch")) study.microbatchSizes = numbersIn<std::int64_t>(part["microbatch"], 0, kMostSamples);
  study.microbatches = numbersIn<int>(part["microbatches"], 1, kMostMicrobatches);
  if (part.has("schedule")) study.schedules = valuesIn(part["schedule"], scheduleIn);
  if (part.has("chunks")) study.chunks = numbersIn<int>(part["chunks"], 0, kMostChunks);
  if (part.has("balance")) study.balances = valuesIn(part["balance"], [&](const JsonPart& p) { return parseBalance(text(p)); });
  if (part.has("recompute")) study.recomputes = valuesIn(part["recompute"], recomputeIn);
  if (part.has("optimizer"))
    study.optimizers = valuesIn(part["optimizer"], [&](const JsonPart& p) { return plannedOptimizer(text(p), 0); });
  if (part.has("zero1")) study.zero1 = valuesIn(part["zero1"], [](const JsonPart& p) { return p.as<bool>(); });
  if (part.has("memory_limit")) study.memoryLimits = numbersIn<Bytes>(part["memory_limit"], kMostBytes, sizeIn);
  if (part.has("seconds")) study.seconds = part["seconds"].as<double>();
  if (!(study.seconds >= 0.01 && study.seconds <= 3600)) part["seconds"].fail("is not from 0.01 to 3600");
  static_cast<void>(pointsOf(study));
  return study;
}

std::int64_t pointsOf(const Study& s) {
  std::int64_t points = 1;
  for (const std::size_t count :
       {s.models.size(), s.clusters.size(), s.precisions.size(), s.attentions.size(), s.ranks.size(), s.replicas.size(), s.batches.size(),
        s.microbatchSizes.size(), s.microbatches.size(), s.schedules.size(), s.chunks.size(), s.balances.size(), s.recomputes.size(),
        s.optimizers.size(), s.zero1.size(), s.memoryLimits.size()}) {
    if (static_cast<std::int64_t>(count) > kMostPoints / points)
      throw UsageError(fmt::format("The study has more than {} points; give fewer values.", kMostPoints));
    points *= static_cast<std::int64_t>(count);
  }
  return points;
}

StudyPoint pointOf(const Study& s, std::int64_t number) {
  StudyPoint p;
  p.number = number;
  const auto take = [&number](const auto& values) {
    const auto count = static_cast<std::int64_t>(values.size());
    const auto at = static_cast<std::size_t>(number % count);
    number /= count;
    return values[at];
  };
  p.recompute = take(s.recomputes);
  p.balance = take(s.balances);
  p.memoryLimit = take(s.memoryLimits);
  p.optimizer = take(s.optimizers);
  p.zero1 = take(s.zero1);
  p.chunks = take(s.chunks);
  p.schedule = take(s.schedules);
  p.ranks = take(s.ranks);
  p.replicas = take(s.replicas);
  p.microbatches = take(s.microbatches);
  p.microbatchSize = take(s.microbatchSizes);
  p.batch = take(s.batches);
  p.attention = take(s.attentions);
  p.precision = take(s.precisions);
  p.cluster = take(s.clusters);
  p.model = take(s.models);
  return p;
}

bool StudyShard::has(std::int64_t point) const {
  if (count == 1) return true;
  std::int64_t digits = 0;  // their sum, in base `count`
  for (std::int64_t rest = point; rest > 0; rest /= count) digits += rest % count;
  return digits % count == index;
}

StudyShard parseShard(std::string_view text) {
  StudyShard shard;
  const char* const end = text.data() + text.size();
  const auto index = std::from_chars(text.data(), end, shard.index);
  const bool divided = index.ec == std::errc() && index.ptr != end && *index.ptr == '/';
  const auto count = divided ? std::from_chars(index.ptr + 1, end, shard.count) : index;
  if (!divided || count.ec != std::errc() || count.ptr != end || shard.count < 1 || shard.index < 0 || shard.index >= shard.count)
    throw UsageError(fmt::format("`{}` is not a shard; give its number from 0 and how many there are, as 2/8.", text));
  return shard;
}

}  // namespace pw
