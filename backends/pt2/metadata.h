#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "backends/pt2/graph.h"

namespace pw::pt2 {

/// `key,path,class;key,path,class` → frames, root first. Commas and semicolons inside brackets belong to a name; a `@1` that marks a
/// repeated call is cut off. Text of another form yields the root only, without class name.
[[nodiscard]] std::vector<ModuleFrame> parseModules(std::string_view stack);

/// The innermost `File "…", line N, in f` outside torch's own modules as `model.py:21 in forward`. Only the last part of absolute paths is
/// kept. Empty if there is no such line.
[[nodiscard]] std::string parseSourceLine(std::string_view trace);

}  // namespace pw::pt2
