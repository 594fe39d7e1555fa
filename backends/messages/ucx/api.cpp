#include "backends/messages/ucx/backend.h"
#include "backends/messages/ucx/worker.h"

extern "C" __attribute__((visibility("default"))) const void* pipewrightUcxBackend() {
  static const pw::UcxBackend backend{&pw::newUcxCommunicator, &pw::newUcxLink};
  return &backend;
}
