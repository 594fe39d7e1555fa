#pragma once

// Internal to tensor files: the opcodes of pickles that we write (protocol 2; Lib/pickletools.py of CPython lists them). Each call appends
// to `out` what leaves one object on the unpickler's stack.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "backends/checkpoints/pickle.h"

namespace pw::pickle {

void putInteger(std::string& out, std::int64_t number);
void putReal(std::string& out, double number);
void putBool(std::string& out, bool truth);
void putText(std::string& out, std::string_view text);
void putTuple(std::string& out, const std::vector<std::int64_t>& numbers);
/// `torch` and `Size`, say.
void putGlobal(std::string& out, std::string_view module, std::string_view name);
/// A contiguous tensor of its whole storage. Throws UsageError for an element type without a storage class.
void putTensor(std::string& out, const TensorEntry& tensor);

/// The element type of torch's storage class of that name; Unknown where there is none.
[[nodiscard]] DType storageType(std::string_view name);

/// The element type that torch calls so, `float32` say, if it has a storage class; else Unknown.
[[nodiscard]] DType dtypeNamed(std::string_view name);

/// The pickle of one tensor by itself.
[[nodiscard]] std::string writeTensor(const TensorEntry& tensor);

}  // namespace pw::pickle
