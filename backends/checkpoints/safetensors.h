#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "backends/host/part_file.h"
#include "simulator/model/model_graph.h"

namespace pw {

/// Whether a path names a file of Hugging Face's safetensors format: by its ending.
[[nodiscard]] bool isSafetensors(const std::string& path);

/// The file beside `model.safetensors` that has the optimizer's state, `model.optimizer.safetensors`: readers of the format take all of a
/// file's tensors as the model's.
[[nodiscard]] std::string optimizerFileOf(const std::string& path);

/// Both files of a checkpoint have the same text under this key of their metadata, as no two checkpoints do; a model's file without state
/// has an empty one.
inline constexpr const char* kPairKey = "pipewright-pair";
/// Where the state's file lies from when it is complete until the model's file is, `model.optimizer-next.safetensors`, so that a process
/// that is killed leaves an old pair or a new one: the model's file decides which.
[[nodiscard]] std::string nextOptimizerFileOf(const std::string& path);

/// A tensor of such a file, contiguous; its bytes lie at `offset` from the file's start.
struct SafeTensor {
  std::string name;
  DType dtype = DType::Unknown;  ///< Unknown: a type that cannot be computed with here
  std::vector<std::int64_t> shape;
  std::int64_t offset = 0, bytes = 0;
};

struct SafetensorsHeader {
  std::vector<SafeTensor> tensors;  ///< as they lie in the file
  std::map<std::string, std::string> metadata;
};

/// Reads a file's header. Throws UsageError for a file that is missing or damaged: a header of more than 100 MB (the format's own limit) or
/// than the file, one that is not valid JSON of the format, tensors that extend past the end of the file or whose shape does not fit their
/// bytes. No data is read.
[[nodiscard]] SafetensorsHeader readSafetensors(const std::string& path);

/// Writes such a file tensor by tensor, in a file beside `path` that replaces it in `finish`. Every member throws Error naming the path
/// where the disk is full or the folder cannot be written.
class SafetensorsWriter {
 public:
  /// `headerBytes`: an upper bound of the header's size; the rest is filled with spaces, as the format allows.
  SafetensorsWriter(const std::string& path, std::size_t headerBytes);  // without `finish` the temporary file is removed

  /// An upper bound of the header bytes for a tensor or an entry of metadata.
  [[nodiscard]] static std::size_t headerBytesOf(const std::string& name) { return 6 * name.size() + 512; }

  /// Throws UsageError for an element type that the format lacks.
  void add(const std::string& name, DType dtype, const std::vector<std::int64_t>& shape, const std::byte* bytes);
  /// Adds a second name of a tensor that was added, and its bytes again, because the format has no sharing.
  void again(const std::string& name, const std::string& of);
  void finish(const std::map<std::string, std::string>& metadata);

 private:
  [[noreturn]] void fail(int reason) const;
  void write(const void* bytes, std::size_t count, std::uint64_t at);

  std::string path_;
  PartFile part_;
  std::size_t headerBytes_;
  std::uint64_t size_ = 0;  ///< of the data
  std::vector<SafeTensor> tensors_;
};

}  // namespace pw
