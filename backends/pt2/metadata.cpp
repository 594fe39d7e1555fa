#include <fmt/format.h>
#include <algorithm>
#include <array>
#include <cctype>
#include <nlohmann/json.hpp>
#include <optional>

#include "backends/pt2/graph.h"
#include "backends/pt2/metadata.h"

namespace pw::pt2 {
namespace {

/// Splits at `separator` outside brackets and parentheses, as torch's own reader does.
std::vector<std::string_view> splitOutsideBrackets(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  std::size_t start = 0;
  int depth = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '[' || c == '(') {
      ++depth;
    } else if ((c == ']' || c == ')') && depth > 0) {
      --depth;
    } else if (c == separator && depth == 0) {
      parts.push_back(text.substr(start, i - start));
      start = i + 1;
    }
  }
  parts.push_back(text.substr(start));
  return parts;
}

bool isNumber(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
}

std::string_view withoutCallSuffix(std::string_view path) {
  const std::size_t at = path.rfind('@');
  return at != std::string_view::npos && isNumber(path.substr(at + 1)) ? path.substr(0, at) : path;
}

struct SourcePlace {
  std::string_view file;
  std::string_view line;
  std::string_view function;
};

/// One line of a Python trace: `  File "/a/b.py", line 17, in forward`.
std::optional<SourcePlace> parsePlace(std::string_view text) {
  constexpr std::string_view kFile = "File \"";
  constexpr std::string_view kLine = "\", line ";
  constexpr std::string_view kIn = ", in ";
  text.remove_prefix(std::min(text.find_first_not_of(' '), text.size()));
  const std::size_t line = text.rfind(kLine);
  if (!text.starts_with(kFile) || line == std::string_view::npos || line < kFile.size()) {
    return std::nullopt;
  }
  std::string_view rest = text.substr(line + kLine.size());
  const std::size_t in = rest.find(kIn);
  const std::string_view number = rest.substr(0, in);
  if (!isNumber(number)) {
    return std::nullopt;
  }
  return SourcePlace{text.substr(kFile.size(), line - kFile.size()), number,
                     in == std::string_view::npos ? std::string_view() : rest.substr(in + kIn.size())};
}

bool isTorchInternal(std::string_view file) {
  constexpr std::array<std::string_view, 3> kFolders{"torch/nn/", "torch/utils/", "torch/_"};
  return std::any_of(kFolders.begin(), kFolders.end(), [&](std::string_view folder) {
    return file.starts_with(folder) || file.find(fmt::format("/{}", folder)) != std::string_view::npos;
  });
}

}  // namespace

std::vector<ModuleFrame> parseModules(std::string_view stack) {
  std::vector<ModuleFrame> frames;
  if (!stack.empty() && stack.find("_empty_nn_module_stack") == std::string_view::npos) {
    for (const std::string_view item : splitOutsideBrackets(stack, ';')) {
      const std::vector<std::string_view> parts = splitOutsideBrackets(item, ',');
      if (parts.size() < 3) {
        frames.clear();
        break;
      }
      const std::string_view path = withoutCallSuffix(parts[1]);
      const std::string_view className = item.substr(static_cast<std::size_t>(parts[2].data() - item.data()));
      frames.push_back({std::string(path), std::string(className)});
    }
  }
  if (frames.empty() || !frames.front().path.empty()) {
    frames.insert(frames.begin(), ModuleFrame{});
  }
  return frames;
}

std::string parseSourceLine(std::string_view trace) {
  std::optional<SourcePlace> innermost;
  std::optional<SourcePlace> own;
  while (!trace.empty()) {
    const std::size_t end = std::min(trace.find('\n'), trace.size());
    if (const std::optional<SourcePlace> place = parsePlace(trace.substr(0, end))) {
      innermost = place;
      if (!isTorchInternal(place->file)) {
        own = place;
      }
    }
    trace.remove_prefix(std::min(end + 1, trace.size()));
  }
  if (!own && !innermost) {
    return {};
  }
  SourcePlace place = own ? *own : *innermost;
  const bool isWindowsPath = place.file.size() > 1 && place.file[1] == ':';
  if (place.file.starts_with('/') || isWindowsPath) {
    place.file.remove_prefix(place.file.find_last_of("/\\") + 1);
  }
  return place.function.empty() ? fmt::format("{}:{}", place.file, place.line)
                                : fmt::format("{}:{} in {}", place.file, place.line, place.function);
}

}  // namespace pw::pt2
