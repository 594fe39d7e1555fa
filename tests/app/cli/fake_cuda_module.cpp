// Stands in for the CUDA module. Its measurements: GPU 0 has these rates, GPU 1 half of them, GPU 2 fails. Its device is the host, which
// keeps the work of a recording and does it at each launch; memory is the host's, so that messages go over its communicator.
#include <functional>
#include <memory>
#include <string>

#include "backends/cuda/backend.h"
#include "schedules/error.h"

namespace {

pw::GpuRates rates(int device) {
  if (device > 1) throw pw::Error("The GPU could not multiply matrices: out of memory; end what else uses it.");
  const double part = device == 0 ? 1 : 0.5;
  const pw::Ns launch = device == 0 ? pw::Ns{2'100} : pw::Ns{4'200};
  return {700.04e12 * part, 400e12 * part, 50e12 * part, 3000e9 * part, 55.25e9 * part, 54e9 * part, launch};
}

pw::GpuLinkRate linkRate(int from, int to) { return {(from < to ? 150.5e9 : 140e9), 3'000 + pw::Ns{100} * to}; }

const pw::Device& hostThatRecords() {
  static const pw::Device device = [] {
    pw::Device host = pw::hostDevice();
    host.record = [](const std::function<void()>& work, std::shared_ptr<void>&) -> std::shared_ptr<void> {
      return std::make_shared<std::function<void()>>(work);
    };
    host.launch = [](const std::shared_ptr<void>& recording) { (*static_cast<std::function<void()>*>(recording.get()))(); };
    host.spin = [](pw::Ns duration) {
      for (const pw::Ns end = pw::monotonicNow() + duration; pw::monotonicNow() < end;) {}
    };
    return host;
  }();
  return device;
}

pw::DeviceLinks links(pw::Communicator&, std::chrono::milliseconds) {
  pw::DeviceLinks none;
  none.holds = [](const void*) { return false; };
  none.forget = none.abort = [] {};
  return none;
}

}  // namespace

extern "C" __attribute__((visibility("default"))) const void* pipewrightCudaBackend() {
  static const pw::CudaBackend backend{.deviceCount = [] { return 3; },
                                       .identity = [](int device) { return "GPU " + std::to_string(device); },
                                       .prepareProcess = [](int, bool, pw::GpuPart) { return std::string(); },
                                       .multiprocessors = [] { return 132; },
                                       .device = &hostThatRecords,
                                       .ncclLinks = &links,
                                       .measureRates = &rates,
                                       .measureLink = &linkRate,
                                       .versions = nullptr};
  return &backend;
}
