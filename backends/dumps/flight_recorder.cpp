#include <algorithm>
#include <charconv>
#include <map>
#include <optional>
#include <string_view>
#include <utility>

#include <fmt/format.h>
#include <simdjson.h>

#include "backends/dumps/fields.h"
#include "backends/dumps/formats.h"
#include "backends/dumps/set_up.h"

namespace pw::dumps {
namespace {

namespace dom = simdjson::dom;
using hang::OpKind;
using hang::OpState;
using hang::RecordedOp;

constexpr std::int64_t kMostBytes = std::int64_t{1} << 60;

/// Bytes of an element, by the names of c10::ScalarType; 0: unknown.
std::int64_t widthOf(std::string_view type) {
  constexpr std::pair<std::string_view, std::int64_t> kWidths[] = {{"Bool", 1},
                                                                   {"Byte", 1},
                                                                   {"Char", 1},
                                                                   {"Short", 2},
                                                                   {"Half", 2},
                                                                   {"BFloat16", 2},
                                                                   {"Int", 4},
                                                                   {"Float", 4},
                                                                   {"Long", 8},
                                                                   {"Double", 8},
                                                                   {"ComplexHalf", 4},
                                                                   {"ComplexFloat", 8},
                                                                   {"ComplexDouble", 16},
                                                                   {"UInt16", 2},
                                                                   {"UInt32", 4},
                                                                   {"UInt64", 8},
                                                                   {"Float8_e4m3fn", 1},
                                                                   {"Float8_e5m2", 1},
                                                                   {"Float8_e4m3fnuz", 1},
                                                                   {"Float8_e5m2fnuz", 1}};
  for (const auto& [name, width] : kWidths) {
    if (type == name) return width;
  }
  return 0;
}

std::string_view textOf(const dom::element& element) {
  std::string_view text;
  return element.get(text) == simdjson::SUCCESS ? text : std::string_view();
}

/// A number, or one as text, as JSON made of Python's dumps may have it.
std::optional<std::int64_t> numberOf(const dom::element& element) {
  std::int64_t value = 0;
  if (element.get(value) == simdjson::SUCCESS) return value;
  const std::string_view text = textOf(element);
  const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), value);
  return problem == std::errc() && end == text.data() + text.size() && !text.empty() ? std::optional(value) : std::nullopt;
}

std::optional<std::int64_t> numberIn(const dom::object& object, std::string_view key) {
  dom::element element;
  return object[key].get(element) == simdjson::SUCCESS ? numberOf(element) : std::nullopt;
}

bool flagAt(const dom::object& object, std::string_view key) {
  bool flag = false;
  return object[key].get(flag) == simdjson::SUCCESS && flag;
}

/// Bytes of all tensors of `input_sizes` or `output_sizes`; 0 where they cannot be told.
Bytes bytesOf(const dom::object& entry, std::string_view sizesKey, std::string_view typesKey) {
  dom::array sizes, types;
  if (entry[sizesKey].get(sizes) != simdjson::SUCCESS || entry[typesKey].get(types) != simdjson::SUCCESS) return 0;
  std::vector<std::int64_t> widths;
  for (const dom::element type : types) widths.push_back(widthOf(textOf(type)));
  std::int64_t total = 0;
  std::size_t index = 0;
  for (const dom::element tensor : sizes) {
    dom::array dimensions;
    if (tensor.get(dimensions) != simdjson::SUCCESS || index >= widths.size()) return 0;
    std::int64_t bytes = widths[index++];
    for (const dom::element dimension : dimensions) {
      const std::optional<std::int64_t> length = numberOf(dimension);
      if (!length || *length < 0 || (*length > 0 && bytes > kMostBytes / *length)) return 0;
      bytes *= *length;
    }
    total += bytes;
    if (total > kMostBytes) return 0;
  }
  return Bytes(total);
}

/// The form of an entry's only tensor.
Form formOf(const dom::object& entry, std::string_view sizesKey, std::string_view typesKey) {
  dom::array sizes, types, dimensions;
  if (entry[sizesKey].get(sizes) != simdjson::SUCCESS || entry[typesKey].get(types) != simdjson::SUCCESS) return Form::Other;
  if (sizes.size() != 1 || types.size() != 1 || sizes.at(0).get(dimensions) != simdjson::SUCCESS) return Form::Other;
  const std::string_view type = textOf(*types.begin());
  if (dimensions.size() == 0) return type == "Float" ? Form::Number : Form::Other;
  if (dimensions.size() > 1) return Form::Other;
  if (type == "Byte") return Form::Bytes;
  if (numberOf(*dimensions.begin()) != 1) return Form::Other;
  return type == "Float" ? Form::One : type == "Long" ? Form::Length : Form::Other;
}

/// Reads one dump. Ranks in names of operations count in their group.
class RecorderReader {
 public:
  RecorderReader(const dom::object& root, const Source& source) : root_(root), source_(source) {}
  void read();

 private:
  void readGroups();
  [[nodiscard]] std::vector<JobRank> ranksOf(const dom::element& ranks) const;
  [[nodiscard]] std::size_t groupOf(const dom::object& entry);
  void readEntry(const dom::object& entry);
  void readMessage(std::string_view ends, std::string_view arrow, RecordedOp& op);
  void endBatch(const dom::object& entry, OpState state);
  [[nodiscard]] JobRank inGroup(std::size_t group, std::int64_t local) const;
  [[nodiscard]] JobRank rank() const;

  const dom::object& root_;
  const Source& source_;
  hang::RankDump dump_{};
  std::map<std::string, std::size_t, std::less<>> groups_{};
  std::vector<std::pair<std::size_t, std::int64_t>> numbers_{};  ///< of each operation: group, and number of the launch in it
  std::vector<Form> forms_{};                                    ///< of each operation
  std::optional<std::size_t> unnamedGroup_{};                    ///< the only one that is listed, if it is listed without a name
  std::optional<JobRank> self_{};
  std::size_t batches_ = 0, unnamed_ = 0;
};

std::vector<JobRank> RecorderReader::ranksOf(const dom::element& element) const {
  std::vector<JobRank> ranks;
  dom::array list;
  if (element.get(list) == simdjson::SUCCESS) {
    for (const dom::element one : list) ranks.push_back(source_.rank(numberOf(one).value_or(-1), "a rank of pg_config"));
    return ranks;
  }
  const std::string_view text = textOf(element);  // `[0, 1]`
  std::int64_t value = 0;
  for (const char* at = text.data(); at != text.data() + text.size();) {
    if (*at < '0' || *at > '9') {
      ++at;
      continue;
    }
    const auto [end, problem] = std::from_chars(at, text.data() + text.size(), value);
    if (problem != std::errc()) source_.refuse("a rank of pg_config is out of range");
    ranks.push_back(source_.rank(value, "a rank of pg_config"));
    at = end;
  }
  return ranks;
}

void RecorderReader::readGroups() {
  dom::object config;
  if (root_["pg_config"].get(config) != simdjson::SUCCESS) return;
  for (const auto [key, value] : config) {
    dom::object group;
    dom::element ranks;
    if (value.get(group) != simdjson::SUCCESS || group["ranks"].get(ranks) != simdjson::SUCCESS) continue;
    std::vector<JobRank> members = ranksOf(ranks);
    std::vector<JobRank> unique = members;
    std::ranges::sort(unique);
    if (std::ranges::adjacent_find(unique) != unique.end()) source_.refuse("a group of pg_config names a rank twice");
    if (members.empty()) continue;
    groups_.emplace(std::string(key), source_.group({std::string(key), std::move(members)}));
  }
  if (groups_.size() != 1) return;
  const auto [name, only] = *groups_.begin();
  if (name.empty()) unnamedGroup_ = only;
  groups_.emplace(std::string(), only);  // of entries that name no group
}

std::size_t RecorderReader::groupOf(const dom::object& entry) {
  std::string name;
  dom::element group;
  dom::array pair;
  if (entry["process_group"].get(group) == simdjson::SUCCESS) {
    if (group.get(pair) == simdjson::SUCCESS) {
      if (pair.begin() != pair.end()) name = std::string(textOf(*pair.begin()));
    } else {
      name = std::string(textOf(group));
    }
  }
  if (const auto found = groups_.find(name); found != groups_.end()) return found->second;
  // Gloo's recorder lists the only group without a name; it has one name in the entries.
  const std::size_t index = unnamedGroup_ ? *std::exchange(unnamedGroup_, std::nullopt) : source_.group({name, {}});
  groups_.emplace(name, index);
  return index;
}

JobRank RecorderReader::inGroup(std::size_t group, std::int64_t local) const {
  const std::vector<JobRank>& ranks = source_.dumps.groups[group].ranks;
  if (ranks.empty()) return source_.rank(local, "the rank of a message");
  if (local < 0 || static_cast<std::size_t>(local) >= ranks.size()) source_.refuse("a message names a rank that its group does not have");
  return ranks[static_cast<std::size_t>(local)];
}

void RecorderReader::readMessage(std::string_view ends, std::string_view arrow, RecordedOp& op) {
  std::int64_t mine = 0, peer = 0;
  const std::size_t middle = ends.find(arrow);
  const auto whole = [](std::string_view text, std::int64_t& value) {
    const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), value);
    return problem == std::errc() && end == text.data() + text.size() && !text.empty();
  };
  if (middle == std::string_view::npos || !whole(ends.substr(0, middle), mine) || !whole(ends.substr(middle + arrow.size()), peer)) {
    op.kind = OpKind::Compute;  // of an older torch, which did not name the peer
    ++unnamed_;
    return;
  }
  op.peer = inGroup(op.group, peer);
  const JobRank self = inGroup(op.group, mine);
  if (self_ && *self_ != self) source_.refuse(fmt::format("its messages are of rank {} and of rank {}", self_->value, self.value));
  self_ = self;
}

/// The entry that ends a coalesced group has its state. Operations that another entry ended are not looked at again.
void RecorderReader::endBatch(const dom::object& entry, OpState state) {
  const bool messages = flagAt(entry, "is_p2p");
  const std::pair launch{groupOf(entry), numberIn(entry, messages ? "p2p_seq_id" : "collective_seq_id").value_or(-1)};
  ++batches_;
  for (std::size_t i = dump_.ops.size();
       i-- > 0 && dump_.ops[i].batch == 0 && numbers_[i] == launch && hang::isMessage(dump_.ops[i].kind) == messages;) {
    dump_.ops[i].state = state;
    dump_.ops[i].batch = batches_;
  }
}

void RecorderReader::readEntry(const dom::object& entry) {
  const std::string_view full = textAt(entry, "profiling_name");
  const std::size_t colon = full.find(':');
  const std::string_view name = colon == std::string_view::npos ? full : full.substr(colon + 1);
  const std::string_view word = textAt(entry, "state");
  const bool done = word == "completed" || flagAt(entry, "retired");
  const OpState state = done ? OpState::Done : word == "started" ? OpState::Started : OpState::Posted;
  if (name == "coalesced") return endBatch(entry, state);
  RecordedOp op;
  op.state = state;
  op.name = std::string(full.substr(0, 200));
  op.group = groupOf(entry);
  op.posted = Ns(std::max<std::int64_t>(0, numberIn(entry, "time_created_ns").value_or(0)));
  op.kind = OpKind::Collective;
  if (name.starts_with("send")) {
    op.kind = OpKind::Send;
    op.bytes = bytesOf(entry, "input_sizes", "input_dtypes");
    readMessage(name.substr(std::min<std::size_t>(5, name.size())), "->", op);
  } else if (name.starts_with("recv")) {
    op.kind = OpKind::Receive;
    op.bytes = bytesOf(entry, "output_sizes", "output_dtypes");
    readMessage(name.substr(std::min<std::size_t>(5, name.size())), "<-", op);
  } else {
    op.sequence = numberIn(entry, "collective_seq_id").value_or(-1);
    op.bytes = bytesOf(entry, "input_sizes", "input_dtypes");
  }
  const bool message = flagAt(entry, "is_p2p");
  forms_.push_back(op.kind == OpKind::Receive ? formOf(entry, "output_sizes", "output_dtypes")
                                              : formOf(entry, "input_sizes", "input_dtypes"));
  numbers_.emplace_back(op.group, numberIn(entry, message ? "p2p_seq_id" : "collective_seq_id").value_or(-2));
  dump_.ops.push_back(std::move(op));
}

JobRank RecorderReader::rank() const {
  if (const std::optional<std::int64_t> said = numberIn(root_, "rank")) {
    const JobRank rank = source_.rank(*said, "its rank");
    if (self_ && *self_ != rank) source_.refuse(fmt::format("it is of rank {}, but its messages are of rank {}", rank.value, self_->value));
    return rank;
  }
  if (self_) return *self_;
  const std::int64_t number = rankInName(source_.file);
  if (number < 0) source_.refuse("it does not say its rank; name the file after it, as in trace_rank_3.json");
  return source_.rank(number, "the number in its name");
}

void RecorderReader::read() {
  readGroups();
  dom::array entries;
  std::optional<std::int64_t> first, last;
  std::int64_t count = 0;
  if (root_["entries"].get(entries) == simdjson::SUCCESS) {
    for (const dom::element element : entries) {
      dom::object entry;
      if (element.get(entry) != simdjson::SUCCESS) source_.refuse("an entry is not an object");
      if (count >= static_cast<std::int64_t>(kMostOps)) source_.refuse(fmt::format("it has more than {} entries", kMostOps));
      last = numberIn(entry, "record_id");
      if (count++ == 0) first = last;
      readEntry(entry);
    }
  }
  markSetUp(dump_.ops, forms_);
  dump_.rank = rank();
  dump_.file = source_.file;
  dump_.complete = !first || (*first == 0 && last && *last == count - 1);
  if (unnamed_ > 0)
    source_.dumps.notes.push_back(
        fmt::format("{}: {} messages do not name their peer and are left out; use torch 2.3 or newer", source_.file, unnamed_));
  source_.add(std::move(dump_));
}

}  // namespace

bool isFlightRecorder(const dom::element& root) {
  dom::object object;
  dom::element any;
  if (root.get(object) != simdjson::SUCCESS || object["pg_config"].get(any) != simdjson::SUCCESS) return false;
  return object["version"].get(any) == simdjson::SUCCESS || object["entries"].get(any) == simdjson::SUCCESS;
}

bool countsMessages(const hang::RankDump& dump) {
  struct Last {
    std::int64_t sequence = -1, batches = 0;
    std::size_t batch = 0;
  };
  std::map<std::size_t, Last> groups;
  bool skips = false;
  for (const RecordedOp& op : dump.ops) {
    Last& last = groups[op.group];
    if (hang::isMessage(op.kind) && op.batch > 0 && op.batch != last.batch) ++last.batches, last.batch = op.batch;
    if (op.kind != OpKind::Collective || op.sequence < 0 || op.sequence == last.sequence) continue;
    if (last.sequence >= 0 && op.sequence != last.sequence + 1 + last.batches) return false;
    skips = skips || (last.sequence >= 0 && last.batches > 0);
    last = {op.sequence, 0, last.batch};
  }
  return skips;
}

void readFlightRecorder(const dom::element& root, const Source& source) {
  dom::object object;
  if (root.get(object) != simdjson::SUCCESS) source.refuse("it is not an object");
  RecorderReader(object, source).read();
}

}  // namespace pw::dumps
