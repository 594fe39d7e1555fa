#include "backends/host/contents.h"

#include <filesystem>

#include <gtest/gtest.h>

#include "backends/checkpoints/zip_writer.h"
#include "schedules/error.h"
#include "tests/support/folder.h"

namespace pw {
namespace {

using test::Folder;

struct Entries {
  std::string top = "model", weights = "wwww", model = "{}", saved = "1";
};

std::string archive(const Folder& folder, const std::string& name, const Entries& entries = {}) {
  ZipWriter zip(folder.file(name));
  zip.add(entries.top + "/models/model.json", entries.model);
  zip.add(entries.top + "/data/weights/weight_0", entries.weights);
  zip.add(entries.top + "/.data/serialization_id", entries.saved);
  zip.finish();
  return folder.file(name);
}

TEST(Contents, AreThoseOfACopySavedAgainUnderAnotherName) {
  const Folder folder;
  EXPECT_EQ(contentsOf(archive(folder, "a.pt2")), contentsOf(archive(folder, "b.pt2", {.top = "b", .saved = "2"})));
}

TEST(Contents, DifferWhereOneByteDoes) {
  const Folder folder;
  const std::string same = archive(folder, "a.pt2"), tuned = archive(folder, "b.pt2", {.weights = "wwwx"}),
                    other = archive(folder, "c.pt2", {.model = "[]"});
  EXPECT_NE(contentsOf(same), contentsOf(tuned));
  EXPECT_NE(contentsOf(same), contentsOf(other));
  EXPECT_NE(contentsOf(same, true), contentsOf(tuned, true));
  EXPECT_EQ(contentsOf(same, true), contentsOf(other, true)) << "its weights are the same";
  EXPECT_NE(contentsOf(folder.with("x", "one")), contentsOf(folder.with("y", "two"))) << "no archives";
}

TEST(Contents, OfALargeFileAreItsSizeAndPieces) {
  const Folder folder;
  const std::string text(8 << 20, 'x');
  std::string longer = text, changed = text;
  longer += 'x';
  changed.back() = 'y';
  const std::string digest = contentsOf(folder.with("a", text));
  EXPECT_EQ(digest, contentsOf(folder.with("b", text)));
  EXPECT_NE(digest, contentsOf(folder.with("c", longer)));
  EXPECT_NE(digest, contentsOf(folder.with("d", changed)));
}

TEST(Contents, OfAMissingFileAreRefused) { EXPECT_THROW(static_cast<void>(contentsOf("/none/at.all")), UsageError); }

TEST(Build, IsThatOfACopyAndNotThatOfAnotherProgram) {
  const Folder folder;
  const std::string self = std::filesystem::read_symlink("/proc/self/exe").string();
  for (const char* name : {"one/bin", "two/bin"}) {
    std::filesystem::create_directories(folder.file(name));
    std::filesystem::copy_file(self, folder.file(name) + std::string("/program"));
  }
  EXPECT_EQ(buildOf(folder.file("one/bin/program")), buildOf(folder.file("two/bin/program")));
  static_cast<void>(folder.with("two/bin/libpw_more.so", "a module that the other lacks"));
  EXPECT_NE(buildOf(folder.file("one/bin/program")), buildOf(folder.file("two/bin/program")));
}

}  // namespace
}  // namespace pw
