#pragma once

#include <chrono>
#include <string>
#include <string_view>

namespace SQLite {
class Exception;
}

namespace pw {

/// What a file is called in sentences.
inline constexpr std::string_view kRunStore = "run store";

/// Why a store cannot be written there, and the cure: no folder, or no permission.
[[nodiscard]] std::string cannotWrite(const std::string& path, std::string_view kind = kRunStore);
/// The sentence for a file that is not a run store.
[[nodiscard]] std::string noRunStore(const std::string& path);

/// Throws SQLite's complaint about the store as a sentence of ours: UsageError where the file is no store, else Error.
[[noreturn]] void rethrow(const SQLite::Exception& problem, const std::string& path, std::chrono::milliseconds lockWait,
                          std::string_view kind = kRunStore);

}  // namespace pw
