#pragma once

#include <algorithm>
#include <string>

#include "backends/store/run_columns.h"

namespace SQLite {
class Database;
}

namespace pw {

/// A new fact about runs (`kRunColumns`) makes a new version by itself; another change of what is stored raises the number here.
inline constexpr int kStoreVersion = std::max(2, kRunColumnsVersion);

/// Makes an empty file a run store of our version, within the caller's transaction.
void createStore(SQLite::Database& db);

/// The version of an open run store. Throws UsageError where the file is none.
[[nodiscard]] int storeVersion(SQLite::Database& db, const std::string& path);

/// Brings an open store of an older version to ours, in one transaction; one of our version stays as it is. Before that the file is copied
/// beside itself, as `runs.db.v1.bak` (or `runs.db.v1.2.bak` and so on: no file is overwritten). When anything fails the store is as it
/// was, and the copy is removed. Throws what SQLite throws.
void migrateStore(SQLite::Database& db, const std::string& path);

/// A copy of an open store at our version, for reading a store that cannot be written. It is in memory, or where SQLite keeps temporary
/// files if it is large, and gone with the object.
[[nodiscard]] SQLite::Database migratedCopy(SQLite::Database& db, const std::string& path);

}  // namespace pw
