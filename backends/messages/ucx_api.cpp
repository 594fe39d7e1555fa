#include "backends/messages/ucx_backend.h"
#include "backends/messages/ucx_worker.h"

extern "C" __attribute__((visibility("default"))) const void* pipewrightUcxBackend() {
  static const pw::UcxBackend backend{&pw::newUcxCommunicator, &pw::newUcxLink};
  return &backend;
}
