#include "engine/run/batch_stream.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

namespace pw {
namespace {

TEST(BatchStream, KnowsAFunctionFromAFile) {
  for (const char* function : {"data:batches", "my.package.data:batches", "_a:_b1"}) EXPECT_TRUE(namesFunction(function)) << function;
  for (const char* file : {"data.pt", "synthetic", "", ":", "a:", ":b", "a:b:c", "C:\\data.pt", "folder/data:x", "data:batches()"})
    EXPECT_FALSE(namesFunction(file)) << file;
}

TEST(BatchStream, AFileOfThatNameIsAFile) {
  const std::string path = testing::TempDir() + "data:batches";
  const auto before = std::filesystem::current_path();
  std::filesystem::current_path(testing::TempDir());
  std::ofstream(path) << "";
  EXPECT_FALSE(namesFunction("data:batches"));
  std::filesystem::remove(path);
  EXPECT_TRUE(namesFunction("data:batches"));
  std::filesystem::current_path(before);
}

}  // namespace
}  // namespace pw
