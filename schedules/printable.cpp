#include "schedules/printable.h"

#include <cstddef>
#include <cstdint>

#include <fmt/format.h>

namespace pw {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";  // U+FFFD

/// One UTF-8 character; length 0 where the bytes are not valid (truncated, overlong, a surrogate, beyond U+10FFFF).
struct Character {
  std::uint32_t code = 0;
  std::size_t length = 0;
};

Character characterAt(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<std::uint32_t>(static_cast<unsigned char>(text[i])); };
  const std::uint32_t first = byte(0);
  if (first < 0x80) return {first, 1};
  const std::size_t length = first >= 0xF0 && first < 0xF8 ? 4 : first >= 0xE0 && first < 0xF0 ? 3 : first >= 0xC0 && first < 0xE0 ? 2 : 0;
  if (length == 0 || text.size() < length) return {};
  std::uint32_t code = first & (0x7FU >> length);
  for (std::size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xC0U) != 0x80U) return {};
    code = (code << 6U) | (byte(i) & 0x3FU);
  }
  const std::uint32_t least = length == 2 ? 0x80U : length == 3 ? 0x800U : 0x10000U;
  if (code < least || code > 0x10FFFFU || (code >= 0xD800U && code <= 0xDFFFU)) return {};
  return {code, length};
}

bool isControl(std::uint32_t code) {
  return code < 0x20U || (code >= 0x7FU && code <= 0x9FU) || code == 0x061CU || code == 0x200EU || code == 0x200FU ||
         (code >= 0x2028U && code <= 0x202EU) || (code >= 0x2066U && code <= 0x2069U);
}

std::string filtered(std::string_view text, std::string_view kept) {
  std::string result;
  result.reserve(text.size());
  while (!text.empty()) {
    const Character c = characterAt(text);
    if (c.length == 0) {
      result += kReplacement;
      text.remove_prefix(1);
      continue;
    }
    const bool endsLine = text.starts_with("\r\n") && kept.find('\n') != std::string_view::npos;  // of CSV
    const bool stays = endsLine || !isControl(c.code) || (c.length == 1 && kept.find(text.front()) != std::string_view::npos);
    if (stays)
      result += text.substr(0, c.length);
    else
      result += fmt::format("\\u{:04x}", c.code);
    text.remove_prefix(c.length);
  }
  return result;
}

}  // namespace

std::string printable(std::string_view text) { return filtered(text, "\n\t"); }

std::string printableLine(std::string_view text) { return filtered(text, ""); }

}  // namespace pw
