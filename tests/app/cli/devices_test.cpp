// `pipewright devices`, with a library in the place of NVIDIA's that answers as another machine would: see
// tests/backends/host/fake_nvml.cpp.
#include <sched.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <utility>

#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include "tests/app/cli/call.h"

namespace pw::test {
namespace {

using Json = nlohmann::json;
using testing::HasSubstr;
using testing::Not;

class Devices : public testing::Test {
 protected:
  Devices() {
    ::unsetenv("CUDA_VISIBLE_DEVICES");
    ::unsetenv("CUDA_DEVICE_ORDER");
    if (const char* path = std::getenv("LD_LIBRARY_PATH")) libraryPath_ = path;
    ::setenv("LD_LIBRARY_PATH", libraryPath_.empty() ? FAKE_NVML_FOLDER : (FAKE_NVML_FOLDER ":" + libraryPath_).c_str(), 1);
  }
  ~Devices() override {
    if (libraryPath_.empty())
      ::unsetenv("LD_LIBRARY_PATH");
    else
      ::setenv("LD_LIBRARY_PATH", libraryPath_.c_str(), 1);
    ::unsetenv("CUDA_VISIBLE_DEVICES");
    ::unsetenv("FAKE_NVML");
  }

  static std::string text(const char* machine) { return output(machine, {"devices"}); }
  static Json document(const char* machine) { return Json::parse(output(machine, {"devices", "--json"})); }

 private:
  static std::string output(const char* machine, std::vector<std::string> words) {
    ::setenv("FAKE_NVML", machine, 1);
    const Outcome outcome = call(std::move(words));
    EXPECT_EQ(outcome.status, 0);
    EXPECT_EQ(outcome.err, "");
    return outcome.out;
  }

  std::string libraryPath_;
};

/// The entry of a list whose `key` is `value`.
Json entryOf(const Json& list, const char* key, const std::string& value) {
  for (const Json& candidate : list) {
    if (candidate.at(key) == value) return candidate;
  }
  ADD_FAILURE() << "no " << value << " in " << list;
  return {};
}

/// What a copy of the program that has these modules beside it says of a backend.
Json beside(const std::vector<std::string>& modules, const std::string& backend) {
  const Folder folder;
  std::filesystem::create_directories(folder.file("bin"));
  std::filesystem::create_directories(folder.file("lib"));
  std::filesystem::copy_file(PIPEWRIGHT, folder.file("bin/pipewright"));
  for (const std::string& module : modules) static_cast<void>(folder.with("lib/" + module, "never loaded"));
  EXPECT_EQ(std::system((folder.file("bin/pipewright") + " devices --json > " + folder.file("out")).c_str()), 0);
  const Json found = Json::parse(contentOf(folder.file("out")));
  for (const Json& module : found.at("modules")) {
    const auto expected = std::find(modules.begin(), modules.end(), module.at("file").get<std::string>());
    EXPECT_EQ(module.at("path").is_null(), expected == modules.end()) << module;
  }
  return entryOf(found.at("backends"), "name", backend);
}

TEST_F(Devices, WithoutGpusSaysWhyAndThatNcclCannotRun) {
  const std::string shown = text("none");
  EXPECT_THAT(shown, HasSubstr("\nGPUs       none\n"));
  EXPECT_THAT(shown, HasSubstr("580.65.06 finds no GPU"));
  EXPECT_THAT(shown, HasSubstr("\nnccl           no    it needs an NVIDIA GPU"));
  EXPECT_THAT(shown, Not(HasSubstr("link")));
  EXPECT_THAT(shown, Not(HasSubstr(" \n")));

  const Json found = document("none");
  EXPECT_EQ(found.at("gpus"), Json::array());
  EXPECT_EQ(found.at("links"), Json::array());
  EXPECT_THAT(found.at("why_no_gpus").get<std::string>(), HasSubstr("finds no GPU"));
  EXPECT_EQ(entryOf(found.at("backends"), "name", "nccl").at("available"), false);
}

TEST_F(Devices, TheProcessorIsWhatThisProcessMayUse) {
  const Json cpu = document("none").at("cpu");
  cpu_set_t usable, one;
  ASSERT_EQ(::sched_getaffinity(0, sizeof usable, &usable), 0);
  EXPECT_GE(cpu.at("cores"), 1);
  EXPECT_LE(cpu.at("cores"), CPU_COUNT(&usable));  // fewer where a control group limits them
  EXPECT_GT(cpu.at("available_memory_bytes"), 0);
  EXPECT_GE(cpu.at("memory_bytes"), cpu.at("available_memory_bytes"));
  EXPECT_GE(cpu.at("all_memory_bytes"), cpu.at("memory_bytes"));
  EXPECT_NE(cpu.at("model"), "");

  CPU_ZERO(&one);
  int first = 0;
  while (!CPU_ISSET(first, &usable)) ++first;
  CPU_SET(first, &one);
  ASSERT_EQ(::sched_setaffinity(0, sizeof one, &one), 0);
  const Json limited = document("none").at("cpu");
  EXPECT_EQ(::sched_setaffinity(0, sizeof usable, &usable), 0);
  EXPECT_EQ(limited.at("cores"), 1);
  EXPECT_EQ(limited.at("all_cores"), cpu.at("all_cores"));
}

TEST_F(Devices, ShowsGpusAndTheirLinks) {
  const std::string shown = text("switch");
  // 85 520 809 984 bytes are 79.6 GiB.
  EXPECT_THAT(shown, HasSubstr("\ndriver     NVIDIA 580.65.06, for CUDA up to 13.0\n"));
  EXPECT_THAT(shown, HasSubstr("\nGPU  name                     memory     used  compute  PCI           MIG\n"
                               "  0  NVIDIA H100 80GB HBM3  79.6 GiB  512 MiB      9.0  0000:18:00.0  off\n"
                               "  1  NVIDIA H100 80GB HBM3  79.6 GiB  512 MiB      9.0  0000:2a:00.0  off\n"
                               "  2  NVIDIA H100 80GB HBM3  79.6 GiB  512 MiB      9.0  0000:3a:00.0  off\n\n"));
  EXPECT_THAT(shown, HasSubstr("\nlink   GPU 0       GPU 1       GPU 2\n"
                               "GPU 0  –           NVLink ×18  NVLink ×16\n"
                               "GPU 1  NVLink ×18  –           NVLink ×16\n"
                               "GPU 2  NVLink ×16  NVLink ×16  –\n\n"));
}

TEST_F(Devices, TheDocumentHasGpusAndTheirLinks) {
  const Json found = document("nvlink");
  EXPECT_EQ(found.at("driver"), "580.65.06");
  EXPECT_EQ(found.at("cuda"), "13.0");
  EXPECT_EQ(found.at("why_no_gpus"), "");
  ASSERT_EQ(found.at("gpus").size(), 2U);
  EXPECT_EQ(found.at("gpus")[1], Json({{"index", 1},
                                       {"cuda_index", 1},
                                       {"name", "NVIDIA H100 80GB HBM3"},
                                       {"uuid", "GPU-1aaaaaaa-bbbb-cccc-dddd-eeeeeeeeeeee"},
                                       {"pci_address", "0000:2a:00.0"},
                                       {"memory_bytes", 85'520'809'984},
                                       {"memory_used_bytes", 536'870'912},
                                       {"compute_capability", "9.0"},
                                       {"mig", false},
                                       {"mig_instances", Json::array()},
                                       {"problem", ""}}));
  EXPECT_EQ(found.at("links"), Json::array({{{"first", 0}, {"second", 1}, {"path", "nvlink"}, {"nvlinks", 18}, {"peer_access", true}}}));
}

TEST_F(Devices, SaysWhatOneShouldKnowOfUnlikeGpusApart) {
  const std::string shown = text("pcie");
  EXPECT_THAT(shown, HasSubstr("GPU 1  other socket  –\nNo access to each other's memory (0–1)"));
  EXPECT_THAT(shown, HasSubstr("CUDA_DEVICE_ORDER=PCI_BUS_ID"));
  EXPECT_THAT(text("nvlink"), Not(HasSubstr("CUDA_DEVICE_ORDER")));
  EXPECT_THAT(text("refused"), HasSubstr("GPU 1 cannot be used: the driver gives no access"));
  EXPECT_THAT(text("mig"), HasSubstr("2 instances\nA GPU in MIG mode"));
  EXPECT_THAT(text("uncut"), HasSubstr("(nvidia-smi -mig 0).\n\n"));  // nothing more of the mode
}

TEST_F(Devices, SaysWhichGpusTheEnvironmentHides) {
  ::setenv("CUDA_VISIBLE_DEVICES", "1", 1);
  const std::string shown = text("nvlink");
  EXPECT_THAT(shown, HasSubstr("\n  0  hidden    NVIDIA"));
  EXPECT_THAT(shown, HasSubstr("\n  1  0         NVIDIA"));
  EXPECT_THAT(shown, HasSubstr("CUDA_VISIBLE_DEVICES=\"1\" hides 1 GPU.\n"));

  const Json found = document("nvlink");
  EXPECT_EQ(found.at("cuda_visible_devices"), "1");
  EXPECT_EQ(found.at("gpus")[0].at("cuda_index"), nullptr);
  EXPECT_EQ(found.at("gpus")[1].at("cuda_index"), 0);
}

TEST_F(Devices, NcclNeedsAUsableGpuAndBothModules) {
  ::setenv("FAKE_NVML", "nvlink", 1);
  EXPECT_THAT(beside({}, "nccl").at("note").get<std::string>(), HasSubstr("libpw_torch.so is not beside"));
  EXPECT_THAT(beside({"libpw_torch.so"}, "nccl").at("note").get<std::string>(), HasSubstr("libpw_cuda.so is not beside"));
  const std::vector<std::string> all{"libpw_torch.so", "libpw_cuda.so"};
  const Json two = beside(all, "nccl");
  EXPECT_EQ(two.at("available"), true);
  EXPECT_THAT(two.at("note").get<std::string>(), HasSubstr("2 GPUs, one per rank"));

  ::setenv("FAKE_NVML", "lost", 1);  // one of two
  const Json one = beside(all, "nccl");
  EXPECT_EQ(one.at("available"), true);
  EXPECT_THAT(one.at("note").get<std::string>(), HasSubstr("1 GPU; several ranks would share it"));
  ::setenv("CUDA_VISIBLE_DEVICES", "1", 1);
  EXPECT_THAT(beside(all, "nccl").at("note").get<std::string>(), HasSubstr("no GPU here can be used"));

  ::setenv("CUDA_VISIBLE_DEVICES", "", 1);
  const Json hidden = beside(all, "nccl");
  EXPECT_EQ(hidden.at("available"), false);
  EXPECT_THAT(hidden.at("note").get<std::string>(), HasSubstr("CUDA_VISIBLE_DEVICES=\"\" hides every GPU"));
}

TEST_F(Devices, UcxAndGlooNeedTheirModulesOnly) {
  ::setenv("FAKE_NVML", "none", 1);
  const std::vector<std::string> modules[] = {{}, {"libpw_ucx.so"}, {"libpw_torch.so"}, {"libpw_torch.so", "libpw_ucx.so"}};
  for (const auto& list : modules) {
    const bool torch = list.size() == 2 || (list.size() == 1 && list[0] == "libpw_torch.so"), ucx = list.size() == 2;
    SCOPED_TRACE(testing::PrintToString(list));
    EXPECT_EQ(beside(list, "gloo").at("available"), torch);
    EXPECT_EQ(beside(list, "ucx").at("available"), ucx);
  }
  EXPECT_THAT(beside({"libpw_torch.so"}, "ucx").at("note").get<std::string>(), HasSubstr("libpw_ucx.so is not beside"));
}

class Measured : public Devices {
 protected:
  Measured() {
    for (const char* folder : {"bin", "lib"}) std::filesystem::create_directories(files_.file(folder));
    std::filesystem::copy_file(PIPEWRIGHT, files_.file("bin/pipewright"));
    std::filesystem::copy_file(FAKE_CUDA_MODULE, files_.file("lib/libpw_cuda.so"));
  }

  /// What a copy of the program says that has the fake CUDA module beside it.
  Outcome measure(const char* machine, const std::string& options = "") const {
    ::setenv("FAKE_NVML", machine, 1);
    const std::string out = files_.file("out"), err = files_.file("err");
    const int status = std::system((files_.file("bin/pipewright") + " devices --measure " + options + " > " + out + " 2> " + err).c_str());
    return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, contentOf(out), contentOf(err)};
  }

 private:
  Folder files_;
};

TEST_F(Measured, RatesAreATable) {
  const Outcome outcome = measure("nvlink");
  EXPECT_EQ(outcome.status, 0);
  EXPECT_EQ(outcome.err, "");
  EXPECT_THAT(outcome.out, HasSubstr("\nGPU           bf16           TF32       float32       memory  from host    to host   launch\n"
                                     "  0  700.0 TFLOP/s  400.0 TFLOP/s  50.0 TFLOP/s  3000.0 GB/s  55.2 GB/s  54.0 GB/s  2.10 µs\n"
                                     "  1  350.0 TFLOP/s  200.0 TFLOP/s  25.0 TFLOP/s  1500.0 GB/s  27.6 GB/s  27.0 GB/s  4.20 µs\n"
                                     "Measured: "));
  EXPECT_THAT(outcome.out, HasSubstr("\nfrom \\ to  GPU 0                GPU 1\n"
                                     "GPU 0      –                    150.5 GB/s, 3.10 µs\n"
                                     "GPU 1      140.0 GB/s, 3.00 µs  –\n"
                                     "Measured: large copies"));
  EXPECT_THAT(text("nvlink"), Not(HasSubstr("Measured"))) << "it was not requested";
}

TEST_F(Measured, RatesAreInTheDocumentByTheNumberOfCuda) {
  ::setenv("CUDA_VISIBLE_DEVICES", "2,0", 1);
  const Json found = Json::parse(measure("switch", "--json").out);
  EXPECT_EQ(found.at("gpus")[0].at("measured").at("launch_ns"), 4'200) << "CUDA's GPU 1";
  EXPECT_EQ(found.at("gpus")[1].at("measured"), nullptr) << "hidden";
  EXPECT_EQ(found.at("gpus")[2].at("measured"), Json({{"bf16_flops_per_s", 700.04e12},
                                                      {"tf32_flops_per_s", 400e12},
                                                      {"float32_flops_per_s", 50e12},
                                                      {"memory_bytes_per_s", 3000e9},
                                                      {"host_to_device_bytes_per_s", 55.25e9},
                                                      {"device_to_host_bytes_per_s", 54e9},
                                                      {"launch_ns", 2'100}}));
  ::unsetenv("CUDA_VISIBLE_DEVICES");
  EXPECT_FALSE(document("switch").at("gpus")[0].contains("measured"));
}

TEST_F(Measured, ProgressIsOnStderr) {
  const Outcome outcome = measure("nvlink", "--json --progress json");
  EXPECT_TRUE(Json::accept(outcome.out));
  EXPECT_THAT(outcome.err, HasSubstr(R"({"task":"measure","done":0,"all":4,"note":"GPU 0"})"));
  EXPECT_THAT(outcome.err, HasSubstr(R"("done":4,"all":4)"));
  EXPECT_EQ(Json::parse(outcome.out).at("links")[0].at("measured"),
            Json({{"bytes_per_s", 150.5e9}, {"latency_ns", 3'100}, {"back_bytes_per_s", 140e9}, {"back_latency_ns", 3'000}}));
}

TEST_F(Measured, IsASentenceWhereItCannotBe) {
  const std::pair<const char*, const char*> machines[] = {{"none", "--measure needs a GPU. NVIDIA's driver 580.65.06 finds no GPU"},
                                                          {"uncut", "MIG mode without an instance"}};
  for (const auto& [machine, words] : machines) {
    const Outcome outcome = measure(machine);
    EXPECT_EQ(outcome.status, 2) << machine;
    EXPECT_EQ(outcome.out, "") << machine;
    EXPECT_THAT(outcome.err, HasSubstr(words));
  }
  const Outcome failed = measure("switch");  // the third of its GPUs
  EXPECT_EQ(failed.status, 1);
  EXPECT_EQ(failed.out, "");
  EXPECT_EQ(failed.err, "pipewright: The GPU could not multiply matrices: out of memory; end what else uses it.\n");
  EXPECT_EQ(measure("nvlink", "--progress loud").status, 2);
}

/// Ranks of a plan that names none.
TEST_F(Devices, ArePlannedForWhereThereAreSeveralGpus) {
  const auto ranks = [](const char* machine) {
    ::setenv("FAKE_NVML", machine, 1);
    const Outcome outcome = call({"plan", PW_SOURCE_DIR "/resources/models/gpt_small.pt2", "--microbatches", "4", "--json", "--cluster",
                                  PW_SOURCE_DIR "/resources/clusters/h100-nvlink.json"});
    EXPECT_EQ(outcome.status, 0) << outcome.err;
    return outcome.status == 0 ? Json::parse(outcome.out).at("world_size").get<int>() : 0;
  };
  EXPECT_EQ(ranks("nvlink"), 2);
  EXPECT_EQ(ranks("switch"), 3);
  ::setenv("CUDA_VISIBLE_DEVICES", "0,2", 1);
  EXPECT_EQ(ranks("switch"), 2) << "one is hidden";
  ::unsetenv("CUDA_VISIBLE_DEVICES");
  const int cores = ranks("none");
  EXPECT_EQ(ranks("lost"), cores) << "one GPU is left";
  EXPECT_EQ(ranks("mig"), cores);
}

TEST(DevicesOfThisMachine, AreListedWhateverItHas) {
  const Outcome outcome = call({"devices", "--json"});
  EXPECT_EQ(outcome.status, 0);
  EXPECT_EQ(outcome.err, "");
  const Json found = Json::parse(outcome.out);
  EXPECT_EQ(found.at("gpus").empty(), !found.at("why_no_gpus").get<std::string>().empty());
  const std::size_t count = found.at("gpus").size();
  EXPECT_EQ(found.at("links").size(), count * (count - (count > 0 ? 1 : 0)) / 2);
}

TEST(DevicesCall, TakesNoArguments) { EXPECT_EQ(call({"devices", "gpu0"}).status, 2); }

}  // namespace
}  // namespace pw::test
