#include "simulator/costs/problem_file.h"

#include <algorithm>
#include <optional>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "schedules/names.h"
#include "schedules/printable.h"
#include "schedules/units.h"
#include "simulator/text/json_part.h"

namespace pw {
namespace {

class Reader {
 public:
  Reader(const JsonPart& json, const JsonDocument& document) : json_(json), document_(document) {}

  /// Numbers ≥ 0, one for each of `what`; none where an optional key is missing.
  [[nodiscard]] std::vector<std::int64_t> list(const std::string& key, std::size_t length, std::string_view what, bool optional = false) {
    if (optional && !json_.has(key)) return {};
    std::vector<std::int64_t> numbers = json_[key].listOf<std::int64_t>();
    if (numbers.size() != length) fail(fmt::format("`{}` has {} numbers; {} {} need one each", key, numbers.size(), length, what));
    for (const std::int64_t number : numbers) {
      if (number < 0) fail(fmt::format("`{}` contains {}; use 0 or more", key, number));
      if (number > kMostSum / (1 + std::int64_t{4} * static_cast<std::int64_t>(length) * microbatches))
        fail(fmt::format("`{}` contains {}, too large to add up", key, number));
    }
    return numbers;
  }
  template <class Unit>
  [[nodiscard]] std::vector<Unit> list(const std::string& key, std::size_t length, std::string_view what, bool optional = false) {
    const std::vector<std::int64_t> numbers = list(key, length, what, optional);
    return {numbers.begin(), numbers.end()};
  }
  [[noreturn]] void fail(const std::string& what) const { document_.fail(what); }

  std::int64_t microbatches = 1;

 private:
  const JsonPart& json_;
  const JsonDocument& document_;
};

/// Refuses a misspelt member; others of which nothing is known, such as a name or an optimum, are nobody's mistake.
void requireNoneMisspelt(const JsonPart& json, const JsonDocument& document) {
  static const std::vector<std::string_view> known{"ranks",
                                                   "microbatches",
                                                   "place",
                                                   "forward_ns",
                                                   "input_ns",
                                                   "weight_ns",
                                                   "latency_ns",
                                                   "activation",
                                                   "activation_after_input",
                                                   "limit",
                                                   "activation_if_recomputed",
                                                   "objective"};
  for (const std::string& key : json.keys()) {
    if (std::ranges::find(known, key) != known.end()) continue;
    const std::string meant = didYouMean(key, known);
    if (!meant.empty()) document.fail(fmt::format("it has `{}`{}", printableLine(key), meant));
  }
}

/// Messages between neighbouring stages; links between their ranks add up.
void addMessages(ProblemFile& problem, const std::vector<Ns>& links) {
  for (std::size_t s = 1; s < problem.placement.stages(); ++s) {
    const auto [low, high] = std::minmax(problem.placement.rankOfStage[s - 1], problem.placement.rankOfStage[s]);
    Ns latency = 0;
    for (std::size_t link = low.index(); link < high.index(); ++link) latency += links[link];
    problem.costs.messages.push_back({Stage(s - 1), Stage(s), false, 0, latency, 0});
    problem.costs.messages.push_back({Stage(s), Stage(s - 1), true, 0, latency, 0});
  }
}

}  // namespace

ProblemFile parseProblem(std::string_view text, const std::string& source) {
  const JsonDocument document{source, "problem file", "resources/docs/formats.md shows one"};
  const nlohmann::ordered_json parsed = document.parse(text);
  const JsonPart json(parsed, document);
  requireNoneMisspelt(json, document);
  Reader reader(json, document);
  ProblemFile problem;
  problem.shape.ranks = json["ranks"].within<int>(1, kMaxRanks);
  problem.shape.microbatches = json["microbatches"].within<int>(1, kMaxMicrobatches);
  reader.microbatches = problem.shape.microbatches;
  const std::size_t stages = json["place"].size();
  if (stages < 1 || stages > static_cast<std::size_t>(kMaxStages)) reader.fail("`place` is empty; give the rank of each stage");
  problem.shape.stages = static_cast<int>(stages);
  for (const std::int64_t rank : reader.list("place", stages, "stages")) {
    if (rank >= problem.shape.ranks)
      reader.fail(fmt::format("`place` names rank {}, but the ranks are 0 to {}", rank, problem.shape.ranks - 1));
    problem.placement.rankOfStage.emplace_back(static_cast<std::int32_t>(rank));
  }
  const auto forward = reader.list<Ns>("forward_ns", stages, "stages"), input = reader.list<Ns>("input_ns", stages, "stages"),
             weight = reader.list<Ns>("weight_ns", stages, "stages");
  const auto activation = reader.list<Bytes>("activation", stages, "stages"),
             kept = reader.list<Bytes>("activation_after_input", stages, "stages", true);
  for (std::size_t s = 0; s < stages; ++s) {
    StageCost& cost = problem.costs.stages.emplace_back();
    cost.forward = forward[s];
    cost.backwardInput = input[s];
    cost.backwardWeight = weight[s];
    cost.backward = cost.backwardInput + cost.backwardWeight;
    cost.activationBytes = activation[s];
    if (kept.empty()) continue;
    if (kept[s] > activation[s])
      reader.fail(fmt::format("stage {} keeps {} after its input's backward, more than its activation of {}", s, kept[s].value,
                              activation[s].value));
    cost.freedByInput = activation[s] - kept[s];
  }
  addMessages(problem, reader.list<Ns>("latency_ns", static_cast<std::size_t>(problem.shape.ranks) - 1, "links"));
  problem.limits = reader.list<Bytes>("limit", static_cast<std::size_t>(problem.shape.ranks), "ranks", true);
  problem.ifRecomputed = reader.list<Bytes>("activation_if_recomputed", stages, "stages", true);
  if (!json.has("objective")) return problem;
  const auto objective = json["objective"].as<std::string>();
  const std::optional<StepClock> clock = valueNamed<StepClock>(objective);
  if (!clock) reader.fail(fmt::format("`objective` is \"{}\"; use flush or window", objective));
  problem.objective = *clock;
  return problem;
}

}  // namespace pw
