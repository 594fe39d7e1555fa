#pragma once

#include <functional>

namespace pw {

/// Runs `work(0)` … `work(count − 1)` on several threads; the first exception stops all of them and is rethrown.
void parallelFor(int count, int threads, const std::function<void(int)>& work);

}  // namespace pw
