#include "backends/checkpoints/tensor_file.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <random>

#include "backends/checkpoints/pickle.h"
#include "backends/checkpoints/writer.h"
#include "backends/checkpoints/zip_writer.h"
#include "schedules/error.h"
#include "tests/support/mutate.h"

namespace pw {
namespace {

namespace fs = std::filesystem;

/// A folder of the test's own.
class TensorFiles : public testing::Test {
 protected:
  void SetUp() override { fs::create_directories(folder_); }
  void TearDown() override { fs::remove_all(folder_); }
  [[nodiscard]] std::string path(const std::string& name) const { return (folder_ / name).string(); }

  fs::path folder_ = fs::path(testing::TempDir()) /
                     ("pw_" + std::string(testing::UnitTest::GetInstance()->current_test_info()->name()) + std::to_string(::getpid()));
};

std::vector<float> counted(std::size_t count, float first = 0) {
  std::vector<float> numbers(count);
  std::iota(numbers.begin(), numbers.end(), first);
  return numbers;
}

const std::byte* bytesOf(const std::vector<float>& numbers) { return reinterpret_cast<const std::byte*>(numbers.data()); }

std::vector<float> floatsOf(const MappedTensor& tensor, std::size_t count) {
  std::vector<float> numbers(count);
  std::memcpy(numbers.data(), tensor.data, count * sizeof(float));
  return numbers;
}

std::string contentOf(const std::string& path) {
  std::ifstream stream(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>()};
}

void writeSmall(const std::string& path, float first = 0) {
  const std::vector<float> weight = counted(6, first);
  CheckpointWriter writer(path);
  writer.add("w", DType::Float32, {2, 3}, bytesOf(weight));
  writer.alias("tied", "w");
  writer.add("none", DType::Int64, {0, 4}, nullptr);
  writer.add("exp_avg/w", DType::Float32, {6}, bytesOf(weight));
  writer.finish({{"step", 12}, {"rate", 0.25}});
}

std::string errorOf(const std::function<void()>& work) {
  try {
    work();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

void expectContains(const std::string& text, const std::string& part) { EXPECT_NE(text.find(part), std::string::npos) << text; }

TEST_F(TensorFiles, GiveBackWhatWasWritten) {
  writeSmall(path("a.pt"));
  const TensorFile file(path("a.pt"));
  EXPECT_EQ(file.names(), (std::vector<std::string>{"w", "tied", "none", "exp_avg/w"}));
  EXPECT_EQ(file.numbers(), (std::map<std::string, double>{{"step", 12}, {"rate", 0.25}}));
  const auto weight = file.find("w");
  ASSERT_TRUE(weight.has_value());
  EXPECT_EQ(weight->dtype, DType::Float32);
  EXPECT_EQ(weight->shape, (std::vector<std::int64_t>{2, 3}));
  EXPECT_EQ(weight->strides, (std::vector<std::int64_t>{3, 1}));
  EXPECT_EQ(floatsOf(*weight, 6), counted(6));
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(weight->data) % 64, 0U);
  EXPECT_EQ(file.find("tied")->data, weight->data) << "one storage";
  EXPECT_EQ(file.find("none")->data, nullptr);
  EXPECT_EQ(floatsOf(*file.find("exp_avg/w"), 6), counted(6));
  EXPECT_FALSE(file.find("other").has_value());
}

TEST_F(TensorFiles, AreMappedPrivately) {
  writeSmall(path("a.pt"));
  const TensorFile file(path("a.pt"));
  const std::string before = contentOf(path("a.pt"));
  std::memset(file.find("w")->data, 0x55, 24);
  EXPECT_EQ(contentOf(path("a.pt")), before);
  EXPECT_EQ(floatsOf(*TensorFile(path("a.pt")).find("w"), 6), counted(6));
}

TEST_F(TensorFiles, AreReplacedAtOnceAndOnlyWhenFinished) {
  writeSmall(path("a.pt"));
  const std::string before = contentOf(path("a.pt"));
  const std::vector<float> other = counted(6, 50);
  {
    CheckpointWriter writer(path("a.pt"));
    writer.add("w", DType::Float32, {2, 3}, bytesOf(other));
  }
  EXPECT_EQ(contentOf(path("a.pt")), before);
  writeSmall(path("a.pt"), 50);
  EXPECT_EQ(floatsOf(*TensorFile(path("a.pt")).find("w"), 6), other);
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_), fs::directory_iterator()), 1) << "nothing beside the file";
}

TEST_F(TensorFiles, AFullDiskLeavesTheOldCheckpointAndOneSentence) {
  writeSmall(path("a.pt"));
  const std::string before = contentOf(path("a.pt"));
  struct rlimit old {};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &old), 0);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  const struct rlimit small { 1 << 16, old.rlim_max };  // 64 KiB stand for the disk's end
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  const std::vector<float> large = counted(1 << 16);
  const std::string sentence = errorOf([&] {
    CheckpointWriter writer(path("a.pt"));
    writer.add("w", DType::Float32, {1 << 16}, bytesOf(large));
    writer.finish({});
  });
  setrlimit(RLIMIT_FSIZE, &old);
  std::signal(SIGXFSZ, handler);
  EXPECT_EQ(sentence, path("a.pt") + " cannot be written: File too large; make room.");
  EXPECT_EQ(contentOf(path("a.pt")), before);
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_), fs::directory_iterator()), 1) << "the file beside is gone";
}

TEST_F(TensorFiles, AMissingFolderIsNamed) {
  expectContains(errorOf([&] { CheckpointWriter writer(path("none/a.pt")); }),
                 path("none/a.pt") + " cannot be written: No such file or directory");
  fs::create_directories(path("folder"));
  expectContains(errorOf([&] { writeSmall(path("folder")); }), "cannot be replaced: Is a directory");
}

TEST_F(TensorFiles, RefuseOtherTypesAndUnknownTiesBeforeWriting) {
  CheckpointWriter writer(path("a.pt"));
  const float one = 1;
  EXPECT_EQ(errorOf([&] { writer.add("c", DType::ComplexHalf, {1}, reinterpret_cast<const std::byte*>(&one)); }),
            "Tensor c is of type complex32, which torch.save has no storage for.");
  expectContains(errorOf([&] { writer.alias("b", "a"); }), "lacks a, which b shares its values with");
}

/// Writes an archive around a pickle and one storage of 8 floats.
std::string archive(const std::string& path, const std::string& pickle, const std::string& order = "little") {
  const std::vector<float> numbers = counted(8);
  ZipWriter zip(path);
  zip.add("top/data.pkl", pickle);
  zip.add("top/byteorder", order);
  zip.add("top/data/0", bytesOf(numbers), 32);
  zip.finish();
  return path;
}

/// The pickle of {"w": a float32 view of storage 0} as torch.save writes it, sizes and strides as opcodes.
std::string viewPickle(const std::string& offset, const std::string& sizes, const std::string& strides, const std::string& storage = "0") {
  return "\x80\x02}X" + std::string("\x01\0\0\0", 4) + "wctorch._utils\n_rebuild_tensor_v2\n((X" + std::string("\x07\0\0\0", 4) +
         "storagectorch\nFloatStorage\nX" + std::string("\x01\0\0\0", 4) + storage + "X" + std::string("\x03\0\0\0", 4) + "cpuK\x08tQ" +
         offset + "(" + sizes + "t(" + strides + "t\x89" + "ccollections\nOrderedDict\n)RtRs.";
}

TEST_F(TensorFiles, TakeViewsWithinTheirStorageOnly) {
  const auto find = [&](const std::string& pickle) { return TensorFile(archive(path("v.pt"), pickle)).find("w").value(); };
  const std::string past = "Tensor w reaches past its bytes in " + path("v.pt") + "; the file is damaged, save it again";
  const auto refused = [&](const std::string& pickle) { EXPECT_EQ(errorOf([&] { static_cast<void>(find(pickle)); }), past); };
  // Elements 2, 4, 6 and 3, 5, 7: the last is 2 + 1·2·... = 2 + 2·2 + 1 = 7, the storage's last.
  const TensorFile file(archive(path("w.pt"), viewPickle("K\x02", "K\x03K\x02", "K\x02K\x01")));
  EXPECT_EQ(*reinterpret_cast<const float*>(file.find("w")->data), 2.0F);
  refused(viewPickle("K\x03", "K\x03K\x02", "K\x02K\x01"));
  refused(viewPickle("K\x02", "K\x03K\x02", "K\x02"));                       // fewer strides than sizes
  refused(viewPickle("J\xff\xff\xff\xff", "K\x03", "K\x01"));                // offset −1
  refused(viewPickle(std::string("K\0", 2), "K\x03", "J\xff\xff\xff\xff"));  // a negative stride
  refused(viewPickle(std::string("K\0", 2), "J\xff\xff\xff\xff", "K\x01"));  // a negative size
  refused(viewPickle(std::string("K\0", 2), "K\x01", "K\x01", "9"));         // a storage that is not there
  const std::string huge = "\x8a\x08" + std::string(7, '\xff') + "\x7f";     // 2⁶³ − 1
  refused(viewPickle(std::string("K\0", 2), huge + huge, huge + "K\x01"));
  refused(viewPickle(huge, "K\x02", "K\x01"));
  EXPECT_EQ(find(viewPickle(std::string("K\0", 2), std::string("K\0", 2) + huge, "K\x01K\x01")).data, nullptr)
      << "no elements, so no bytes";
}

TEST_F(TensorFiles, SayWhatIsWrongWithAFile) {
  const auto open = [&](const std::string& file) { return errorOf([&] { TensorFile opened(file); }); };
  expectContains(open(path("absent.pt")), "does not exist");
  std::ofstream(path("text.pt")) << "hello";
  expectContains(open(path("text.pt")), "is not a file of torch.save");
  expectContains(open(archive(path("big.pt"), viewPickle(std::string("K\0", 2), "K\x01", "K\x01"), "big")), "big-endian");
  expectContains(open(archive(path("empty.pt"), "\x80\x02}.")), "no tensors at the top level");
  for (const char* damaged : {"\x80\x02].", "\x80\x02K\x01.", "\x80\x02}", "", ".", "u.", "\x80\x02h\x07.", "\x80\x02}X\xff\xff\xff\xff.",
                              "\x80\x02\xff.", "}(K\x01u.", "tR.", "NQ."}) {
    expectContains(open(archive(path("damaged.pt"), damaged)), "is not a dict of tensors, or it is damaged: its pickle ");
  }
  ZipWriter zip(path("zip.pt"));
  zip.add("top/other", "x");
  zip.finish();
  expectContains(open(path("zip.pt")), "not a file of torch.save: it has no data.pkl");
}

TEST_F(TensorFiles, AnObjectInsideItselfOrDeepInOthersIsNoTrouble) {
  const std::string itself = "\x80\x02}q" + std::string("\0", 1) + "X" + std::string("\x01\0\0\0", 4) + "ah" + std::string("\0", 1) + "s.";
  std::string deep = "\x80\x02}X" + std::string("\x01\0\0\0", 4) + "a)";
  deep += std::string(1000000, '\x85') + "s.";  // a tuple in a tuple, a million deep
  for (const std::string& pickle : {itself, deep}) EXPECT_TRUE(pickle::read(pickle, "here").tensors.empty());
}

/// Opens a file and touches every byte of every tensor.
void readAll(const std::string& path) {
  const TensorFile file(path);
  for (const std::string& name : file.names()) {
    const auto tensor = file.find(name);
    if (tensor->data == nullptr) continue;
    std::int64_t last = 0;
    for (std::size_t i = 0; i < tensor->shape.size(); ++i) last += (tensor->shape[i] - 1) * tensor->strides[i];
    volatile std::byte sink = tensor->data[0];
    sink = tensor->data[(last + 1) * widthOf(tensor->dtype) - 1];
    static_cast<void>(sink);
  }
}

TEST_F(TensorFiles, DamagedFilesNeverCrash) {
  constexpr std::uint64_t kSeed = 20250301;
  std::mt19937_64 random(kSeed);
  writeSmall(path("a.pt"));
  const std::string whole = contentOf(path("a.pt"));
  const std::string pickle = viewPickle("K\x02", "K\x03K\x02", "K\x02K\x01");
  int refused = 0;
  for (int i = 0; i < 3000; ++i) {
    SCOPED_TRACE("seed " + std::to_string(kSeed) + ", file " + std::to_string(i));
    if (i % 3 == 0) {
      archive(path("d.pt"), test::mutate(pickle, random));  // after a right checksum
    } else {
      std::ofstream(path("d.pt"), std::ios::binary)
          << (i % 3 == 1 ? test::mutate(whole, random) : whole.substr(0, static_cast<std::size_t>(i) * whole.size() / 3000));
    }
    try {
      readAll(path("d.pt"));
    } catch (const UsageError&) {
      ++refused;
    }
  }
  EXPECT_GT(refused, 1500);
}

}  // namespace
}  // namespace pw
