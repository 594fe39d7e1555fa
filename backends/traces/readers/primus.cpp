#include <algorithm>
#include <cmath>
#include <filesystem>
#include <iterator>
#include <map>
#include <set>
#include <utility>

#include <fmt/format.h>
#include <simdjson.h>

#include "backends/host/paths.h"
#include "backends/traces/events/events.h"
#include "backends/traces/events/spans.h"
#include "backends/traces/readers/readers.h"
#include "backends/traces/recovery/interleaving.h"
#include "schedules/error.h"
#include "schedules/generate.h"

namespace pw {
namespace {

namespace fs = std::filesystem;
namespace dom = simdjson::dom;

constexpr std::uintmax_t kLargestFile = std::uintmax_t{1} << 30;
constexpr std::int64_t kMostIterations = 1'000'000;
constexpr double kMostMilliseconds = 1e8;  ///< a day

/// `config.json`: shape of the pipeline. 0: not said.
struct Config {
  int ranks = 0, chunks = 0, microbatches = 0;
};

/// One kind of operation of a rank in an iteration, in the rank's order.
struct Series {
  std::vector<Ns> start, end;
  std::vector<std::int64_t> microbatch, chunk;  ///< empty where the file does not name them
};

struct Iteration {
  Series forward, backward, weight;
  Bytes memory = 0;
};

using Iterations = std::map<std::int64_t, Iteration>;  ///< by number

class Reader {
 public:
  explicit Reader(const std::string& folder) : folder_(folder) {}
  ImportedTrace read();

 private:
  [[noreturn]] void refuse(const std::string& file, const std::string& what) const {
    throw UsageError(fmt::format("{} is not a usable pipeline dump of Primus: {}; dump it again with dump_pp_data",
                                 (fs::path(folder_) / file).string(), what));
  }
  dom::element parse(const std::string& file);
  void readConfig();
  void readRank(int rank);
  Series series(const std::string& file, dom::object iteration, const std::string& name) const;
  void settleShape();
  void nameMicrobatches();
  [[nodiscard]] bool isV(const Iteration& first) const;
  Stage stageOf(int rank, std::int64_t chunk) const;
  void addIteration(std::int64_t number, ImportedTrace& result);
  void addSpans(int rank, SpanKind kind, const Series& series, const std::vector<Action>& order, Trace& trace) const;

  std::string folder_;
  dom::parser parser_;
  Config config_;
  std::vector<Iterations> ranks_;
  bool named_ = false;  ///< the files name chunks and microbatches
  bool v_ = false;      ///< the second chunk goes back up the ranks
  std::int64_t firstMicrobatch_ = 0;
  Schedule order_;  ///< where they do not
  int group_ = 0;   ///< microbatches that its chunks take turns in
  std::size_t cut_ = 0;
};

dom::element Reader::parse(const std::string& file) {
  const fs::path path = fs::path(folder_) / file;
  std::error_code problem;
  const std::uintmax_t size = fs::file_size(path, problem);
  if (problem) refuse(file, problem.message());
  if (size > kLargestFile) refuse(file, "it is larger than 1 GiB");
  dom::element root;
  if (const auto error = parser_.load(path.string()).get(root)) refuse(file, simdjson::error_message(error));
  return root;
}

void Reader::readConfig() {
  if (!pathExists((fs::path(folder_) / "config.json").string())) return;
  const dom::element root = parse("config.json");
  const auto number = [&](const char* name, const char* older, int most) {
    std::int64_t value = 0;
    if (root[name].get(value) != simdjson::SUCCESS && root[older].get(value) != simdjson::SUCCESS) return 0;
    if (value < 1 || value > most) refuse("config.json", fmt::format("{} is {}, not from 1 to {}", name, value, most));
    return static_cast<int>(value);
  };
  config_.ranks = number("pp_size", "pp_size", kMaxRanks);
  config_.chunks = number("vp_size", "vpp_size", 1024);
  config_.microbatches = number("num_mbs", "micro_batches", kMaxMicrobatches);
}

Series Reader::series(const std::string& file, dom::object iteration, const std::string& name) const {
  Series result;
  const auto times = [&](const std::string& key, std::vector<Ns>& into) {
    dom::array array;
    if (iteration[key].get(array) != simdjson::SUCCESS) return;
    for (const dom::element element : array) {
      double milliseconds = 0;
      if (element.get(milliseconds) != simdjson::SUCCESS || !(std::abs(milliseconds) <= kMostMilliseconds))
        refuse(file, fmt::format("a time of {} is not a number of milliseconds", key));
      into.push_back(static_cast<Ns>(std::llround(milliseconds * 1e6)));
    }
  };
  const auto numbers = [&](const std::string& key, std::int64_t most, std::vector<std::int64_t>& into) {
    dom::array array;
    if (iteration[key].get(array) != simdjson::SUCCESS) return;
    for (const dom::element element : array) {
      std::int64_t value = 0;
      if (element.get(value) != simdjson::SUCCESS || value < 0 || value > most)
        refuse(file, fmt::format("{} holds something other than numbers from 0 to {}", key, most));
      into.push_back(value);
    }
  };
  times(name + "_start", result.start);
  times(name + "_end", result.end);
  numbers(name + "_minibatch", kMaxMicrobatches, result.microbatch);
  numbers(name + "_chunk", 1023, result.chunk);
  if (result.start.size() != result.end.size())
    refuse(file, fmt::format("{}_start has {} times, {}_end {}", name, result.start.size(), name, result.end.size()));
  for (std::size_t i = 0; i < result.start.size(); ++i) {
    if (result.end[i] < result.start[i]) refuse(file, fmt::format("a time of {}_end is before its {}_start", name, name));
  }
  for (const auto* names : {&result.microbatch, &result.chunk}) {
    if (!names->empty() && names->size() != result.start.size())
      refuse(file, fmt::format("{}_start has {} times, but {} are named", name, result.start.size(), names->size()));
  }
  return result;
}

void Reader::readRank(int rank) {
  const std::string file = fmt::format("pp_rank_{}.json", rank);
  if (!pathExists((fs::path(folder_) / file).string()))
    throw UsageError(fmt::format("{} is missing, but the pipeline has {} ranks; copy the whole folder", (fs::path(folder_) / file).string(),
                                 config_.ranks));
  dom::object root;
  if (parse(file).get(root) != simdjson::SUCCESS) refuse(file, "it is not a JSON object of iterations");
  Iterations iterations;
  for (const auto [key, value] : root) {
    dom::object object;
    std::int64_t number = 0;
    const std::string text(key);
    for (const char c : text) number = c >= '0' && c <= '9' && number < kMostIterations ? number * 10 + (c - '0') : kMostIterations + 1;
    if (text.empty() || number > kMostIterations || value.get(object) != simdjson::SUCCESS)
      refuse(file, fmt::format("\"{}\" is not an iteration", text.substr(0, 40)));
    Iteration iteration{series(file, object, "fwd"), series(file, object, "bwd"), series(file, object, "wgrad"), 0};
    double memory = 0;  // of torch.cuda.max_memory_reserved, / 1024³
    if (object["memory"].get(memory) == simdjson::SUCCESS && memory > 0 && memory < 1e9)
      iteration.memory = Bytes(std::llround(memory * 1024 * 1024 * 1024));
    iterations.insert_or_assign(number, std::move(iteration));
  }
  if (iterations.empty()) refuse(file, "it holds no iteration");
  ranks_.push_back(std::move(iterations));
}

/// Where stage and microbatch of a rank's k-th operation come from, and what the files leave open about the shape.
void Reader::settleShape() {
  const Iteration& first = ranks_.front().begin()->second;
  named_ = !first.forward.microbatch.empty() && !first.forward.chunk.empty();
  std::int64_t chunks = 1;
  for (const Iterations& iterations : ranks_) {
    for (const auto& [number, iteration] : iterations) {
      for (const Series* s : {&iteration.forward, &iteration.backward, &iteration.weight}) {
        for (const std::int64_t chunk : s->chunk) chunks = std::max(chunks, chunk + 1);
      }
    }
  }
  if (config_.chunks == 0) config_.chunks = static_cast<int>(chunks);
  if (chunks > config_.chunks) refuse("pp_rank_0.json", fmt::format("it names chunk {} of {}", chunks - 1, config_.chunks));
  const auto count = static_cast<std::int64_t>(first.forward.start.size());
  if (config_.microbatches == 0) config_.microbatches = static_cast<int>(std::min<std::int64_t>(kMaxMicrobatches, count / config_.chunks));
  if (config_.microbatches == 0) refuse("pp_rank_0.json", "its first iteration holds no forward");
  if (std::int64_t{config_.microbatches} * config_.chunks > kMaxMicrobatches || std::int64_t{config_.ranks} * config_.chunks > kMaxStages) {
    refuse("config.json", fmt::format("{} microbatches in {} chunks on {} ranks are more than this program shows", config_.microbatches,
                                      config_.chunks, config_.ranks));
  }
  if (count != std::int64_t{config_.microbatches} * config_.chunks) {
    refuse("pp_rank_0.json", fmt::format("its first iteration has {} forwards, not {} microbatches times {} chunks", count,
                                         config_.microbatches, config_.chunks));
  }
  nameMicrobatches();
}

void Reader::nameMicrobatches() {
  const Iteration& first = ranks_.front().begin()->second;
  if (named_) {
    firstMicrobatch_ = *std::min_element(first.forward.microbatch.begin(), first.forward.microbatch.end());
    v_ = config_.chunks == 2 && config_.ranks > 1 && isV(first);
    return;
  }
  const Shape shape{config_.ranks, config_.ranks * config_.chunks, config_.microbatches};
  if (config_.chunks == 1) {
    order_ = generate("gpipe", shape);
    return;
  }
  // The last iteration, as the first warms up.
  UnnamedStep step;
  const auto timesOf = [](const Series& series) {
    std::vector<std::pair<Ns, Ns>> times;
    for (std::size_t i = 0; i < series.start.size(); ++i) times.emplace_back(series.start[i], series.end[i]);
    return times;
  };
  for (const Iterations& iterations : ranks_) {
    step.forwards.push_back(timesOf(iterations.rbegin()->second.forward));
    step.backwards.push_back(timesOf(iterations.rbegin()->second.backward));
  }
  std::optional<Interleaving> found = interleavingOf(step, config_.chunks);
  const bool fits = found && found->microbatches == config_.microbatches;
  group_ = fits ? found->group : std::min(config_.ranks, config_.microbatches);
  order_ = fits ? std::move(found->schedule) : interleavedWithGroups(shape, group_);
}

/// Whether the last rank works on a microbatch's second chunk before the first rank does: it goes back up.
bool Reader::isV(const Iteration& first) const {
  const auto startOf = [&](const Iteration& iteration) {
    for (std::size_t i = 0; i < iteration.forward.start.size(); ++i) {
      if (iteration.forward.chunk[i] == 1 && iteration.forward.microbatch[i] == firstMicrobatch_) return iteration.forward.start[i];
    }
    return Ns{0};
  };
  const Iteration& last = ranks_.back().begin()->second;
  return last.forward.chunk.size() == last.forward.start.size() && last.forward.microbatch.size() == last.forward.start.size() &&
         startOf(last) < startOf(first);
}

Stage Reader::stageOf(int rank, std::int64_t chunk) const {
  const auto place = static_cast<std::int32_t>(chunk);
  return Stage(v_ && place == 1 ? 2 * config_.ranks - 1 - rank : place * config_.ranks + rank);
}

void Reader::addSpans(int rank, SpanKind kind, const Series& series, const std::vector<Action>& order, Trace& trace) const {
  for (std::size_t i = 0; i < series.start.size(); ++i) {
    const bool named = named_ && !series.chunk.empty() && !series.microbatch.empty();
    const Stage stage = named ? stageOf(rank, series.chunk[i]) : order[i].stage;
    const Microbatch microbatch =
        named ? Microbatch(static_cast<std::int32_t>(series.microbatch[i] - firstMicrobatch_)) : order[i].microbatch;
    trace.spans.push_back({Rank(rank), kind, stage, microbatch, Rank(rank), 0, series.start[i], series.end[i]});
  }
}

void Reader::addIteration(std::int64_t number, ImportedTrace& result) {
  Trace trace{config_.ranks, {}, {}};
  const auto expected = static_cast<std::size_t>(config_.microbatches) * static_cast<std::size_t>(config_.chunks);
  for (int r = 0; r < config_.ranks; ++r) {
    const auto found = ranks_[static_cast<std::size_t>(r)].find(number);
    const auto left = [&](const std::string& why) {
      result.notes.push_back(fmt::format("Iteration {} was left out: rank {} {}.", number, r, why));
    };
    if (found == ranks_[static_cast<std::size_t>(r)].end()) return left("does not have it");
    const Iteration& iteration = found->second;
    for (const auto& [series, word] :
         {std::pair{&iteration.forward, "forwards"}, {&iteration.backward, "backwards"}, {&iteration.weight, "weight gradients"}}) {
      if (series->start.size() == expected || (series == &iteration.weight && series->start.empty())) {
        const auto outside = [&](std::int64_t m) { return m < firstMicrobatch_ || m >= firstMicrobatch_ + config_.microbatches; };
        if (named_ && std::any_of(series->microbatch.begin(), series->microbatch.end(), outside))
          return left("names microbatches that are not there");
        if (named_ && !series->start.empty() && (series->microbatch.empty() || series->chunk.empty()))
          return left(fmt::format("does not name its {}", word));
        continue;
      }
      return left(fmt::format("has {} {} of {}", series->start.size(), word, expected));
    }
    std::vector<Action> forwards, backwards;
    if (!named_) {
      for (const Action& action : order_.rows[static_cast<std::size_t>(r)])
        (action.kind == ActionKind::Forward ? forwards : backwards).push_back(action);
      std::erase_if(backwards, [](const Action& a) { return a.kind != ActionKind::Backward; });
    }
    addSpans(r, SpanKind::Forward, iteration.forward, forwards, trace);
    addSpans(r, iteration.weight.start.empty() ? SpanKind::Backward : SpanKind::BackwardInput, iteration.backward, backwards, trace);
    addSpans(r, SpanKind::BackwardWeight, iteration.weight, backwards, trace);
    if (iteration.memory > 0) trace.memory.push_back({Rank(r), 0, iteration.memory});
  }
  if (trace.spans.empty()) return;
  sortSpans(trace.spans);
  cut_ += cutOverlaps(trace.spans, trace.ranks);
  normalize(trace);
  for (MemorySample& sample : trace.memory) sample.time = 0;  // of the whole iteration
  result.steps.push_back({fmt::format("iteration {}{}", number, number == 1 ? " (warm-up)" : ""), std::move(trace)});
}

ImportedTrace Reader::read() {
  readConfig();
  if (config_.ranks == 0) {
    while (config_.ranks < kMaxRanks && pathExists((fs::path(folder_) / fmt::format("pp_rank_{}.json", config_.ranks)).string()))
      ++config_.ranks;
  }
  if (config_.ranks == 0) refuse("pp_rank_0.json", "it is missing");
  for (int r = 0; r < config_.ranks; ++r) readRank(r);
  settleShape();
  ImportedTrace result;
  for (const auto& [number, iteration] : ranks_.front()) addIteration(number, result);
  if (result.steps.empty()) refuse("pp_rank_0.json", result.notes.empty() ? "no iteration is whole" : result.notes.front());
  constexpr std::size_t kMostNotes = 8;
  if (result.notes.size() > kMostNotes) {
    const std::size_t more = result.notes.size() - kMostNotes;
    result.notes.resize(kMostNotes);
    result.notes.push_back(fmt::format("{} more were left out.", countedEvents(more, "iteration")));
  }
  if (cut_ > 0)
    result.notes.push_back(fmt::format("{} cut or left out, because they lie over others of the same rank.",
                                       countedEvents(cut_, "action") + (cut_ == 1 ? " was" : " were")));
  if (!named_ && config_.chunks > 1) {
    result.notes.push_back(
        fmt::format("The files do not name chunks and microbatches: a rank's operations were taken in the order of interleaved 1F1B in "
                    "groups of {} microbatches.",
                    group_));
  }
  result.notes.emplace_back(
      "Each rank's clock starts at its own begin of the iteration; messages were not recorded, and memory is the most a rank had reserved "
      "so far.");
  return result;
}

}  // namespace

ImportedTrace readPrimus(const std::string& folder) { return Reader(folder).read(); }

}  // namespace pw
