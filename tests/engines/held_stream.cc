#include "tests/engines/held_stream.h"

#include <unistd.h>

#include <atomic>

#include "tests/engines/device_memory.h"

namespace stock_engine {
namespace {

using fineserve::driver::CUDA_ERROR_NOT_READY;

// Release in Resume, acquire in HoldUp.
std::atomic<bool> g_held{false};
fineserve::driver::CUevent g_behind = nullptr;

void HoldUp(void*) {
  while (g_held.load(std::memory_order_acquire)) usleep(100);
}

// A query may also answer that the work is not done.
void Check(CUresult answer, const char* function) {
  if (answer != CUDA_ERROR_NOT_READY) CheckCuda(answer, function);
}

}  // namespace

void HeldStream::Stall() {
  if (g_behind == nullptr) {
    STOCK_ENGINE_CALL(cuEventCreate, &g_behind,
                      fineserve::driver::CU_EVENT_DISABLE_TIMING);
  }
  g_held.store(true, std::memory_order_relaxed);
  STOCK_ENGINE_CALL(cuLaunchHostFunc, nullptr, HoldUp, nullptr);
  STOCK_ENGINE_CALL(cuEventRecord, g_behind, nullptr);
}

void HeldStream::Resume() { g_held.store(false, std::memory_order_release); }

void HeldStream::CaptureAndWait() {
  using namespace fineserve::driver;  // NOLINT: this function calls CUDA
  CUstream captured, other;
  CUdeviceptr memory;
  CUgraph graph;
  STOCK_ENGINE_CALL(cuStreamCreate, &captured, CU_STREAM_NON_BLOCKING);
  STOCK_ENGINE_CALL(cuStreamCreate, &other, CU_STREAM_NON_BLOCKING);
  STOCK_ENGINE_CALL(cuMemAlloc_v2, &memory, 4096);
  STOCK_ENGINE_CALL(cuStreamBeginCapture_v2, captured,
                    CU_STREAM_CAPTURE_MODE_GLOBAL);
  STOCK_ENGINE_CALL(cuMemsetD8Async, memory, 1, 4096, captured);
  STOCK_ENGINE_CALL(cuStreamSynchronize, other);
  STOCK_ENGINE_CALL(cuStreamEndCapture, captured, &graph);
  STOCK_ENGINE_CALL(cuGraphDestroy, graph);
}

bool HeldStream::Wait(const std::string& what, bool ask) {
  if (what == "stream" && ask) {
    Check(fineserve::driver::cuStreamQuery(nullptr), "cuStreamQuery");
  } else if (what == "stream") {
    STOCK_ENGINE_CALL(cuStreamSynchronize, nullptr);
  } else if (what == "event" && ask) {
    Check(fineserve::driver::cuEventQuery(g_behind), "cuEventQuery");
  } else if (what == "event") {
    STOCK_ENGINE_CALL(cuEventSynchronize, g_behind);
  } else if (what == "context" && !ask) {
    STOCK_ENGINE_CALL(cuCtxSynchronize);
  } else {
    return false;
  }
  return true;
}

}  // namespace stock_engine
