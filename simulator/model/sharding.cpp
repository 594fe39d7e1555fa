#include "simulator/model/sharding.h"

#include <algorithm>
#include <string>
#include <utility>

#include "simulator/model/graph_facts.h"
#include "simulator/model/mixing_products.h"
#include "simulator/model/mixing_rules.h"
#include "simulator/model/node_arguments.h"

namespace pw {
namespace {

constexpr char kWhole = '-';

/// A letter for each dimension, `-` for those that are whole on every shard. Tensors have a dimension in common where they share its
/// letter; one that the result lacks is summed over.
struct Letters {
  std::vector<std::string> tensors;
  std::string result;
  std::vector<std::size_t> addends;  ///< tensors that are added to a product
};

/// Letters of the first dimensions of a result: A, B, …
std::string leading(std::size_t count) {
  std::string letters;
  for (std::size_t d = 0; d < count; ++d) letters += static_cast<char>('A' + d);
  return letters;
}

/// Letters of a tensor that is broadcast to a result of these.
std::string broadcastLetters(const Extents& tensor, const std::string& result, const Extents& sizes) {
  if (tensor.size() > result.size()) return std::string(tensor.size(), kWhole);
  std::string letters = result.substr(result.size() - tensor.size());
  for (std::size_t d = 0; d < tensor.size(); ++d) {
    if (tensor[d] != sizes[sizes.size() - tensor.size() + d]) letters[d] = kWhole;
  }
  return letters;
}

/// Finds the shardings of one call.
class Shards {
 public:
  Shards(const FlowingCall& call, std::int64_t count) : call_(call), count_(count), flow_(call) {}

  std::vector<Sharding> all() {
    switch (flow_.op().dimensions) {
      case DimensionRule::Each: return byLetters(each());
      case DimensionRule::Sizes: return isLikeFirst() ? byLetters(each()) : std::vector<Sharding>();
      case DimensionRule::Loss:
        return isLikeFirst() && integerOf(flow_.node(), "reduction") == 0 ? byLetters(each()) : std::vector<Sharding>();
      case DimensionRule::Linear: return byLetters(linear());
      case DimensionRule::MatMul: return byLetters(matrixProduct());
      case DimensionRule::Einsum: return byLetters(einsum());
      case DimensionRule::Attention: return byLetters(attention());
      case DimensionRule::Spatial: return byLetters(convolution());
      case DimensionRule::Lookup: return byLetters(lookup());
      case DimensionRule::BatchNorm: return byLetters(channels());
      case DimensionRule::EachSample: return byLetters(eachSample());
      case DimensionRule::Group: return movesStatistics(flow_.node()) ? std::vector<Sharding>() : byFlow(1);
      case DimensionRule::Reshape:
      case DimensionRule::Permute:
      case DimensionRule::Expand:
      case DimensionRule::Repeat:
      case DimensionRule::Reduce:
      case DimensionRule::Scan:
      case DimensionRule::Join:
      case DimensionRule::Piece:
      case DimensionRule::Pool:
      case DimensionRule::Trailing:
      case DimensionRule::Index:
      case DimensionRule::Gather:
      case DimensionRule::Matrix: return byFlow(flow_.rank());
      case DimensionRule::Recurrent:
      case DimensionRule::Unknown: break;
    }
    return {};
  }

 private:
  [[nodiscard]] const Extents& result() const { return call_.results.front(); }
  [[nodiscard]] bool isCuttable(std::int64_t size) const { return size >= count_ && size % count_ == 0; }
  [[nodiscard]] bool isLikeFirst() const { return result() == flow_.first().extents; }

  [[nodiscard]] Letters each() const {
    Letters letters;
    letters.result = leading(result().size());
    for (const FlowingTensor& tensor : call_.tensors) letters.tensors.push_back(broadcastLetters(tensor.extents, letters.result, result()));
    return letters;
  }

  /// Of one tensor: which others belong to the samples is not known.
  [[nodiscard]] Letters eachSample() const {
    if (call_.tensors.size() != 1 || flow_.rank() == 0 || result().empty()) return {};
    return {{"A" + std::string(flow_.rank() - 1, kWhole)}, "A" + std::string(result().size() - 1, kWhole), {}};
  }

  [[nodiscard]] Letters linear() const {
    if (flow_.rank() == 0) return {};
    Letters letters;
    const std::size_t rank = flow_.rank();
    const bool isMatrix = call_.tensors.size() > 1 && call_.tensors[1].extents.size() == 2;
    letters.result = leading(rank - 1) + (isMatrix ? "n" : "");
    letters.tensors = {leading(rank - 1) + "k", isMatrix ? "nk" : "k", isMatrix ? "n" : ""};
    letters.tensors.resize(call_.tensors.size());
    if (call_.tensors.size() > 2) letters.addends = {2};
    return letters;
  }

  [[nodiscard]] Letters matrixProduct() const {
    const std::size_t left = flow_.leftOperand();
    if (call_.tensors.size() != left + 2) return {};
    const Extents &a = call_.tensors[left].extents, &b = call_.tensors[left + 1].extents;
    const std::string m = a.size() > 1 ? "m" : "", n = b.size() > 1 ? "n" : "";
    const std::size_t batches = result().size() - m.size() - n.size();
    const Extents batch(result().begin(), result().begin() + static_cast<std::ptrdiff_t>(batches));
    const auto batchOf = [&](const Extents& operand) {
      return operand.size() <= 2 ? std::string() : broadcastLetters(Extents(operand.begin(), operand.end() - 2), leading(batches), batch);
    };
    Letters letters;
    letters.result = leading(batches) + m + n;
    if (left == 1) {
      letters.tensors.push_back(broadcastLetters(call_.tensors[0].extents, letters.result, result()));
      letters.addends = {0};
    }
    letters.tensors.push_back(batchOf(a) + m + "k");
    letters.tensors.push_back(batchOf(b) + "k" + n);
    return letters;
  }

  [[nodiscard]] Letters einsum() const {
    const auto equation = equationOf(flow_.node());
    if (!equation || equation->terms.size() != call_.tensors.size()) return {};
    return {equation->terms, equation->result, {}};
  }

  /// Scores of a query need all keys; a causal mask counts queries from the first.
  [[nodiscard]] Letters attention() const {
    if (flow_.named("query") == nullptr || call_.results.size() != 1 || result().size() < 2) return {};
    const std::string heads = leading(result().size() - 2);
    const std::string queries = flagOf(flow_.node(), "is_causal", false) ? "-" : "l";
    Extents scores = result();
    if (const FlowingTensor* key = flow_.named("key")) scores.back() = key->extents[key->extents.size() - 2];
    Letters letters;
    letters.result = heads + queries + "v";
    for (const FlowingTensor& tensor : call_.tensors) {
      if (tensor.argument == "attn_mask")
        letters.tensors.push_back(broadcastLetters(tensor.extents, heads + queries + "-", scores));
      else
        letters.tensors.push_back(heads + (tensor.argument == "query" ? queries + "-" : tensor.argument == "value" ? "-v" : "--"));
    }
    return letters;
  }

  [[nodiscard]] Letters convolution() const {
    const FlowingTensor *input = flow_.named("input"), *weight = flow_.named("weight");
    if (input == nullptr || weight == nullptr || input->extents.size() != weight->extents.size() || input->extents.size() < 3) return {};
    const bool transposed = flow_.name().find("transpose") != std::string::npos || flagOf(flow_.node(), "transposed", false);
    const bool grouped = integerOf(flow_.node(), "groups").value_or(1) != 1;
    const std::string places(input->extents.size() - 2, kWhole);
    Letters letters;
    letters.result = (grouped ? "b-" : "bo") + places;
    for (std::size_t t = 0; t < call_.tensors.size(); ++t) {
      const std::string& name = call_.tensors[t].argument;
      if (name == "bias") letters.addends.push_back(t);
      if (name == "input") letters.tensors.push_back((grouped ? "b-" : "bc") + places);
      if (name == "weight") letters.tensors.push_back((grouped ? "--" : transposed ? "co" : "oc") + places);
      if (name == "bias") letters.tensors.emplace_back(grouped ? "-" : "o");
    }
    return letters;
  }

  /// Rows of a table are chosen by their number: all shards need all rows.
  [[nodiscard]] Letters lookup() const {
    if (result().empty()) return {};
    const FlowingTensor* table = flow_.named("weight");
    const std::string places = leading(result().size() - 1);
    if (table == nullptr) return {{places}, places + kWhole, {}};
    Letters letters{{}, places + "d", {}};
    for (const FlowingTensor& tensor : call_.tensors) letters.tensors.push_back(&tensor == table ? "-d" : places);
    return letters;
  }

  [[nodiscard]] Letters channels() const {
    if (flow_.rank() < 2 || call_.results.size() != 1) return {};
    const std::string places = std::string(1, kWhole) + "c" + std::string(flow_.rank() - 2, kWhole);
    Letters letters{{places}, places, {}};
    for (std::size_t t = 1; t < call_.tensors.size(); ++t) letters.tensors.emplace_back("c");
    return letters;
  }

  /// A sharding for each letter that stands once in each tensor, with one size in all.
  [[nodiscard]] std::vector<Sharding> byLetters(const Letters& letters) const {
    std::string all = letters.result;
    for (const std::string& tensor : letters.tensors) all += tensor;
    std::vector<Sharding> found;
    for (std::size_t i = 0; i < all.size(); ++i) {
      if (all[i] == kWhole || all.find(all[i]) != i) continue;
      if (auto sharding = byLetter(letters, all[i])) found.push_back(std::move(*sharding));
    }
    return found;
  }

  [[nodiscard]] std::optional<Sharding> byLetter(const Letters& letters, char letter) const {
    Sharding sharding;
    std::optional<std::int64_t> size;
    const auto place = [&](const std::string& of, const Extents& extents) -> std::optional<std::optional<std::size_t>> {
      const std::size_t at = of.find(letter);
      if (at == std::string::npos) return std::optional<std::size_t>();
      if (of.size() != extents.size() || of.find(letter, at + 1) != std::string::npos) return std::nullopt;
      if (!isCuttable(extents[at]) || size.value_or(extents[at]) != extents[at]) return std::nullopt;
      size = extents[at];
      return std::optional(at);
    };
    for (std::size_t t = 0; t < letters.tensors.size(); ++t) {
      const auto at = place(letters.tensors[t], call_.tensors[t].extents);
      if (!at) return std::nullopt;
      sharding.tensors.push_back(*at);
    }
    for (const Extents& extents : call_.results) {
      const auto at = place(letters.result, extents);
      if (!at) return std::nullopt;
      sharding.results.push_back(*at);
    }
    if (std::ranges::none_of(sharding.tensors, [](const auto& at) { return at.has_value(); })) return std::nullopt;
    if (letters.result.find(letter) != std::string::npos) return sharding;
    sharding.combines = Combination::Sum;
    sharding.addedOnce = letters.addends;
    return sharding;
  }

  /// A shard is followed as a sample would be: of the first tensor one dimension after the other, the `most` first ones.
  [[nodiscard]] std::vector<Sharding> byFlow(std::size_t most) const {
    std::vector<Sharding> found;
    for (std::size_t d = 0; d < std::min(most, flow_.rank()); ++d) {
      if (auto sharding = byFlowOf(d)) found.push_back(std::move(*sharding));
    }
    std::ranges::stable_sort(found, {}, [](const Sharding& s) { return s.combines != Combination::None; });
    return found;
  }

  [[nodiscard]] std::optional<Sharding> byFlowOf(std::size_t d) const {
    if (!isCuttable(flow_.first().extents[d])) return std::nullopt;
    FlowingCall call = call_;
    call.batch = count_;
    call.symbolicBatch = false;
    Sharding sharding;
    for (std::size_t t = 0; t < call.tensors.size(); ++t) {
      const auto cut = t == 0 ? std::optional(true) : isCutToo(call.tensors[t], d);
      if (!cut) return std::nullopt;
      sharding.tensors.push_back(*cut ? std::optional(d) : std::nullopt);
      call.tensors[t].flow = *cut ? SampleFlow{SampleFlow::Kind::Along, {d, 1, call.tensors[t].extents[d] / count_}} : SampleFlow();
    }
    const FlowResult result = flowThrough(call);
    if (result.unknown) return std::nullopt;
    if (result.mixes) {
      if (flow_.op().combines == Combination::None || call.results.size() != 1 || call.tensors.size() != 1) return std::nullopt;
      sharding.combines = flow_.op().combines;
      sharding.results = {std::nullopt};
      return sharding;
    }
    for (const SampleFlow& flow : result.flows) {
      if (flow.kind != SampleFlow::Kind::Along || flow.layout.outer != 1) return std::nullopt;
      sharding.results.emplace_back(flow.layout.dimension);
    }
    return sharding;
  }

  /// Whether another tensor is cut with the first one; nothing where the two do not go together.
  [[nodiscard]] std::optional<bool> isCutToo(const FlowingTensor& tensor, std::size_t d) const {
    const DimensionRule rule = flow_.op().dimensions;
    if (rule == DimensionRule::Trailing || rule == DimensionRule::Group) return false;
    if (rule == DimensionRule::Index) return flow_.name() == "index" ? std::optional(false) : std::nullopt;
    if (rule == DimensionRule::Gather && flow_.name().starts_with("index_") && tensor.argument == "index") return false;
    if (rule == DimensionRule::Reshape || rule == DimensionRule::Repeat || rule == DimensionRule::Expand) return std::nullopt;
    const bool alike = tensor.extents.size() == flow_.rank() && tensor.extents[d] == flow_.first().extents[d];
    return alike ? std::optional(true) : std::nullopt;
  }

  const FlowingCall& call_;
  std::int64_t count_;
  CallFlow flow_;
};

}  // namespace

std::vector<Sharding> shardingsOf(const FlowingCall& call, std::int64_t shards) {
  if (call.tensors.empty() || call.results.empty()) return {};
  return Shards(call, shards).all();
}

}  // namespace pw
