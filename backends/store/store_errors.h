#pragma once

#include <string>

namespace SQLite {
class Exception;
}

namespace pw {

/// False also where the folder cannot be searched.
[[nodiscard]] bool fileExists(const std::string& path);

/// Why a store cannot be written there, and the cure: no folder, or no permission.
[[nodiscard]] std::string cannotWrite(const std::string& path);
/// The sentence for a file that is not a run store.
[[nodiscard]] std::string noRunStore(const std::string& path);

/// Throws SQLite's complaint about the store as a sentence of ours: UsageError where the file is no store, else Error.
[[noreturn]] void rethrow(const SQLite::Exception& problem, const std::string& path, int lockWaitMs);

}  // namespace pw
