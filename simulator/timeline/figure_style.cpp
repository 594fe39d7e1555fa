#include "simulator/timeline/figure_style.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include <fmt/format.h>

#include "schedules/error.h"
#include "schedules/units.h"
#include "simulator/text/number_text.h"

namespace pw {
namespace {

constexpr double kNarrowest = 20, kWidest = 1000;  ///< [mm]
constexpr double kMmPerInch = 25.4;
constexpr std::size_t kLongestTitle = 500, kLongestLabel = 40, kLongestFont = 60;
constexpr std::size_t kMostRanges = 1000;

double numberIn(std::string_view name, std::string_view text, double least, double most) {
  const auto number = numberOf<double>(text);
  if (!number || !(*number >= least && *number <= most))
    throw UsageError(fmt::format("{} \"{}\" is not a number from {:g} to {:g}", name, text, least, most));
  return *number;
}

/// `85`, `85mm`, `8.5cm`, `3.5in`, `240pt`.
double lengthIn(std::string_view name, std::string_view text, double least, double most) {
  constexpr std::array<std::pair<std::string_view, double>, 4> kUnits{
      {{"mm", 1}, {"cm", 10}, {"in", kMmPerInch}, {"pt", kMmPerInch / 72.27}}};  // of TeX
  double unit = 1;
  std::string_view digits = text;
  for (const auto& [word, length] : kUnits) {
    if (!text.ends_with(word)) continue;
    digits.remove_suffix(word.size());
    unit = length;
  }
  const auto number = numberOf<double>(digits);
  if (!number || !(*number * unit >= least && *number * unit <= most))
    throw UsageError(
        fmt::format("{} \"{}\" is not a length from {:g} to {:g} mm; write for example 85mm, 3.5in or 240pt", name, text, least, most));
  return *number * unit;
}

void setWidth(FigureStyle& style, std::string_view text) {
  for (const FigureWidth& preset : kFigureWidths) {
    if (preset.name == text) {
      style.width = preset.width;
      return;
    }
  }
  style.width = lengthIn("width", text, kNarrowest, kWidest);
}

std::string lengthText(double mm) { return fmt::format("{}mm", std::round(mm * 1000) / 1000); }

void setFont(FigureStyle& style, std::string_view text) {
  const auto isFine = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == ' ' || c == '-' || c == '_' || c == '.';
  };
  if (text.empty() || text.size() > kLongestFont || !std::ranges::all_of(text, isFine))
    throw UsageError(fmt::format("font \"{}\" is not the name of a font; use letters, digits, spaces and hyphens", text));
  style.font = text;
}

Rank rankIn(std::string_view text, std::string_view all) {
  const auto number = numberOf<std::int32_t>(text);
  if (!number || *number < 0) throw UsageError(fmt::format("ranks \"{}\" are not numbers and ranges; write for example 0-3,8", all));
  return Rank(*number);
}

void setRanks(FigureStyle& style, std::string_view text) {
  std::vector<RankRange> ranges;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t comma = std::min(text.find(',', at), text.size());
    std::string_view part = text.substr(at, comma - at);
    while (part.starts_with(' ')) part.remove_prefix(1);
    while (part.ends_with(' ')) part.remove_suffix(1);
    const std::size_t dash = part.find('-');
    const Rank first = rankIn(part.substr(0, dash), text);
    const Rank last = dash == std::string_view::npos ? first : rankIn(part.substr(dash + 1), text);
    if (last < first) throw UsageError(fmt::format("ranks \"{}\" end before they begin; write for example 0-3,8", text));
    ranges.push_back({first, last});
    at = comma + 1;
  }
  if (ranges.size() > kMostRanges) throw UsageError(fmt::format("ranks have {} ranges; use at most {}", ranges.size(), kMostRanges));
  style.ranks = std::move(ranges);
}

std::string ranksText(const FigureStyle& style) {
  std::string text;
  for (const RankRange& range : style.ranks) {
    text += fmt::format("{}{}", text.empty() ? "" : ",", range.first.value);
    if (range.last != range.first) text += fmt::format("-{}", range.last.value);
  }
  return text;
}

void setTimes(FigureStyle& style, std::string_view text) {
  if (text.empty()) {
    style.times.reset();
    return;
  }
  const std::size_t dash = text.find('-');
  if (dash == std::string_view::npos) throw UsageError(fmt::format("time \"{}\" is not a range; write for example 10ms-50ms", text));
  const TimeRange range{parseDuration(text.substr(0, dash)), parseDuration(text.substr(dash + 1))};
  if (range.to <= range.from) throw UsageError(fmt::format("time \"{}\" ends before it begins; write for example 10ms-50ms", text));
  style.times = range;
}

/// Without rounding.
std::string exactDuration(Ns time) {
  if (time == 0) return "0ms";
  if (time % 1'000'000'000 == 0) return fmt::format("{}s", (time / 1'000'000'000).value);
  if (time % 1'000'000 == 0) return fmt::format("{}ms", (time / 1'000'000).value);
  if (time % 1'000 == 0) return fmt::format("{}us", (time / 1'000).value);
  return fmt::format("{}ns", time.value);
}

/// One line of at most that many bytes.
std::string lineOf(std::string_view name, std::string_view text, std::size_t longest) {
  if (text.size() > longest) throw UsageError(fmt::format("{} has {} bytes; use at most {}", name, text.size(), longest));
  std::string line(text);
  for (char& c : line) {
    if (static_cast<unsigned char>(c) < 0x20) c = ' ';
  }
  return line;
}

void setLabels(FigureStyle& style, std::string_view text) {
  const auto labels = valueNamed<BlockLabels>(text);
  if (!labels) throw UsageError(fmt::format("labels \"{}\" are not one of {}", text, namesOf<BlockLabels>(", ")));
  style.labels = *labels;
}

template <bool FigureStyle::*kField>
void setSwitch(FigureStyle& style, std::string_view text) {
  if (text != "on" && text != "off") throw UsageError(fmt::format("\"{}\" is not on or off", text));
  style.*kField = text == "on";
}
template <bool FigureStyle::*kField>
std::string switchText(const FigureStyle& style) {
  return style.*kField ? "on" : "off";
}
template <std::string FigureStyle::*kField>
std::string wordsOf(const FigureStyle& style) {
  return style.*kField;
}

using Style = FigureStyle;

const auto kSettings = std::to_array<FigureSetting>({
    {"width", "WIDTH", "Width, like 85mm, 3.5in or 240pt, or column (85 mm), text (140 mm), two-columns (178 mm, default), slide (320 mm)",
     setWidth, [](const Style& s) { return lengthText(s.width); }},
    {"font", "NAME", "Font family, or sans-serif (default), serif, monospace; TikZ uses the document's fonts of these three kinds", setFont,
     wordsOf<&Style::font>},
    {"font-size", "PT", "Size of text in points (default 8); 4 to 72",
     [](Style& s, std::string_view t) { s.fontSize = numberIn("font-size", t, 4, 72); },
     [](const Style& s) { return fmt::format("{}", s.fontSize); }},
    {"row-height", "LENGTH", "Height of a rank's row, like 5mm (default: 0, from the font size)",
     [](Style& s, std::string_view t) { s.rowHeight = t == "0" || t == "0mm" ? 0 : lengthIn("row-height", t, 0.5, 100); },
     [](const Style& s) { return lengthText(s.rowHeight); }},
    {"ranks", "LIST", "Ranks to draw, like 0-3,8 (default: all)", setRanks, ranksText},
    {"time", "FROM-TO", "Part of the step to draw, like 10ms-50ms (default: all of it)", setTimes,
     [](const Style& s) {
       return s.times ? fmt::format("{}-{}", exactDuration(s.times->from), exactDuration(s.times->to)) : std::string();
     }},
    {"title", "TEXT", "Title (default: what is drawn; \"\": none)",
     [](Style& s, std::string_view t) { s.title = lineOf("title", t, kLongestTitle); }, wordsOf<&Style::title>},
    {"predicted-title", "TEXT", "With --both: title of the upper lanes (default Predicted)",
     [](Style& s, std::string_view t) { s.predictedTitle = lineOf("predicted-title", t, kLongestTitle); }, wordsOf<&Style::predictedTitle>},
    {"measured-title", "TEXT", "With --both: title of the lower lanes (default Measured)",
     [](Style& s, std::string_view t) { s.measuredTitle = lineOf("measured-title", t, kLongestTitle); }, wordsOf<&Style::measuredTitle>},
    {"rank-label", "TEXT", "Word before a rank's number (default rank)",
     [](Style& s, std::string_view t) { s.rankLabel = lineOf("rank-label", t, kLongestLabel); }, wordsOf<&Style::rankLabel>},
    {"labels", "none|microbatch|full", "Text in blocks: nothing, 3 (default), or F3 and, where a rank has several stages, 2F3", setLabels,
     [](const Style& s) { return std::string(nameOf(s.labels)); }},
    {"greyscale", "", "Greys and hatching instead of colours, for print", setSwitch<&Style::greyscale>, switchText<&Style::greyscale>},
    {"legend", "", "Leave out what the colours stand for", setSwitch<&Style::legend>, switchText<&Style::legend>},
    {"messages", "", "Leave out the messages below each rank", setSwitch<&Style::messages>, switchText<&Style::messages>},
    {"memory", "", "Draw the memory below each rank, with its peak", setSwitch<&Style::memory>, switchText<&Style::memory>},
    {"busy", "", "Write how busy each rank is beside it", setSwitch<&Style::busy>, switchText<&Style::busy>},
    {"summary", "", "Write makespan and bubble below the figure", setSwitch<&Style::summary>, switchText<&Style::summary>},
});

}  // namespace

std::span<const FigureSetting> figureSettings() { return kSettings; }

const FigureSetting& figureSetting(std::string_view name) {
  const auto found = std::ranges::find(kSettings, name, &FigureSetting::name);
  if (found == kSettings.end()) throw UsageError(fmt::format("a figure has no setting \"{}\"", name));
  return *found;
}

std::vector<std::string> figureOptions(const FigureStyle& style) {
  std::vector<std::string> words;
  const FigureStyle usual;
  for (const FigureSetting& setting : kSettings) {
    const std::string text = setting.text(style);
    if (text == setting.text(usual)) continue;
    if (setting.value.empty()) {
      words.push_back(fmt::format("--{}{}", text == "on" ? "" : "no-", setting.name));
    } else if (text.starts_with('-')) {  // else it would be an option itself
      words.push_back(fmt::format("--{}={}", setting.name, text));
    } else {
      words.push_back(fmt::format("--{}", setting.name));
      words.push_back(text);
    }
  }
  return words;
}

bool includes(const FigureStyle& style, Rank rank) {
  return style.ranks.empty() ||
         std::ranges::any_of(style.ranks, [&](const RankRange& range) { return range.first <= rank && rank <= range.last; });
}

}  // namespace pw
