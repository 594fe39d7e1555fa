#pragma once

#include <string>

#include "backends/host/fd.h"

namespace pw {

/// A temporary file next to `path`, to be written and then moved there, so that there is always a complete file of that name. Its name is
/// random, so that nobody can place a link there in advance; it is locked while this object lives, and removed with it unless `replace`
/// succeeded. Unlocked temporary files that killed processes of this host left in that folder are removed first.
class PartFile {
 public:
  explicit PartFile(const std::string& path);
  ~PartFile();
  PartFile(const PartFile&) = delete;
  PartFile& operator=(const PartFile&) = delete;

  /// −1 if the file could not be created (see errno) or has replaced `path`.
  [[nodiscard]] int descriptor() const { return fd_.get(); }
  /// Puts the file in place and closes it. False with errno set when that fails; `path` is then unchanged.
  [[nodiscard]] bool replace();
  /// The same for what must outlive a crash of the machine: waits until contents and name are on the disk.
  [[nodiscard]] bool replaceDurably();

 private:
  std::string path_, beside_;
  Fd fd_;
};

}  // namespace pw
