#include "simulator/timeline/figure_text.h"

#include <array>

namespace pw {
namespace {

/// Widths of ' ' to '~' in Helvetica [1/1000 of the size], from its font metrics.
constexpr std::array<int, 95> kWidths{278, 278, 355, 556, 556, 889, 667, 191, 333, 333, 389, 584, 278, 333,  278, 278, 556, 556, 556,
                                      556, 556, 556, 556, 556, 556, 556, 278, 278, 584, 584, 584, 556, 1015, 667, 667, 722, 722, 667,
                                      611, 778, 722, 278, 500, 667, 556, 833, 722, 778, 667, 778, 722, 667,  611, 722, 667, 944, 667,
                                      667, 611, 278, 278, 278, 469, 556, 333, 556, 556, 500, 556, 556, 278,  556, 556, 222, 222, 500,
                                      222, 833, 556, 556, 556, 556, 333, 500, 278, 556, 500, 722, 500, 500,  500, 334, 260, 334, 584};
constexpr double kWide = 1.14;  ///< how much wider DejaVu Sans and Verdana are

bool continues(char c) { return (static_cast<unsigned char>(c) & 0xc0U) == 0x80U; }

/// Of the character that begins with this byte.
double widthOf(char first, bool monospace) {
  const auto byte = static_cast<unsigned char>(first);
  if (monospace) return byte >= 0xe0U ? 1.2 : 0.61;
  if (byte >= 0x20U && byte < 0x7fU) return kWide * kWidths.at(byte - 0x20U) / 1000;
  return byte >= 0xe2U ? 1.0 : 0.65;  // from U+2000 on some are as wide as high
}

/// The longest beginning, at least a character, that fits; whole characters.
std::size_t fitting(std::string_view text, double size, double width, bool monospace) {
  double sum = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (continues(text[i])) continue;
    sum += widthOf(text[i], monospace) * size;
    if (sum > width && i > 0) return i;
  }
  return text.size();
}

}  // namespace

double textWidth(std::string_view text, double size, bool monospace) {
  double sum = 0;
  for (const char c : text) {
    if (!continues(c)) sum += widthOf(c, monospace);
  }
  return sum * size;
}

std::vector<std::string> wrapped(std::string_view text, double size, double width, std::size_t most, bool monospace) {
  std::vector<std::string> lines;
  while (!text.empty()) {
    std::size_t end = fitting(text, size, width, monospace);
    const bool last = lines.size() + 1 == most;
    if (end < text.size() && last) {
      end = fitting(text, size, width - textWidth("…", size, monospace), monospace);
      lines.push_back(std::string(text.substr(0, end)) + "…");
      return lines;
    }
    std::size_t next = end;
    if (end < text.size()) {
      const std::size_t space = text.substr(0, end + 1).rfind(' ');
      if (space != std::string_view::npos && space > 0) end = space, next = space + 1;
    }
    lines.emplace_back(text.substr(0, end));
    text.remove_prefix(next);
  }
  return lines;
}

}  // namespace pw
