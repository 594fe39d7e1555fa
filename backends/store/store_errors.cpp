#include "backends/store/store_errors.h"

#include <fcntl.h>
#include <unistd.h>

#include <filesystem>

#include <SQLiteCpp/SQLiteCpp.h>
#include <fmt/format.h>
#include <sqlite3.h>

#include "schedules/error.h"
#include "schedules/printable.h"

namespace pw {
namespace {

bool writable(const std::string& path) { return ::faccessat(AT_FDCWD, path.c_str(), W_OK, AT_EACCESS) == 0; }

std::string folderOf(const std::string& path) {
  const auto parent = std::filesystem::path(path).parent_path();
  return parent.empty() ? "." : parent.string();
}

}  // namespace

bool fileExists(const std::string& path) {
  std::error_code ignored;
  return std::filesystem::exists(path, ignored);
}

std::string cannotWrite(const std::string& path) {
  const std::string folder = folderOf(path);
  if (!fileExists(folder)) return fmt::format("the folder of the run store {} does not exist; make it first", path);
  if (fileExists(path) && !writable(path)) return fmt::format("the run store {} is read-only; make it writable or give another one", path);
  return fmt::format("the run store {} lies in a folder that is read-only; make {} writable or give another one", path, folder);
}

std::string noRunStore(const std::string& path) {
  return fmt::format("{} is not a Pipewright run store; give the file that `pipewright run --store` wrote", path);
}

void rethrow(const SQLite::Exception& problem, const std::string& path, int lockWaitMs) {
  const std::string reason = printableLine(problem.what());  // quotes what a damaged file holds
  switch (problem.getErrorCode() & 0xff) {
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
      throw Error(
          fmt::format("the run store {} has been locked by another program for {} ms; try again when that has ended", path, lockWaitMs));
    case SQLITE_READONLY:
    case SQLITE_CANTOPEN:
    case SQLITE_PERM: throw Error(cannotWrite(path));
    case SQLITE_NOTADB: throw UsageError(noRunStore(path));
    case SQLITE_CORRUPT: throw Error(fmt::format("the run store {} is damaged ({}); restore it from a copy", path, reason));
    case SQLITE_FULL:
    case SQLITE_IOERR:
      throw Error(
          fmt::format("cannot write the run store {} ({}): free space on its disk, or check quota and disk; runs stored before are kept",
                      path, reason));
    default: throw Error(fmt::format("the run store {} failed ({}); check the file or give another one", path, reason));
  }
}

}  // namespace pw
