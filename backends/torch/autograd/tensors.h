#pragma once

#include "backends/torch/autograd/functions.h"

namespace pw {

/// The table of this module.
[[nodiscard]] const AutogradFunctions& autogradFunctions();

}  // namespace pw
