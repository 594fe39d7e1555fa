#pragma once

#include <functional>

namespace pw {

/// Runs `work(0)` … `work(parts − 1)` on so many threads, or fewer where the system has none; the first of them is the caller's. An
/// exception of a part is rethrown when all have ended.
void shareParts(int parts, int threads, const std::function<void(int part)>& work);

}  // namespace pw
