#include "simulator/costs/layer_table.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <map>
#include <optional>
#include <system_error>
#include <unordered_set>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "schedules/printable.h"
#include "schedules/units.h"
#include "simulator/text/json_part.h"
#include "simulator/text/number_text.h"

namespace pw {
namespace {

constexpr int kTableVersion = 1;
constexpr std::int64_t kMostMicrobatch = 1 << 20;

constexpr std::string_view kBackward = "backward_ns", kInput = "input_ns", kWeight = "weight_ns",
                           kAfterInput = "activation_after_input_bytes", kSent = "sent_ns", kUpdate = "optimizer_ns", kName = "name",
                           kModule = "module", kMicrobatch = "microbatch", kOverhead = "action_overhead_ns",
                           kSendOverhead = "send_overhead_ns", kOptimizer = "optimizer_ns_per_byte";
/// Of the whole table: in a CSV a column with the same value in all rows.
constexpr std::array<std::string_view, 4> kOfTable{kMicrobatch, kOverhead, kSendOverhead, kOptimizer};

bool isNumber(std::string_view key) {
  return key == kBackward || std::ranges::any_of(kLayerNumbers, [&](const LayerNumber& field) { return field.key == key; });
}

/// Whether a key that is none of a layer's looks as if it should be one.
bool looksLikeNumber(std::string_view key) { return key.ends_with("_ns") || key.ends_with("_bytes") || key == "activation_if_recomputed"; }

bool isOfTable(std::string_view key) { return std::ranges::find(kOfTable, key) != kOfTable.end(); }

/// A layer as a file has it: its texts, and those of its numbers that are given.
struct Row {
  std::string name, module;
  std::map<std::string, std::int64_t, std::less<>> numbers;
};

/// Joins rows of either form to a table.
class Builder {
 public:
  Builder(const JsonDocument& document, LayerTable& table) : document_(document), table_(table) {}

  [[noreturn]] void fail(const std::string& what) const { document_.fail(what); }
  [[noreturn]] void fail(const Row& row, const std::string& what) const {
    document_.fail(fmt::format("layer {} {}", row.name.empty() ? fmt::format("{}", table_.layers.size() + 1) : row.name, what));
  }

  void requireKnown(const Row& row, std::string_view key) const {
    if (!isNumber(key) && looksLikeNumber(key)) fail(row, fmt::format("has `{}`, which is no cost of a layer", key));
  }
  /// `shown`: what the file has for it.
  void set(Row& row, std::string_view key, std::optional<std::int64_t> number, const std::string& shown) const {
    if (!number || *number < 0) fail(row, fmt::format("has {} as `{}`, which takes a whole number of 0 or more", shown, key));
    row.numbers.emplace(key, *number);
  }

  void add(const Row& row) {
    if (table_.layers.size() == kMostLayers) fail(fmt::format("it has more than {} layers", kMostLayers));
    if (row.name.empty()) fail(row, "has no name");
    for (const std::string& text : {row.name, row.module}) {
      if (printableLine(text) != text) fail(row, "has control characters or bytes that are not UTF-8 in its name or module");
    }
    if (!names_.insert(row.name).second) fail(row, "is there twice; names are unique");
    table_.layers.push_back(complete(row));
    for (const LayerNumber& field : kLayerNumbers) {
      std::int64_t& sum = sums_[field.key];
      const std::int64_t number = std::max<std::int64_t>(0, field.of(table_.layers.back()));
      if (number > kMostSum - sum) fail(row, fmt::format("makes the sum of `{}` too large to add up", field.key));
      sum += number;
    }
    if (sums_[kInput] > kMostSum - sums_[kWeight]) fail(row, "makes the sum of the backwards too large to add up");
  }

  void finish() const {
    if (table_.layers.empty()) fail("it has no layers");
  }

 private:
  [[nodiscard]] Layer complete(const Row& row) const {
    Layer layer;
    layer.name = row.name;
    layer.module = row.module;
    for (const LayerNumber& field : kLayerNumbers) {
      const auto found = row.numbers.find(field.key);
      if (found != row.numbers.end()) field.set(layer, found->second);
      if (found == row.numbers.end() && field.required) fail(row, fmt::format("lacks `{}`", field.key));
    }
    if (!row.numbers.contains(kAfterInput)) layer.afterInput = layer.activations;
    if (layer.kept > layer.activations) fail(row, fmt::format("has a `{}` above its activations", kKeptIfRecomputed));
    const bool input = row.numbers.contains(kInput), weight = row.numbers.contains(kWeight);
    const auto backward = row.numbers.find(kBackward);
    if (backward == row.numbers.end()) {
      if (!input || !weight) fail(row, fmt::format("lacks `{}`; give it and the other part, or `{}`", input ? kWeight : kInput, kBackward));
      return layer;
    }
    const Ns whole(backward->second);
    if (layer.input > whole || layer.weight > whole || (input && weight && layer.input != whole - layer.weight))
      fail(row, fmt::format("has a `{}` of {} that is not the sum of its parts", kBackward, whole.value));
    if (!input) layer.input = weight ? whole - layer.weight : whole / 2;
    if (!weight) layer.weight = whole - layer.input;
    return layer;
  }

  const JsonDocument& document_;
  LayerTable& table_;
  std::unordered_set<std::string> names_;
  std::map<std::string_view, std::int64_t> sums_;
};

/// Sets what is of the whole table; `shown`: what the file has for it.
void setOfTable(const JsonDocument& document, LayerTable& table, std::string_view key, std::optional<double> number,
                const std::string& shown) {
  constexpr double kMostRate = 1e6, kLongest = 1e15;  // an optimizer of a byte in a millisecond; an action of ten days
  const bool samples = key == kMicrobatch, rate = key == kOptimizer;
  const double least = samples ? 1 : 0, most = samples ? static_cast<double>(kMostMicrobatch) : rate ? kMostRate : kLongest;
  if (!number || !(*number >= least && *number <= most) || (!rate && *number != std::floor(*number)))
    document.fail(
        fmt::format("it has {} as `{}`, which takes a {} from {} to {}", shown, key, rate ? "number" : "whole number", least, most));
  if (samples) table.microbatch = static_cast<std::int64_t>(*number);
  if (key == kOverhead) table.actionOverhead = static_cast<Ns>(*number);
  if (key == kSendOverhead) table.sendOverhead = static_cast<Ns>(*number);
  if (rate) table.optimizerNsPerByte = *number;
}

// ---- JSON ----

using Json = nlohmann::ordered_json;

std::string shown(const Json& json) {
  constexpr std::size_t kLongest = 40;
  const std::string text = json.dump(-1, ' ', false, Json::error_handler_t::replace);
  return text.size() > kLongest ? "a value" : text;
}

/// A whole number, also as programs write it that know only decimals: 10.0.
std::optional<std::int64_t> wholeIn(const Json& json) {
  constexpr double kExact = 9007199254740992;  // 2^53
  if (!json.is_number_float()) return integerIn<std::int64_t>(json);
  const auto number = json.get<double>();
  return std::abs(number) <= kExact && std::trunc(number) == number ? std::optional(static_cast<std::int64_t>(number)) : std::nullopt;
}

void readJsonTable(std::string_view text, const JsonDocument& document, LayerTable& table) {
  const Json parsed = document.parse(text);
  const JsonPart json(parsed, document);
  Builder builder(document, table);
  if (json.has("version")) {
    const std::int64_t version = json["version"].as<std::int64_t>();
    if (version > kTableVersion)
      builder.fail(fmt::format("it has version {}, and this program reads up to {}; a newer Pipewright reads it", version, kTableVersion));
  }
  if (json.has("name")) table.name = json["name"].as<std::string>();
  if (printableLine(table.name) != table.name) builder.fail("its name has control characters");
  for (const std::string& key : json.keys()) {
    if (!isOfTable(key) && (looksLikeNumber(key) || key.starts_with("optimi")))
      builder.fail(fmt::format("it has `{}`, which is no figure of a table; use {}", key, fmt::join(kOfTable, ", ")));
  }
  for (const std::string_view key : kOfTable) {
    if (!json.has(std::string(key))) continue;
    const Json& value = parsed[std::string(key)];
    setOfTable(document, table, key, value.is_number() ? std::optional(value.get<double>()) : std::nullopt, shown(value));
  }
  const JsonPart layers = json["layers"];
  for (std::size_t i = 0, count = layers.size(); i < count; ++i) {
    const JsonPart layer = layers[i];
    Row row;
    row.name = layer[std::string(kName)].as<std::string>();
    for (const std::string& key : layer.keys()) {
      const Json& value = layer.json()[key];
      builder.requireKnown(row, key);
      if (key == kModule) row.module = layer[key].as<std::string>();
      if (isNumber(key)) builder.set(row, key, wholeIn(value), shown(value));
    }
    builder.add(row);
  }
  builder.finish();
}

// ---- CSV ----

/// Splits CSV into records, one after the other.
class CsvReader {
 public:
  CsvReader(std::string_view text, const JsonDocument& document)
      : text_(text), document_(document), separator_(separatorOf(text.substr(0, text.find('\n')))) {}

  /// The next record that is not an empty line; nothing at the end.
  std::optional<std::vector<std::string>> next() {
    while (at_ < text_.size()) {
      std::vector<std::string> cells = record();
      if (cells.size() > 1 || !cells.front().empty()) return cells;
    }
    return std::nullopt;
  }
  [[nodiscard]] std::size_t line() const { return line_; }
  [[nodiscard]] char separator() const { return separator_; }

 private:
  /// Spreadsheets of some languages write semicolons, and many programs tabs.
  static char separatorOf(std::string_view header) {
    for (const char c : {',', ';', '\t'}) {
      if (header.find(c) != std::string_view::npos) return c;
    }
    return ',';
  }
  /// Cells without the blanks around them; within quotes blanks count.
  std::vector<std::string> record() {
    std::vector<std::string> cells(1);
    bool isQuoted = false;
    ++line_;
    while (at_ < text_.size() && text_[at_] != '\n') {
      const char c = text_[at_++];
      if (c == separator_) {
        if (!isQuoted) trim(cells.back());
        cells.emplace_back();
        isQuoted = false;
      } else if (c == '"' && cells.back().find_first_not_of(' ') == std::string::npos) {
        cells.back() = quoted();
        isQuoted = true;
      } else if (isQuoted && c == ' ') {  // up to the separator
      } else if (c != '\r' || (at_ < text_.size() && text_[at_] != '\n')) {
        cells.back() += c;
      }
    }
    if (!isQuoted) trim(cells.back());
    ++at_;
    return cells;
  }
  static void trim(std::string& cell) {
    cell.erase(cell.find_last_not_of(' ') + 1);
    cell.erase(0, cell.find_first_not_of(' '));
  }
  /// From after the quote on.
  std::string quoted() {
    std::string cell;
    for (; at_ < text_.size(); ++at_) {
      if (text_[at_] == '"' && text_.substr(at_ + 1, 1) != "\"") {
        ++at_;
        return cell;
      }
      if (text_[at_] == '"') ++at_;
      if (text_[at_] == '\n') ++line_;
      cell += text_[at_];
    }
    document_.fail(fmt::format("line {} has a quote that does not end", line_));
  }

  std::string_view text_;
  const JsonDocument& document_;
  char separator_;
  std::size_t at_ = 0, line_ = 0;
};

/// A whole number, also as programs write it that know only decimals: 10.0. Where semicolons separate cells, a point may as well separate
/// thousands: 1.000 is then no number.
std::optional<std::int64_t> wholeIn(const std::string& cell, char separator) {
  constexpr std::size_t kThousand = 3;  // digits
  const std::size_t point = cell.find('.');
  if (separator == ';' && point != std::string::npos && cell.size() - point - 1 == kThousand) return std::nullopt;
  const bool isWhole = point != std::string::npos && point + 1 < cell.size() && cell.find_first_not_of('0', point + 1) == std::string::npos;
  return numberOf<std::int64_t>(isWhole ? cell.substr(0, point) : cell);
}

void readCsvTable(std::string_view text, const JsonDocument& document, LayerTable& table) {
  CsvReader reader(text, document);
  Builder builder(document, table);
  const std::vector<std::string> header = reader.next().value_or(std::vector<std::string>());
  if (std::ranges::find(header, kName) == header.end())
    builder.fail("its first line is not a header with `name` and the costs, separated by commas, semicolons or tabs");
  for (auto key = header.begin(); key != header.end(); ++key) {
    if (std::find(header.begin(), key, *key) != key) builder.fail(fmt::format("its header has `{}` twice", *key));
    if (!isNumber(*key) && !isOfTable(*key) && looksLikeNumber(*key))
      builder.fail(fmt::format("its header has `{}`, which is no cost of a layer", *key));
  }
  std::map<std::string, std::string> ofTable;
  while (const auto cells = reader.next()) {
    if (cells->size() != header.size())
      builder.fail(fmt::format("line {} has {} cells, the header {}", reader.line(), cells->size(), header.size()));
    Row row;
    row.name = (*cells)[static_cast<std::size_t>(std::ranges::find(header, kName) - header.begin())];
    for (std::size_t i = 0; i < header.size(); ++i) {
      const std::string& cell = (*cells)[i];
      if (header[i] == kModule) row.module = cell;
      if (isNumber(header[i]) && !cell.empty())
        builder.set(row, header[i], wholeIn(cell, reader.separator()), fmt::format("\"{:.40}\"", cell));
      if (!isOfTable(header[i])) continue;
      const auto [first, isNew] = ofTable.emplace(header[i], cell);
      if (first->second != cell) builder.fail(row, fmt::format("has another `{}` than those before it", header[i]));
      if (isNew) setOfTable(document, table, header[i], numberOf<double>(cell), fmt::format("\"{:.40}\"", cell));
    }
    builder.add(row);
  }
  builder.finish();
}

/// A cell; quoted where it has to be.
std::string cellOf(const std::string& text) {
  const bool isBlankAround = text.starts_with(' ') || text.ends_with(' ');
  if (text.find_first_of(",\"\r\n") == std::string::npos && !isBlankAround) return text;
  std::string quoted = "\"";
  for (const char c : text) quoted += c == '"' ? "\"\"" : std::string(1, c);
  return quoted + "\"";
}

/// Whether a number is written; what is not is what a reader assumes.
bool isSaid(const Layer& layer, const LayerNumber& field) {
  if (field.key == kSent) return layer.sent != Layer::kByLink;
  if (field.key == kUpdate) return layer.optimizer != 0;
  if (field.key == kKeptIfRecomputed) return layer.kept != Layer::kNotSaid;
  if (field.key == kAfterInput) return layer.afterInput != layer.activations;
  return true;
}

/// What is written of the whole table; the rest is what a reader assumes.
std::vector<std::pair<std::string_view, Json>> ofTable(const LayerTable& table) {
  std::vector<std::pair<std::string_view, Json>> all;
  if (table.microbatch != 1) all.emplace_back(kMicrobatch, table.microbatch);
  if (table.actionOverhead != 0) all.emplace_back(kOverhead, table.actionOverhead);
  if (table.sendOverhead != 0) all.emplace_back(kSendOverhead, table.sendOverhead);
  if (table.optimizerNsPerByte != 0) all.emplace_back(kOptimizer, table.optimizerNsPerByte);
  return all;
}

}  // namespace

LayerTable parseLayerTable(std::string_view text, const std::string& source) {
  const JsonDocument document{source, "layer table", "resources/docs/formats.md shows one"};
  constexpr std::string_view kMark = "\xEF\xBB\xBF";
  if (text.starts_with(kMark)) text.remove_prefix(kMark.size());
  LayerTable table;
  table.name = printableLine(std::filesystem::path(source).stem().string());
  const std::size_t first = text.find_first_not_of(" \t\r\n");
  if (first != std::string_view::npos && (text[first] == '{' || text[first] == '[')) {
    readJsonTable(text, document, table);
  } else {
    readCsvTable(text, document, table);
  }
  return table;
}

std::string toJson(const LayerTable& table) {
  Json json{{"version", kTableVersion}, {"name", table.name}};
  for (const auto& [key, value] : ofTable(table)) json[std::string(key)] = value;
  json["layers"] = Json::array();
  for (const Layer& layer : table.layers) {
    Json row{{kName, layer.name}};
    for (const LayerNumber& field : kLayerNumbers) {
      if (isSaid(layer, field)) row[std::string(field.key)] = field.of(layer);
    }
    if (!layer.module.empty()) row[std::string(kModule)] = layer.module;
    json["layers"].push_back(std::move(row));
  }
  return json.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::string toCsv(const LayerTable& table) {
  const bool modules = std::ranges::any_of(table.layers, [](const Layer& layer) { return !layer.module.empty(); });
  std::vector<LayerNumber> columns;
  for (const LayerNumber& field : kLayerNumbers) {
    if (std::ranges::any_of(table.layers, [&](const Layer& layer) { return isSaid(layer, field); })) columns.push_back(field);
  }
  std::string text(kName);
  for (const LayerNumber& column : columns) text += fmt::format(",{}", column.key);
  std::string last;
  for (const auto& [key, value] : ofTable(table)) {
    text += fmt::format(",{}", key);
    last += fmt::format(",{}", value.dump());
  }
  text += modules ? ",module\n" : "\n";
  for (const Layer& layer : table.layers) {
    text += cellOf(layer.name);
    for (const LayerNumber& column : columns) text += isSaid(layer, column) ? fmt::format(",{}", column.of(layer)) : ",";
    text += last + (modules ? "," + cellOf(layer.module) : "") + "\n";
  }
  return text;
}

}  // namespace pw
