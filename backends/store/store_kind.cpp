#include "backends/store/store_kind.h"

#include <SQLiteCpp/SQLiteCpp.h>

namespace pw {
namespace {

constexpr int kLockWaitMs = 30'000;  ///< a study may be written meanwhile

}  // namespace

StoreKind storeKindOf(const std::string& path) {
  try {
    SQLite::Database db(path, SQLite::OPEN_READONLY, kLockWaitMs);
    const int application = db.execAndGet("PRAGMA application_id").getInt();
    return application == kRunsApplication ? StoreKind::Runs : application == kStudyApplication ? StoreKind::Study : StoreKind::Neither;
  } catch (const SQLite::Exception&) {
    return StoreKind::Neither;
  }
}

}  // namespace pw
