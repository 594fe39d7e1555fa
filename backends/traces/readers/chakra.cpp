#include "backends/traces/readers/chakra.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <filesystem>
#include <limits>
#include <unordered_map>
#include <utility>

#include <fmt/format.h>
#include <simdjson.h>

#include "backends/traces/names/label.h"
#include "backends/traces/readers/protobuf.h"
#include "schedules/error.h"
#include "simulator/text/number_text.h"
#include "simulator/trace/span_kind.h"

namespace pw {
namespace {

namespace json = simdjson::ondemand;
using Meaning = PipelineLabel::Meaning;

constexpr std::size_t kLargestMessage = std::size_t{64} << 20;
constexpr std::size_t kLargestText = std::size_t{1} << 30;
constexpr std::size_t kMostNodes = 50'000'000;

/// Nanoseconds of so many microseconds, at most `most`.
Ns nanosecondsOf(std::uint64_t micros, Ns most) {
  return static_cast<Ns>(std::min(micros, static_cast<std::uint64_t>(most) / 1000)) * 1000;
}

/// What is kept of a node.
struct Node {
  std::uint64_t id = 0, parent = 0;  ///< the parent is the first control dependency: who called it
  Ns start = 0, duration = 0;
  std::int32_t label = -1;  ///< of `labels_`
  bool hasParent = false, onDevice = false;
};

/// A compressed or plain file, read from the front.
class PackedFile {
 public:
  explicit PackedFile(const std::string& path) {
    const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    struct stat facts {};
    const bool usable = file >= 0 && fstat(file, &facts) == 0 && S_ISREG(facts.st_mode);
    file_ = usable ? gzdopen(file, "rb") : nullptr;
    if (file_ != nullptr) return;
    if (file >= 0) close(file);
    throw UsageError(fmt::format("{} cannot be read; check the path and its permissions", path));
  }
  ~PackedFile() { gzclose(file_); }
  PackedFile(const PackedFile&) = delete;
  PackedFile& operator=(const PackedFile&) = delete;

  /// So many bytes, or fewer at the end.
  void read(std::string& into, std::size_t bytes) {
    into.clear();
    while (into.size() < bytes) {
      const int got = gzread(file_, part_.data(), static_cast<unsigned>(std::min(bytes - into.size(), part_.size())));
      if (got <= 0) break;
      into.append(part_.data(), static_cast<std::size_t>(got));
    }
  }
  [[nodiscard]] std::optional<std::uint64_t> varint() {
    std::uint64_t value = 0;
    for (unsigned shift = 0; shift < 64; shift += 7) {
      const int byte = gzgetc(file_);
      if (byte < 0) return std::nullopt;
      value |= static_cast<std::uint64_t>(byte & 0x7F) << shift;
      if ((byte & 0x80) == 0) return value;
    }
    return std::nullopt;
  }
  [[nodiscard]] std::uint64_t position() const { return static_cast<std::uint64_t>(std::max<z_off_t>(0, gzoffset(file_))); }

 private:
  gzFile file_ = nullptr;
  std::vector<char> part_ = std::vector<char>(std::size_t{1} << 16U);
};

class ChakraReader {
 public:
  ChakraReader(const std::string& path, const NamePatterns& patterns, const std::function<bool(std::uint64_t)>& advance)
      : patterns_(patterns), advance_(advance) {
    file_.source = path;
  }
  std::optional<FileEvents> read();

 private:
  [[noreturn]] void refuse(const std::string& what) const {
    throw UsageError(fmt::format("{} is not a usable Chakra trace: {}; convert it again with chakra_converter", file_.source, what));
  }
  bool readMessages();
  bool readText();
  void takeMessage(std::string_view message);
  template <class Object>
  void takeObject(Object& object);
  void take(Node node, std::string_view name);
  [[nodiscard]] std::int32_t labelOf(std::string_view name);
  void addSpans();
  [[nodiscard]] std::vector<std::int32_t> owners() const;
  void readRank();

  const NamePatterns& patterns_;
  const std::function<bool(std::uint64_t)>& advance_;
  FileEvents file_;
  std::vector<Node> nodes_;
  std::vector<PipelineLabel> labels_;
  bool timed_ = false;
};

std::int32_t ChakraReader::labelOf(std::string_view name) {
  if (name.size() > 1000) return -1;
  const auto of = [&](std::string_view text) {
    const PipelineLabel own = patterns_.label(text);
    return own.meaning != Meaning::None ? own : functionLabel(text);
  };
  PipelineLabel label = of(name);
  if (label.meaning == Meaning::None && name.ends_with(')'))
    label = of(name.substr(0, name.rfind('(')));  // a number that tells equal names apart
  if (label.meaning == Meaning::None || label.meaning == Meaning::Receive || label.meaning == Meaning::Sent) return -1;
  labels_.push_back(label);
  return static_cast<std::int32_t>(labels_.size()) - 1;
}

void ChakraReader::take(Node node, std::string_view name) {
  if (nodes_.size() >= kMostNodes) refuse(fmt::format("it has more than {} nodes", kMostNodes));
  node.label = labelOf(name);
  timed_ = timed_ || node.start > 0;
  nodes_.push_back(node);
}

void ChakraReader::takeMessage(std::string_view message) {
  Node node;
  std::string_view name;
  while (const auto field = takeField(message)) {
    switch (field->number) {
      case 1: node.id = field->value; break;
      case 2: name = field->bytes; break;
      case 4: {
        std::string_view packed = field->bytes;
        const auto first = field->isNumber ? std::optional(field->value) : takeVarint(packed);
        if (first && !node.hasParent) node.parent = *first, node.hasParent = true;
        break;
      }
      case 6: node.start = nanosecondsOf(field->value, kLatestTime); break;
      case 7: node.duration = nanosecondsOf(field->value, kLongestDuration); break;
      case 10: {  // an attribute: its name, and a value that is a boolean
        std::string_view attribute = field->bytes, key;
        while (const auto part = takeField(attribute)) {
          if (part->number == 1) key = part->bytes;
          if (part->number == 27 && key == "is_cpu_op") node.onDevice = part->value == 0;
        }
        break;
      }
      default: break;
    }
  }
  if (!message.empty()) refuse(fmt::format("node {} is damaged", nodes_.size() + 1));
  take(node, name);
}

bool ChakraReader::readMessages() {
  PackedFile packed(file_.source);
  std::string message;
  bool metadata = true;
  for (std::size_t number = 0;; ++number) {
    const auto size = packed.varint();
    if (!size) break;
    if (*size > kLargestMessage) refuse(fmt::format("node {} has {} bytes", number, *size));
    packed.read(message, static_cast<std::size_t>(*size));
    if (message.size() < *size) {
      file_.truncated = true;
      break;
    }
    if (!metadata) takeMessage(message);
    metadata = false;
    if (number % 4096 == 0 && !advance_(packed.position())) return false;
  }
  return true;
}

template <class Object>
void ChakraReader::takeObject(Object& object) {
  Node node;
  std::string name;
  bool isNode = false;
  for (auto member : object) {
    std::string_view key;
    json::value value;
    if (member.unescaped_key().get(key) != simdjson::SUCCESS || member.value().get(value) != simdjson::SUCCESS)
      refuse("its JSON is broken");
    const auto number = [&]() -> std::uint64_t {  // the jsonizer writes 64 bits as texts
      std::string_view token = value.raw_json_token();
      while (!token.empty() && (token.front() == '"' || token.front() == ' ')) token.remove_prefix(1);
      token = token.substr(0, token.find_first_not_of("0123456789"));
      return numberOf<std::uint64_t>(token).value_or(0);
    };
    if (key == "id" || key == "Id") {
      node.id = number();
      isNode = true;
    } else if (key == "name" || key == "Name") {
      std::string_view text;
      if (value.get_string().get(text) == simdjson::SUCCESS) name = text;
    } else if (key == "ctrlDeps" || key == "ctrl_deps") {
      json::array list;
      if (value.get_array().get(list) != simdjson::SUCCESS) continue;
      for (auto element : list) {
        json::value first;
        if (element.get(first) != simdjson::SUCCESS) refuse("its JSON is broken");
        std::string_view token = first.raw_json_token();
        while (!token.empty() && token.front() == '"') token.remove_prefix(1);
        const auto parent = numberOf<std::uint64_t>(token.substr(0, token.find_first_not_of("0123456789")));
        if (parent && !node.hasParent) node.parent = *parent, node.hasParent = true;
      }
    } else if (key == "startTimeMicros" || key == "start_time_micros") {
      node.start = nanosecondsOf(number(), kLatestTime);
    } else if (key == "durationMicros" || key == "duration_micros" || key == "runtime") {
      node.duration = nanosecondsOf(number(), kLongestDuration);
    } else if (key == "is_cpu_op") {
      bool cpu = true;
      if (value.get_bool().get(cpu) == simdjson::SUCCESS) node.onDevice = !cpu;
    } else if (key == "attr") {
      json::array list;
      if (value.get_array().get(list) != simdjson::SUCCESS) continue;
      for (auto element : list) {
        std::string_view attribute;
        json::object of;
        if (element.get_object().get(of) != simdjson::SUCCESS) continue;
        bool isCpu = true;
        if (of["name"].get_string().get(attribute) != simdjson::SUCCESS || attribute != "is_cpu_op") continue;
        node.onDevice = of["boolVal"].get_bool().get(isCpu) == simdjson::SUCCESS ? !isCpu : true;  // false is left out
      }
    }
  }
  if (isNode) take(node, name);
}

/// The JSON of the feeder, an object with a list of nodes, or of the jsonizer, one object after another.
bool ChakraReader::readText() {
  std::string text;
  {
    PackedFile packed(file_.source);
    packed.read(text, kLargestText + 1);
    if (text.size() > kLargestText) refuse("its JSON is larger than 1 GiB (the protobuf file may be)");
    if (!advance_(packed.position())) return false;
  }
  text.reserve(text.size() + simdjson::SIMDJSON_PADDING);
  json::parser parser;
  const simdjson::padded_string_view padded(text.data(), text.size(), text.capacity());
  if (text.find("\"workload_graph\"") < 4096) {
    json::document document;
    json::array nodes;
    if (parser.iterate(padded).get(document) != simdjson::SUCCESS || document["workload_graph"].get_array().get(nodes) != simdjson::SUCCESS)
      refuse("its JSON is broken");
    for (auto element : nodes) {
      json::object object;
      const auto problem = element.get_object().get(object);
      if (problem != simdjson::SUCCESS) refuse("its JSON is broken");
      takeObject(object);
    }
    return true;
  }
  json::document_stream documents;
  const std::size_t batch = std::max<std::size_t>(text.size(), 1U << 20U);
  if (parser.iterate_many(text.data(), text.size(), batch).get(documents) != simdjson::SUCCESS) refuse("its JSON is broken");
  for (auto document : documents) {
    json::object object;
    if (document.get_object().get(object) != simdjson::SUCCESS) refuse("its JSON is broken");
    takeObject(object);
  }
  file_.truncated = documents.truncated_bytes() > 0;
  return true;
}

/// The nearest labelled node above each node, or itself: as a position, −1 where there is none.
std::vector<std::int32_t> ChakraReader::owners() const {
  constexpr std::int32_t kOpen = -2, kNone = -1;
  std::unordered_map<std::uint64_t, std::int32_t> at;
  at.reserve(nodes_.size());
  for (std::size_t i = 0; i < nodes_.size(); ++i) at.emplace(nodes_[i].id, static_cast<std::int32_t>(i));
  std::vector<std::int32_t> owner(nodes_.size(), kOpen), path;
  for (std::size_t i = 0; i < nodes_.size(); ++i) {
    path.clear();
    std::int32_t place = static_cast<std::int32_t>(i), found = kNone;
    while (true) {
      std::int32_t& of = owner[static_cast<std::size_t>(place)];
      if (of != kOpen) {
        found = of;
        break;
      }
      of = kNone;  // so that a circle ends here
      path.push_back(place);
      const Node& node = nodes_[static_cast<std::size_t>(place)];
      if (node.label >= 0) {
        found = place;
        break;
      }
      const auto parent = node.hasParent ? at.find(node.parent) : at.end();
      if (parent == at.end()) break;
      place = parent->second;
    }
    for (const std::int32_t p : path) owner[static_cast<std::size_t>(p)] = found;
  }
  return owner;
}

void ChakraReader::addSpans() {
  struct Sum {
    Ns program = 0, device = 0, first = std::numeric_limits<Ns>::max(), last = 0;
  };
  std::unordered_map<std::int32_t, Sum> sums;
  const std::vector<std::int32_t> owner = owners();
  for (std::size_t i = 0; i < nodes_.size(); ++i) {
    if (owner[i] < 0) continue;
    Sum& sum = sums[owner[i]];
    Ns& into = nodes_[i].onDevice ? sum.device : sum.program;
    into = std::min(kLongestDuration, into + nodes_[i].duration);
    if (nodes_[i].start <= 0 || nodes_[i].start >= kLatestTime) continue;
    sum.first = std::min(sum.first, nodes_[i].start);
    sum.last = std::max(sum.last, nodes_[i].start + nodes_[i].duration);
  }
  file_.timeless = !timed_;
  file_.tracks.push_back({.process = 0, .thread = 0});
  Ns worked = 0;
  bool any = false;
  for (std::size_t i = 0; i < nodes_.size(); ++i) {
    if (nodes_[i].label < 0) continue;
    const PipelineLabel& label = labels_[static_cast<std::size_t>(nodes_[i].label)];
    const Sum& sum = sums[static_cast<std::int32_t>(i)];
    const Ns duration = sum.device > 0 ? sum.device : sum.program;
    const Ns start = file_.timeless ? worked : sum.first, end = file_.timeless ? worked + duration : sum.last;
    if (label.meaning == Meaning::Chunks) file_.chunks = true;
    if (label.meaning == Meaning::Unused) ++file_.unused;
    if (label.meaning == Meaning::Step) file_.marks.push_back({Track(0), label.number, file_.timeless ? worked : nodes_[i].start});
    if (label.meaning == Meaning::Chunks || label.meaning == Meaning::Unused || label.meaning == Meaning::Step) continue;
    if ((!file_.timeless && sum.last == 0) || end - start > kLongestDuration || end >= kLatestTime) {
      ++file_.unusable;
      continue;
    }
    any = any || duration > 0;
    worked = file_.timeless ? end : 0;
    addLabelled(label, {.rank = asRank(Track(0)), .stage = {}, .microbatch = {}, .peer = Rank(-1), .start = start, .end = end},
                file_.spans);
  }
  if (!file_.spans.empty() && !any) refuse("its actions have no durations (link the traces of host and device before converting)");
}

/// `NAME.RANK.et`, as Chakra's tools number their files.
void ChakraReader::readRank() {
  const std::string whole = std::filesystem::path(file_.source).filename().string();
  std::string_view name = whole;
  for (const std::string_view ending : {".gz", ".et", ".json"}) {
    if (name.ends_with(ending)) name.remove_suffix(ending.size());
  }
  const std::size_t dot = name.rfind('.');
  if (dot == std::string_view::npos) return;
  if (const auto rank = numberOf<std::int32_t>(name.substr(dot + 1)); rank && *rank >= 0) file_.rank = JobRank(*rank);
}

std::optional<FileEvents> ChakraReader::read() {
  std::string head;
  PackedFile(file_.source).read(head, 4096);
  if (!(isChakraJson(head) ? readText() : readMessages())) return std::nullopt;
  file_.events = nodes_.size();
  addSpans();
  readRank();
  return std::move(file_);
}

}  // namespace

bool isChakra(std::string_view head) {
  const auto size = takeVarint(head);
  if (!size || *size > head.size()) return false;
  std::string_view metadata = head.substr(0, static_cast<std::size_t>(*size));
  head.remove_prefix(static_cast<std::size_t>(*size));
  while (const auto field = takeField(metadata)) {
    if (field->isNumber || field->number > 2) return false;
  }
  const auto node = takeVarint(head);  // then a node, whose first fields are its number, name and kind
  return metadata.empty() && node && *node > 0 && !head.empty() &&
         (head.front() == '\x08' || head.front() == '\x12' || head.front() == '\x18');
}

bool isChakraJson(std::string_view head) {
  const std::size_t mark = head.find_first_not_of(" \t\r\n\xEF\xBB\xBF");
  if (mark == std::string_view::npos || head[mark] != '{' || head.find("\"traceEvents\"") != std::string_view::npos) return false;
  return head.find("\"workload_graph\"") != std::string_view::npos || head.find("\"COMP_NODE\"") != std::string_view::npos ||
         head.find("\"METADATA_NODE\"") != std::string_view::npos || head.find("\"COMM_COLL_NODE\"") != std::string_view::npos;
}

std::optional<FileEvents> readChakraFile(const std::string& path, const NamePatterns& patterns,
                                         const std::function<bool(std::uint64_t)>& advance) {
  return ChakraReader(path, patterns, advance).read();
}

}  // namespace pw
