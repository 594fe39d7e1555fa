#pragma once

#include <cstdint>
#include <string>

namespace pw {

/// SQLite's application ids of our databases (in resources/schema.sql, too).
inline constexpr int kRunsApplication = 0x50777274;
inline constexpr int kStudyApplication = 0x70775374;

enum class StoreKind : std::uint8_t { Neither, Runs, Study };
/// Which of our databases a file is. Neither for what cannot be read: whoever opens it next says why.
[[nodiscard]] StoreKind storeKindOf(const std::string& path);

}  // namespace pw
