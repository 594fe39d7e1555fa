#pragma once

#include <string>

#include "backends/host/fd.h"

namespace pw {

/// A new file beside `path`, to be written and then put in its place, so that there is always a whole file of that name. Its name is
/// random, so that nobody can put a link there before; it is locked while this object lives, and removed with it unless `replace`
/// succeeded. What killed processes of this host left in that folder, which nobody locks any more, is removed first.
class PartFile {
 public:
  explicit PartFile(const std::string& path);
  ~PartFile();
  PartFile(const PartFile&) = delete;
  PartFile& operator=(const PartFile&) = delete;

  /// −1 with errno where the file could not be created, or was put in place.
  [[nodiscard]] int descriptor() const { return fd_.get(); }
  /// Puts the file in place and closes it. False with errno when that fails; what `path` was then stays.
  [[nodiscard]] bool replace();

 private:
  std::string path_, beside_;
  Fd fd_;
};

}  // namespace pw
