#pragma once

#include <cstddef>
#include <string>

#include "simulator/model/model_graph.h"

namespace pw {

/// Reads a torch.export archive (`.pt2`): graph, module paths, parameters and buffers with the place of their bytes in
/// the file. No tensor data is read: stored zip entries are located, and mapped later by the rank that needs them.
/// - `torch.ops.pippy._pipe_split` nodes become split markers and are dropped.
/// - In-place nodes (`aten.relu_`) give a new name to what they change: later readers of the changed value read the
///   node's output, so that a value means the same in every stage.
/// - Archives exported on the meta device have parameters without bytes.
/// Throws UsageError in one sentence for a file that is missing, not a zip file, truncated, compressed, not a torch.export archive, of a
/// schema version other than 8, big-endian, or internally inconsistent (names the entry or node). Cost: linear in the size of model.json.
[[nodiscard]] ModelGraph readPt2(const std::string& path);

/// A read-write private mapping of a whole file: pages are read when touched, writes stay in this process.
class MappedFile {
 public:
  explicit MappedFile(const std::string& path);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  [[nodiscard]] std::byte* data() const { return data_; }
  [[nodiscard]] std::size_t size() const { return size_; }

 private:
  std::byte* data_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace pw
