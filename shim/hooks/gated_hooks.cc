// The calls that pass the gate. Programs that ask for them by dlsym or
// cuGetProcAddress get them only in a process that may be evicted. Programs
// that are linked to them are bound before this is known, so each symbol is
// exported: one jump to where its slot points, which in any other process is
// the driver's own function.

#include "shim/hooks/gated_hooks.h"

#include <pthread.h>

#include "kernels/driver/prototypes.h"
#include "shim/host/environment.h"
#include "shim/host/original.h"
#include "shim/host/real_driver.h"
#include "shim/host/warn.h"
#include "shim/weights/gate.h"

namespace fineserve::shim {
namespace {

using driver::CUresult;
using driver::EntryPoints;

std::atomic<bool> g_evictable{false};
pthread_once_t g_decided = PTHREAD_ONCE_INIT;

void Decide() {
  g_evictable.store(!Disabled() && EvictionWanted() && g_gate.Prepare(),
                    std::memory_order_relaxed);
}

// The target of each exported symbol; null, in the beginning, means FirstCall.
extern "C" void* fineserve_gated_slots[];

template <auto Entry>
constexpr bool kBeginsCapture = false;
template <>
constexpr bool kBeginsCapture<&EntryPoints::cuStreamBeginCapture_v2> = true;
template <>
constexpr bool kBeginsCapture<&EntryPoints::cuStreamBeginCapture_v2_ptsz> =
    true;
template <>
constexpr bool kBeginsCapture<&EntryPoints::cuStreamBeginCaptureToGraph> = true;
template <>
constexpr bool kBeginsCapture<&EntryPoints::cuStreamBeginCaptureToGraph_ptsz> =
    true;

// The function that says whether a stream is captured, of the same variant as
// one that ends a capture; null for any other.
template <auto Entry>
constexpr CUresult (*EntryPoints::*kAsksBeforeEnd)(
    driver::CUstream, driver::CUstreamCaptureStatus*) = nullptr;
template <>
constexpr auto kAsksBeforeEnd<&EntryPoints::cuStreamEndCapture> =
    &EntryPoints::cuStreamIsCapturing;
template <>
constexpr auto kAsksBeforeEnd<&EntryPoints::cuStreamEndCapture_ptsz> =
    &EntryPoints::cuStreamIsCapturing_ptsz;

template <typename Member>
struct Gated;

template <typename... Arguments>
struct Gated<CUresult (*EntryPoints::*)(Arguments...)> {
  // A process that has no driver yet keeps no answer.
  template <auto Entry, GatedCall Call>
  static CUresult FirstCall(Arguments... arguments) {
    const Driver* real = RealDriver();
    if (real == nullptr) return driver::CUDA_ERROR_NOT_INITIALIZED;
    const auto function = real->entry.*Entry;
    if (function == nullptr) return driver::CUDA_ERROR_NOT_SUPPORTED;
    const auto target = IsEvictable() ? &Pass<Entry> : function;
    // Release: Pass reads the driver that was resolved before. Pairs with the
    // acquire in the exported symbol. All threads write the same.
    __atomic_store_n(&fineserve_gated_slots[static_cast<size_t>(Call)],
                     reinterpret_cast<void*>(target), __ATOMIC_RELEASE);
    return target(arguments...);
  }

  // Handed out once there is a driver that has the function.
  template <auto Entry>
  static CUresult Pass(Arguments... arguments) {
    if (!g_gate.TryEnter()) [[unlikely]]
      return PassSlowly<Entry>(arguments...);
    const CUresult result = Call<Entry>(arguments...);
    g_gate.Leave();
    return result;
  }

  // Apart, so that the way through the open gate keeps no register for it.
  template <auto Entry>
  [[gnu::noinline, gnu::cold]] static CUresult PassSlowly(
      Arguments... arguments) {
    return g_gate.Pass([&] { return Call<Entry>(arguments...); },
                       driver::CUDA_ERROR_DEINITIALIZED);
  }

  template <auto Entry>
  static CUresult Call(Arguments... arguments) {
    const Driver* real = g_resolved_driver.load(std::memory_order_relaxed);
    const auto call = [&] { return (real->entry.*Entry)(arguments...); };
    if constexpr (kBeginsCapture<Entry>) {
      const CUresult result = call();
      if (result == driver::CUDA_SUCCESS) g_gate.CaptureBegins();
      return result;
    } else if constexpr (kAsksBeforeEnd<Entry> != nullptr) {
      return EndCapture<kAsksBeforeEnd<Entry>>(real->entry, call, arguments...);
    } else {
      return call();
    }
  }

  // A call for a stream that is captured, but did not begin that, ends nothing.
  template <auto Ask, typename Call>
  static CUresult EndCapture(const EntryPoints& entry, const Call& call,
                             driver::CUstream stream, driver::CUgraph*) {
    const auto is_captured = [&] {
      auto status = driver::CU_STREAM_CAPTURE_STATUS_NONE;
      CallOptional(entry.*Ask, stream, &status);
      return status != driver::CU_STREAM_CAPTURE_STATUS_NONE;
    };
    const bool was_captured = is_captured();
    const CUresult result = call();
    if (was_captured && !is_captured()) g_gate.CaptureEnds();
    return result;
  }
};

extern "C" {
__attribute__((visibility("hidden"))) void* fineserve_gated_slots[] = {
#define FINESERVE_SLOT(symbol)                                               \
  reinterpret_cast<void*>(&Gated<decltype(&EntryPoints::symbol)>::FirstCall< \
                          &EntryPoints::symbol, GatedCall::k_##symbol>),
    FINESERVE_GATED_CALLS(FINESERVE_SLOT)
#undef FINESERVE_SLOT
};
}

}  // namespace

bool IsEvictable() {
  pthread_once(&g_decided, &Decide);
  return g_evictable.load(std::memory_order_relaxed);
}

void LetPass(const char* name) {
  if (g_gate.kept_open_by() != nullptr) return;
  Warn(
      "this process is not evicted: it asks for a form of %s that is later "
      "than "
      "CUDA %d.%d, which this release knows; install a newer FineServe",
      name, driver::kListedCudaVersion / 1000,
      driver::kListedCudaVersion % 1000 / 10);
  g_gate.KeepOpen(name);
}

void* GatedAddress(GatedCall call) {
  switch (call) {
#define FINESERVE_CASE(symbol)      \
  case GatedCall::k_##symbol:       \
    return reinterpret_cast<void*>( \
        &Gated<decltype(&EntryPoints::symbol)>::Pass<&EntryPoints::symbol>);
    FINESERVE_GATED_CALLS(FINESERVE_CASE)
#undef FINESERVE_CASE
    case GatedCall::kNone:
      break;
  }
  return nullptr;
}

}  // namespace fineserve::shim

// The exported symbols. A tail jump keeps all arguments, so one text serves
// every signature. It acquires its slot, which on x86-64 each load does.
#if defined(__x86_64__)
asm(R"(
    .macro FINESERVE_JUMP_TO_SLOT slot
    endbr64
    jmp     *fineserve_gated_slots+8*\slot(%rip)
    .endm
)");
#elif defined(__aarch64__)
asm(R"(
    .macro FINESERVE_JUMP_TO_SLOT slot
    hint    #34  // bti c
    adrp    x16, fineserve_gated_slots+8*\slot
    add     x16, x16, :lo12:fineserve_gated_slots+8*\slot
    ldar    x16, [x16]
    br      x16
    .endm
)");
#endif
asm(R"(
    .macro FINESERVE_GATED_SYMBOL symbol, slot
    .globl  \symbol
    .type   \symbol, @function
    .p2align 4
\symbol:
    .cfi_startproc
    FINESERVE_JUMP_TO_SLOT \slot
    .cfi_endproc
    .size   \symbol, .-\symbol
    .endm
    .hidden fineserve_gated_slots
    .text
    .set    fineserve_gated_slot, 0
)");
#define FINESERVE_SYMBOL(symbol)            \
  asm("    FINESERVE_GATED_SYMBOL " #symbol \
      ", fineserve_gated_slot\n"            \
      "    .set fineserve_gated_slot, fineserve_gated_slot + 1\n");
FINESERVE_GATED_CALLS(FINESERVE_SYMBOL)
#undef FINESERVE_SYMBOL
