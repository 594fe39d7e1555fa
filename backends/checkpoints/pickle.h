#pragma once

// Internal to tensor files: the pickle inside a file of torch.save, a dict of tensors whose bytes lie elsewhere in the archive.

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "simulator/model/model_graph.h"

namespace pw::pickle {

/// A tensor of the dict: a view of a storage. Sizes, strides and offset in elements; nothing is checked against the storage.
struct TensorEntry {
  std::string name;
  DType dtype = DType::Unknown;  ///< Unknown: a type that our archives cannot store
  std::string storage;           ///< name of its record: `data/<storage>`
  std::int64_t storageElements = 0;
  std::int64_t offset = 0;
  std::vector<std::int64_t> sizes, strides;

  bool operator==(const TensorEntry&) const = default;
};

/// Elements of a tensor of these sizes; nothing if a size is negative or there are more than 64 bits count.
[[nodiscard]] std::optional<std::int64_t> elementsOf(const std::vector<std::int64_t>& sizes);

/// Elements of the storage that the view reaches over, from the storage's start; 0 for a tensor without elements, nothing where that is no
/// number or a size or stride is negative.
[[nodiscard]] std::optional<std::int64_t> reachOf(const TensorEntry& entry);

/// What a dict holds at its top level.
struct TensorDict {
  std::vector<TensorEntry> tensors;       ///< in the dict's order; a name that stands twice keeps its last value
  std::map<std::string, double> numbers;  ///< integers, floats and truth values
};

/// Reads a dict (or OrderedDict) as torch.save writes it, pickle protocols 2 to 5. Values that are neither tensors nor numbers, and keys
/// that are not strings, are skipped: nothing is imported or called. Throws UsageError with a sentence that begins with `where` for
/// anything else: another object than a dict, another kind of pickle, a damaged one. Memory and time are linear in the size of `bytes`.
[[nodiscard]] TensorDict read(std::string_view bytes, const std::string& where);

/// Reads the one tensor of a file that holds nothing else; its name is empty. Throws as `read`.
[[nodiscard]] TensorEntry readTensor(std::string_view bytes, const std::string& where);

/// Throws UsageError unless `order`, what torch.save writes as record `byteorder`, is that of this machine.
void requireLittleEndian(std::string_view order, const std::string& where);

/// Writes such a dict as torch.save does (protocol 2), with contiguous tensors from offset 0. With `attributes` it is an OrderedDict that
/// has these, by name: each the opcodes of one object (pickle_write.h). Throws UsageError for an element type without a storage class.
[[nodiscard]] std::string write(const TensorDict& dict, const std::map<std::string, std::string>& attributes = {});

}  // namespace pw::pickle
