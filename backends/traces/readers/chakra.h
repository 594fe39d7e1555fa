#pragma once

// Internal to the import of traces: Chakra's execution traces (mlcommons/chakra, schema/protobuf/et_def.proto).

#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "backends/traces/events/events.h"
#include "backends/traces/names/patterns.h"

namespace pw {

/// Whether a file that begins like this is a Chakra trace of protobuf messages, or the JSON of Chakra's jsonizer or feeder.
[[nodiscard]] bool isChakra(std::string_view head);
[[nodiscard]] bool isChakraJson(std::string_view head);

/// Reads a Chakra trace of one rank, in protobuf or JSON, also compressed by gzip. Nodes whose names label an action have the time of all
/// nodes below them (of those on the device, where there are any); Chakra's converter of PyTorch stores durations only, so `timeless` says
/// that starts are an order and no times. Nothing if `advance` stopped it. Throws UsageError for a damaged file, and for one without
/// durations. Cost: linear.
[[nodiscard]] std::optional<FileEvents> readChakraFile(const std::string& path, const NamePatterns& patterns,
                                                       const std::function<bool(std::uint64_t)>& advance);

}  // namespace pw
