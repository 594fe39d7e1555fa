#pragma once

#include <string>

#include "simulator/hang/diagnose.h"

namespace pw::hang {

/// The document of `hang --json`, without a final newline: keys in a fixed order, described in resources/docs/formats.md.
[[nodiscard]] std::string diagnosisJson(const Dumps& dumps, const Diagnosis& diagnosis);

/// For people: the verdict, where each rank waits, which dumps are missing, and whether `check` would have found it.
[[nodiscard]] std::string diagnosisText(const Dumps& dumps, const Diagnosis& diagnosis);

}  // namespace pw::hang
