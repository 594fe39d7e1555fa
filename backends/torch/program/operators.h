#pragma once

#include <optional>
#include <string_view>

namespace c10 {
class OperatorHandle;
}

namespace pw {

/// The operator that a target of torch.export names, `torch.ops.aten.add.Tensor`; nothing where LibTorch has none.
[[nodiscard]] std::optional<c10::OperatorHandle> operatorNamed(std::string_view target);

/// Whether it reads or writes files, as `aten::from_file` does. A model is data and must not.
[[nodiscard]] bool touchesFiles(const c10::OperatorHandle& op);

}  // namespace pw
