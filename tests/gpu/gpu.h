#pragma once

#include <gtest/gtest.h>

#include <optional>
#include <string>

#include "backends/cuda/backend.h"
#include "backends/torch/backend.h"
#include "schedules/error.h"

namespace pw::test {

/// Why GPUs cannot be used here; nothing where they can.
inline std::optional<std::string> whyNoGpu() {
  try {
    static_cast<void>(cudaBackend());
    return std::nullopt;
  } catch (const Error& e) {
    return e.what();
  }
}

/// The first GPU, prepared for this process.
inline const Device& firstGpu() {
  static const Device& device = [&]() -> const Device& {
    torchBackend().prepareProcess(1);
    EXPECT_EQ(cudaBackend().prepareProcess(0, false, {}), "") << "no part was requested for";
    return cudaBackend().device();
  }();
  return device;
}

class Gpu : public testing::Test {
 protected:
  void SetUp() override {
    if (const auto reason = whyNoGpu()) GTEST_SKIP() << *reason;
  }
};

}  // namespace pw::test
