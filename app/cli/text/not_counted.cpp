#include "app/cli/text/not_counted.h"

#include <fmt/format.h>

namespace pw::cli {

std::string incompleteLine(const std::vector<NotCounted>& list, bool estimated) {
  if (list.empty()) return {};
  return fmt::format("\n{}: {}\n", notCountedText(list),
                     estimated ? "the times above are incomplete, estimated without these operators; measure a profile for complete times"
                               : "FLOPs do not include these; measured times do");
}

}  // namespace pw::cli
