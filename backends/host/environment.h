#pragma once

#include <span>
#include <string>
#include <utility>

namespace pw {

/// A name and a value.
using EnvironmentVariable = std::pair<std::string, std::string>;

/// Sets the variables of this process that are not set yet, so that the user's own stand. Unlike setenv(3), it may be called while other
/// threads read variables: the list of variables that they may be reading is neither changed nor freed. Kept for the rest of the process.
void setDefaultVariables(std::span<const EnvironmentVariable> variables);

/// Likewise for one variable, whether it is set or not.
void setVariable(const std::string& name, const std::string& value);

}  // namespace pw
