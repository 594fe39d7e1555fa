#include "simulator/layout/layout.h"

#include <algorithm>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "schedules/error.h"
#include "schedules/placement.h"
#include "schedules/printable.h"

namespace pw {
namespace {

/// A character and where it stands in the text as given; copies of a repetition keep the place of their original.
struct Letter {
  char c;
  std::size_t at;
};
using LetterRow = std::vector<Letter>;

bool isDigit(char c) { return c >= '0' && c <= '9'; }

std::string around(std::string_view text, std::size_t at) {
  constexpr std::size_t kBefore = 12, kShown = 24;
  const std::size_t first = at > kBefore ? at - kBefore : 0;
  return fmt::format("{}{}{}", first > 0 ? "…" : "", printableLine(text.substr(first, kShown)), first + kShown < text.size() ? "…" : "");
}

[[noreturn]] void refuse(std::string_view text, std::size_t at, std::string_view what, std::string_view cure) {
  throw UsageError(fmt::format("layout, character {} of \"{}\": {}; {}", at + 1, around(text, at), what, cure));
}

/// The number whose digits begin at `i`, which is moved past them; nothing without digits. Numbers that are too large stay so.
std::optional<std::size_t> numberAt(const LetterRow& letters, std::size_t& i) {
  std::size_t number = 0;
  const std::size_t begin = i;
  for (; i < letters.size() && isDigit(letters[i].c); ++i)
    number = std::min(10 * number + static_cast<std::size_t>(letters[i].c - '0'), kLongestLayout + 1);
  return i > begin ? std::optional(number) : std::nullopt;
}

void append(LetterRow& out, const LetterRow& letters, std::size_t from, std::size_t to, std::size_t times, std::string_view text) {
  if (out.size() + (to - from) * times > kLongestLayout)
    refuse(text, letters[from].at, fmt::format("with this repetition the layout is longer than {} characters", kLongestLayout),
           "give a smaller number");
  for (std::size_t k = 0; k < times; ++k) {
    out.insert(out.end(), letters.begin() + static_cast<std::ptrdiff_t>(from), letters.begin() + static_cast<std::ptrdiff_t>(to));
  }
}

/// Megatron's first pattern: `(`, at least one character but no `)`, `)*`, a number. What it writes out is not looked at again.
LetterRow withoutGroups(const LetterRow& letters, std::string_view text) {
  std::vector<std::size_t> closing(letters.size() + 1, letters.size());  // the first `)` from here on
  for (std::size_t i = letters.size(); i-- > 0;) closing[i] = letters[i].c == ')' ? i : closing[i + 1];
  LetterRow out;
  for (std::size_t i = 0; i < letters.size();) {
    const std::size_t close = closing[i];
    std::size_t end = close + 2;
    if (letters[i].c == '(' && close > i + 1 && end < letters.size() && letters[close + 1].c == '*') {
      if (const std::optional<std::size_t> times = numberAt(letters, end)) {
        append(out, letters, i + 1, close, *times, text);
        i = end;
        continue;
      }
    }
    out.push_back(letters[i++]);
  }
  return out;
}

/// Its second: any character, `*`, a number.
LetterRow withoutRepetitions(const LetterRow& letters, std::string_view text) {
  LetterRow out;
  for (std::size_t i = 0; i < letters.size();) {
    std::size_t end = i + 2;
    if (end < letters.size() && letters[i + 1].c == '*' && letters[i].c != '\n') {
      if (const std::optional<std::size_t> times = numberAt(letters, end)) {
        append(out, letters, i, i + 1, *times, text);
        i = end;
        continue;
      }
    }
    out.push_back(letters[i++]);
  }
  return out;
}

[[noreturn]] void refuseLetter(std::string_view text, const Letter& letter) {
  const std::string_view known = "the letters are E (embedding), t (transformer layer), m (MTP layer) and L (loss), and | ends a stage";
  switch (letter.c) {
    case '(':
    case ')':
      refuse(text, letter.at, fmt::format("this {} belongs to no repetition", letter.c),
             "write (tt|)*3: parentheses hold something, are followed by * and a number, and do not nest");
    case '*': refuse(text, letter.at, "this * repeats nothing", "it stands between one letter, | or (...), and a number: t*3");
    case 'e':
    case 'l': refuse(text, letter.at, fmt::format("{} is not a layer", letter.c), fmt::format("write {}", letter.c == 'e' ? 'E' : 'L'));
    case 'T':
    case 'M': refuse(text, letter.at, fmt::format("{} is not a layer", letter.c), fmt::format("write {}", letter.c == 'T' ? 't' : 'm'));
    default: break;
  }
  if (isDigit(letter.c)) refuse(text, letter.at, fmt::format("the number {} repeats nothing", letter.c), "write a * before it: t*3");
  if (letter.c == ' ') refuse(text, letter.at, "a layout has no blanks", "remove it; commas may separate what you like");
  const bool ascii = letter.c > ' ' && letter.c < 0x7f;
  refuse(text, letter.at, ascii ? fmt::format("{} is not a layer", letter.c) : std::string("this is not a layer"), known);
}

struct ReadLayout {
  Layout layout;
  std::vector<std::size_t> places;  ///< of stages
};

ReadLayout read(std::string_view text) {
  if (text.size() > kLongestLayout) throw UsageError(fmt::format("the layout is longer than {} characters; shorten it", kLongestLayout));
  LetterRow letters;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != ',') letters.push_back({text[i], i});
  }
  letters = withoutRepetitions(withoutGroups(letters, text), text);
  ReadLayout result;
  auto& stages = result.layout.stages;
  stages.emplace_back();
  result.places.push_back(letters.empty() ? 1 : letters.front().at + 1);
  for (std::size_t i = 0; i < letters.size(); ++i) {
    const Letter& letter = letters[i];
    if (letter.c == '|') {
      if (stages.size() == kMaxStages) refuse(text, letter.at, fmt::format("more than {} stages", kMaxStages), "give a smaller number");
      stages.emplace_back();
      result.places.push_back((i + 1 < letters.size() ? letters[i + 1] : letter).at + 1);
      continue;
    }
    switch (letter.c) {
      case 'E': stages.back().push_back(LayoutLayer::Embedding); break;
      case 't': stages.back().push_back(LayoutLayer::Transformer); break;
      case 'm': stages.back().push_back(LayoutLayer::Mtp); break;
      case 'L': stages.back().push_back(LayoutLayer::Loss); break;
      default: refuseLetter(text, letter);
    }
  }
  return result;
}

}  // namespace

std::size_t Layout::count(LayoutLayer layer) const {
  std::size_t sum = 0;
  for (const std::vector<LayoutLayer>& stage : stages) sum += static_cast<std::size_t>(std::ranges::count(stage, layer));
  return sum;
}

Layout parseLayout(std::string_view text) { return read(text).layout; }

std::vector<std::size_t> stagePlaces(std::string_view text) { return read(text).places; }

std::string toString(const std::vector<LayoutLayer>& stage) {
  std::string text;
  for (std::size_t i = 0; i < stage.size();) {
    std::size_t end = i;
    while (end < stage.size() && stage[end] == stage[i]) ++end;
    text += letterOf(stage[i]);
    if (end - i > 1) text += fmt::format("*{}", end - i);
    i = end;
  }
  return text;
}

std::string toString(const Layout& layout) {
  std::string text;
  const std::size_t stages = layout.stages.size();
  for (std::size_t i = 0; i < stages;) {
    const std::string stage = toString(layout.stages[i]);
    std::size_t end = i;  // the last stage is followed by no |, so it is in no repetition
    while (end + 1 < stages && layout.stages[end] == layout.stages[i]) ++end;
    if (const std::size_t times = end - i; times > 1) {
      const std::string once = stage + "|", repeated = fmt::format("{}*{}", stage.empty() ? once : "(" + once + ")", times);
      std::string plain;
      for (std::size_t k = 0; k < times && plain.size() <= repeated.size(); ++k) plain += once;
      text += plain.size() <= repeated.size() ? plain : repeated;
      i = end;
    } else {
      text += stage + (i + 1 < stages ? "|" : "");
      ++i;
    }
  }
  return text;
}

}  // namespace pw
