#include "backends/store/store_errors.h"

#include <fcntl.h>
#include <unistd.h>

#include <filesystem>

#include <SQLiteCpp/SQLiteCpp.h>
#include <fmt/format.h>
#include <sqlite3.h>

#include "backends/host/paths.h"
#include "schedules/error.h"
#include "schedules/printable.h"

namespace pw {
namespace {

bool isAllowed(const std::string& path, int what) { return ::faccessat(AT_FDCWD, path.c_str(), what, AT_EACCESS) == 0; }

constexpr std::size_t kLongestName = 511;  // of an absolute path: MAX_PATHNAME of SQLite's unix files, with the terminating zero

std::string folderOf(const std::string& path) {
  const auto parent = std::filesystem::path(path).parent_path();
  return parent.empty() ? "." : parent.string();
}

}  // namespace

std::string cannotWrite(const std::string& path, std::string_view kind) {
  const std::string folder = folderOf(path);
  if (!pathExists(folder)) return fmt::format("the folder of the {} {} does not exist; make it first", kind, path);
  if (std::error_code ignored; std::filesystem::is_directory(path, ignored))
    return fmt::format("the {} {} is a folder; give a file in it", kind, path);
  if (std::error_code ignored; std::filesystem::absolute(path, ignored).string().size() > kLongestName)
    return fmt::format("the path of the {} {} is longer than SQLite takes, {} bytes", kind, path, kLongestName);
  if (pathExists(path) && !isAllowed(path, R_OK))
    return fmt::format("the {} {} may not be read by this user; change its permissions or give another one", kind, path);
  if (pathExists(path) && !isAllowed(path, W_OK))
    return fmt::format("the {} {} is read-only; make it writable or give another one", kind, path);
  return fmt::format("the {} {} lies in a folder that is read-only; make {} writable or give another one", kind, path, folder);
}

std::string noRunStore(const std::string& path) {
  return fmt::format("{} is not a Pipewright run store; give the file that `pipewright run --store` wrote", path);
}

void rethrow(const SQLite::Exception& problem, const std::string& path, std::chrono::milliseconds lockWait, std::string_view kind) {
  if (std::error_code ignored; std::filesystem::is_directory(path, ignored)) throw UsageError(cannotWrite(path, kind));
  const std::string reason = printableLine(problem.what());  // quotes what a damaged file holds
  switch (problem.getErrorCode() & 0xff) {
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
      throw Error(fmt::format("the {} {} has been locked by another program for {} ms; try again when that has ended", kind, path,
                              lockWait.count()));
    case SQLITE_READONLY:
    case SQLITE_CANTOPEN:
    case SQLITE_PERM: throw Error(cannotWrite(path, kind));
    case SQLITE_NOTADB:
      throw UsageError(kind == kRunStore ? noRunStore(path) : fmt::format("{} is not a {}; give another file", path, kind));
    case SQLITE_CORRUPT: throw UsageError(fmt::format("the {} {} is damaged ({}); restore it from a copy", kind, path, reason));
    case SQLITE_FULL:
    case SQLITE_IOERR:
      throw Error(
          fmt::format("cannot write the {} {} ({}): free space on its disk, or check quota and disk; results stored before are kept", kind,
                      path, reason));
    default: throw Error(fmt::format("the {} {} failed ({}); check the file or give another one", kind, path, reason));
  }
}

}  // namespace pw
