#include "backends/cuda/partition.h"

#include <cuda.h>
#include <cudaTypedefs.h>
#include <cuda_runtime_api.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "schedules/error.h"

namespace pw {
namespace {

/// What the driver offers for green contexts (CUDA Driver API, "Green Contexts"), looked up by name: libcuda comes with the driver, and
/// machines that build have none.
class Driver {
 public:
  Driver() {
    find("cuDeviceGet", 2000, device);
    find("cuDeviceGetDevResource", 12040, resource);
    find("cuDevSmResourceSplitByCount", 12040, split);
    find("cuDevResourceGenerateDesc", 12040, describe);
    find("cuGreenCtxCreate", 12040, create);
    find("cuGreenCtxStreamCreate", 12050, makeStream);
    find("cuGetErrorString", 6000, errorString);
  }

  void require(CUresult result, const std::string& what) const {
    if (result == CUDA_SUCCESS) return;
    const char* text = nullptr;
    const bool known = errorString(result, &text) == CUDA_SUCCESS && text != nullptr;
    throw Error("NVIDIA's driver could not " + what + ": " +
                (known ? std::string(text) : "error " + std::to_string(static_cast<int>(result))) + ".");
  }

  PFN_cuDeviceGet_v2000 device = nullptr;
  PFN_cuDeviceGetDevResource_v12040 resource = nullptr;
  PFN_cuDevSmResourceSplitByCount_v12040 split = nullptr;
  PFN_cuDevResourceGenerateDesc_v12040 describe = nullptr;
  PFN_cuGreenCtxCreate_v12040 create = nullptr;
  PFN_cuGreenCtxStreamCreate_v12050 makeStream = nullptr;
  PFN_cuGetErrorString_v6000 errorString = nullptr;

 private:
  /// `since`: the CUDA version of the function's interface.
  template <class Function>
  static void find(const char* name, unsigned since, Function& function) {
    void* address = nullptr;
    cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
    const cudaError_t status = cudaGetDriverEntryPointByVersion(name, &address, since, cudaEnableDefault, &found);
    if (status != cudaSuccess) static_cast<void>(cudaGetLastError());  // so that the next check does not report it
    if (status != cudaSuccess || found != cudaDriverEntryPointSuccess || address == nullptr) {
      throw Error(std::string("NVIDIA's driver has no ") + name +
                  "; parts of a GPU need one for CUDA 12.5 or later, see pipewright devices.");
    }
    function = reinterpret_cast<Function>(address);
  }
};

/// Cuts the multiprocessors into so many equal parts. The driver may make fewer than their numbers allow, as a part must fit the GPU's own
/// groups: then smaller ones are tried.
std::vector<CUdevResource> equalParts(const Driver& driver, CUdevResource& all, int parts) {
  const int total = static_cast<int>(all.sm.smCount), least = static_cast<int>(all.sm.minSmPartitionSize);
  const int group = std::max(1, static_cast<int>(all.sm.smCoscheduledAlignment));
  const auto wanted = static_cast<unsigned>(parts);
  for (int each = multiprocessorsOfAPart(total, parts, least, group); each >= std::max(1, least); each -= group) {
    unsigned made = 0;
    driver.require(driver.split(nullptr, &made, &all, nullptr, 0, static_cast<unsigned>(each)), "tell how a GPU can be cut");
    if (made < wanted) continue;
    std::vector<CUdevResource> result(wanted);
    made = wanted;
    driver.require(driver.split(result.data(), &made, &all, nullptr, 0, static_cast<unsigned>(each)), "cut a GPU");
    if (made == wanted) return result;
  }
  throw Error("The GPU's " + std::to_string(total) + " multiprocessors cannot make " + std::to_string(parts) + " equal parts: each needs " +
              std::to_string(least) + " or more, in groups of " + std::to_string(group) + "; share it by fewer ranks.");
}

}  // namespace

SmPartition partOfGpu(int device, GpuPart part) {
  if (part.index < 0 || part.index >= part.of) {
    throw Error("A GPU has no part " + std::to_string(part.index) + " of " + std::to_string(part.of) + "; this is a bug in Pipewright.");
  }
  // The driver lets contexts grow up to this share, so parts would not be disjoint (cuda.h, "Green Contexts").
  const char* const share = std::getenv("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE");
  if (share != nullptr && std::strtod(share, nullptr) != 100) {
    throw Error("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=" + std::string(share) +
                " divides the GPU already; unset it to give each rank multiprocessors of its own.");
  }
  if (const cudaError_t status = cudaSetDevice(device); status != cudaSuccess) {  // starts the primary context, which the part belongs to
    throw Error("GPU " + std::to_string(device) + " could not be started: " + cudaGetErrorString(status) + "; see nvidia-smi.");
  }
  const Driver driver;
  CUdevice handle = 0;
  driver.require(driver.device(&handle, device), "find GPU " + std::to_string(device));
  CUdevResource all{};
  driver.require(driver.resource(handle, &all, CU_DEV_RESOURCE_TYPE_SM), "tell a GPU's multiprocessors");
  CUdevResource own = equalParts(driver, all, part.of)[static_cast<std::size_t>(part.index)];
  CUdevResourceDesc description = nullptr;
  driver.require(driver.describe(&description, &own, 1), "describe a part of a GPU");
  CUgreenCtx context = nullptr;
  driver.require(driver.create(&context, description, handle, CU_GREEN_CTX_DEFAULT_STREAM), "make a green context");
  CUstream stream = nullptr;
  driver.require(driver.makeStream(&stream, context, CU_STREAM_NON_BLOCKING, 0), "make a stream on a part of a GPU");
  return {stream, static_cast<int>(own.sm.smCount)};
}

}  // namespace pw
