#include "engine/run/batch_stream.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>

#include "schedules/error.h"
#include "tests/support/folder.h"

namespace pw {
namespace {

namespace fs = std::filesystem;

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

/// Folders with programs that say in place of batches which of them was started, and variables of the environment.
class BatchStreamPython : public testing::Test {
 protected:
  BatchStreamPython() {
    for (const char* name : {"PATH", "PIPEWRIGHT_PYTHON", "VIRTUAL_ENV", "CONDA_PREFIX"}) {
      const char* value = std::getenv(name);
      before_[name] = value == nullptr ? "" : value;
      ::unsetenv(name);
    }
  }
  ~BatchStreamPython() override {
    for (const auto& [name, value] : before_) value.empty() ? ::unsetenv(name.c_str()) : ::setenv(name.c_str(), value.c_str(), 1);
  }

  [[nodiscard]] std::string place(const std::string& name) const { return folder_.file(name); }
  void program(const std::string& name, bool isExecutable = true) const {
    fs::create_directories(fs::path(place(name)).parent_path());
    const std::string header = R"({"error": ")" + name + R"("})";
    (void)folder_.with(name, fmt::format("#!/bin/sh\nprintf 'PWB1\\{:o}\\0\\0\\0%s' '{}'\n", header.size(), header));
    if (isExecutable) fs::permissions(place(name), fs::perms::owner_all);
  }
  static std::string started() {
    try {
      StreamRequest request;
      request.function = "data:batches";
      (void)streamBatches(request)->batch(0);
    } catch (const UsageError& said) {
      return said.what();
    }
    return "nothing";
  }

 private:
  test::Folder folder_;
  std::map<std::string, std::string> before_;
};

TEST_F(BatchStreamPython, IsSearchedInTheFoldersOfPath) {
  program("second/my_python");
  program("third/my_python");
  fs::create_directories(place("first/my_python"));
  program("unusable/my_python", false);
  ::setenv("PATH",
           (place("nowhere") + ":" + place("first") + "::" + place("unusable") + ":" + place("second") + ":" + place("third")).c_str(), 1);
  ::setenv("PIPEWRIGHT_PYTHON", "my_python", 1);
  EXPECT_EQ(started(), "second/my_python");
  ::setenv("PIPEWRIGHT_PYTHON", place("third/my_python").c_str(), 1);
  EXPECT_EQ(started(), "third/my_python") << "a path is taken as it is";
  ::setenv("PIPEWRIGHT_PYTHON", "your_python", 1);
  EXPECT_EQ(started(), "There is no your_python in PATH; set PIPEWRIGHT_PYTHON to a Python that has torch.");
  ::unsetenv("PATH");
  EXPECT_EQ(started(), "There is no your_python in PATH; set PIPEWRIGHT_PYTHON to a Python that has torch.");
}

TEST_F(BatchStreamPython, IsThatOfTheActiveEnvironmentOrElsePython3) {
  program("path/python3");
  program("venv/bin/python");
  program("conda/bin/python");
  ::setenv("PATH", place("path").c_str(), 1);
  ::setenv("PIPEWRIGHT_PYTHON", "", 1);
  EXPECT_EQ(started(), "path/python3");
  ::setenv("CONDA_PREFIX", place("conda").c_str(), 1);
  EXPECT_EQ(started(), "conda/bin/python");
  ::setenv("VIRTUAL_ENV", place("venv").c_str(), 1);
  EXPECT_EQ(started(), "venv/bin/python");
  ::setenv("VIRTUAL_ENV", place("deleted").c_str(), 1);
  EXPECT_EQ(started(), "conda/bin/python");
  ::unsetenv("CONDA_PREFIX");
  ::setenv("PATH", place("nowhere").c_str(), 1);
  EXPECT_EQ(started(), "There is no python3 in PATH for --data with a function; set PIPEWRIGHT_PYTHON to a Python that has torch.");
}

}  // namespace
}  // namespace pw
