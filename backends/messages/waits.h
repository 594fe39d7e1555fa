#pragma once

#include <chrono>

namespace pw {

/// How long a wait for another process may take where nobody says otherwise. A run has its own (`kRunTimeout`).
inline constexpr std::chrono::milliseconds kUsualWait{60'000};

}  // namespace pw
