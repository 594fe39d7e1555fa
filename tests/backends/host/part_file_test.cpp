#include "backends/host/part_file.h"

#include <signal.h>
#include <sys/wait.h>

#include <filesystem>

#include <gtest/gtest.h>

#include "backends/checkpoints/writer.h"
#include "backends/host/files.h"
#include "tests/support/folder.h"

namespace pw {
namespace {

namespace fs = std::filesystem;
using test::Folder;

std::size_t filesIn(const Folder& folder) {
  return static_cast<std::size_t>(std::distance(fs::directory_iterator(folder.file("")), fs::directory_iterator()));
}

/// A process that begins to write a checkpoint and is killed in the middle of it.
void writeAndBeKilled(const std::string& path) {
  const pid_t child = ::fork();
  if (child == 0) {
    const CheckpointWriter writer(path);
    ::raise(SIGKILL);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFSIGNALED(status));
}

TEST(PartFile, OfAKilledProcessIsRemovedByTheNextWriterInThatFolder) {
  const Folder folder;
  writeAndBeKilled(folder.file("ck-5.pt"));
  ASSERT_EQ(filesIn(folder), 1U) << "what it left";
  writeFile(folder.file("plan.json"), "{}");
  EXPECT_EQ(filesIn(folder), 1U);
  EXPECT_EQ(test::contentOf(folder.file("plan.json")), "{}");
}

TEST(PartFile, OfALivingProcessStays) {
  const Folder folder;
  PartFile first(folder.file("model.pt"));
  ASSERT_GE(first.descriptor(), 0);
  {
    PartFile second(folder.file("model.pt"));
    EXPECT_EQ(filesIn(folder), 2U);
  }
  EXPECT_EQ(filesIn(folder), 1U) << "the one that was given up";
  ASSERT_TRUE(writeAll(first.descriptor(), "whole"));
  ASSERT_TRUE(first.replace());
  EXPECT_EQ(test::contentOf(folder.file("model.pt")), "whole");
  EXPECT_EQ(filesIn(folder), 1U);
}

TEST(PartFile, LeavesFilesOfOthersAlone) {
  const Folder folder;
  for (const char* name : {"notes.part", "x.0123456789abcdef.part", "model.pt.12345.part"}) static_cast<void>(folder.with(name, "mine"));
  writeFile(folder.file("plan.json"), "{}");
  EXPECT_EQ(filesIn(folder), 4U);
}

TEST(PartFile, FollowsNoLinkThatSomebodyPutBeside) {
  const Folder folder;
  const std::string victim = folder.with("victim", "precious");
  const std::string path = folder.file("plan.json");
  for (const std::string& old :
       {path + "." + std::to_string(::getpid()) + ".part", path + ".part" + std::to_string(::getpid()), path + ".part"})
    fs::create_symlink(victim, old);
  writeFile(path, "{}");
  { CheckpointWriter writer(path); }
  EXPECT_EQ(test::contentOf(victim), "precious");
}

TEST(PartFile, ReplacesWhatALinkPointsTo) {
  const Folder folder;
  const std::string target = folder.with("target", "old");
  fs::create_symlink(target, folder.file("link"));
  writeFile(folder.file("link"), "new");
  EXPECT_TRUE(fs::is_symlink(folder.file("link")));
  EXPECT_EQ(test::contentOf(target), "new");
}

}  // namespace
}  // namespace pw
