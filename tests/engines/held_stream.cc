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

// A question may be answered either way.
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
