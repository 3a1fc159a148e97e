// The calls that pass the gate. Programs that look them up by dlsym or
// cuGetProcAddress get them only in a process that may be evicted. Programs
// that are linked to them are bound before this is known, so each symbol is
// exported. It is one jump to the target of its slot, which is the driver's own
// function in a process that cannot be evicted.

#include "shim/hooks/gated_hooks.h"

#include <pthread.h>

#include "kernels/driver/prototypes.h"
#include "shim/gate/gate.h"
#include "shim/host/environment.h"
#include "shim/host/real_driver.h"
#include "shim/redirect/captures.h"

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

// The target of each exported symbol. Initially null, which means FirstCall.
extern "C" void* fineserve_gated_slots[];

// The calls that begin a capture of their first argument, a stream, or end it.
enum class Captures { kNothing, kBegins, kEnds, kEndsWithItsStream };
template <auto Entry>
constexpr Captures kCaptures = Captures::kNothing;
#define FINESERVE_CAPTURES(symbol, what) \
  template <>                            \
  constexpr Captures kCaptures<&EntryPoints::symbol> = Captures::what;
FINESERVE_CAPTURES(cuStreamBeginCapture, kBegins)
FINESERVE_CAPTURES(cuStreamBeginCapture_ptsz, kBegins)
FINESERVE_CAPTURES(cuStreamBeginCapture_v2, kBegins)
FINESERVE_CAPTURES(cuStreamBeginCapture_v2_ptsz, kBegins)
FINESERVE_CAPTURES(cuStreamBeginCaptureToGraph, kBegins)
FINESERVE_CAPTURES(cuStreamBeginCaptureToGraph_ptsz, kBegins)
FINESERVE_CAPTURES(cuStreamEndCapture, kEnds)
FINESERVE_CAPTURES(cuStreamEndCapture_ptsz, kEnds)
FINESERVE_CAPTURES(cuStreamDestroy_v2, kEndsWithItsStream)
#undef FINESERVE_CAPTURES

template <typename Member>
struct Gated;

template <typename... Arguments>
struct Gated<CUresult (*EntryPoints::*)(Arguments...)> {
  // Resolves the target at the first call. A process that has no driver yet
  // keeps no target.
  template <auto Entry, GatedCall Call>
  static CUresult FirstCall(Arguments... arguments) {
    const Driver* real = RealDriver();
    if (real == nullptr) return driver::CUDA_ERROR_NOT_INITIALIZED;
    const auto function = real->entry.*Entry;
    if (function == nullptr) return driver::CUDA_ERROR_NOT_SUPPORTED;
    const auto target = IsEvictable() ? &Pass<Entry> : function;
    // Release: makes the resolved driver visible to Pass. Pairs with the
    // acquire in the exported symbol. All threads write the same value.
    __atomic_store_n(&fineserve_gated_slots[static_cast<size_t>(Call)],
                     reinterpret_cast<void*>(target), __ATOMIC_RELEASE);
    return target(arguments...);
  }

  // Handed out only once there is a driver that has the function.
  template <auto Entry>
  static CUresult Pass(Arguments... arguments) {
    if (!g_gate.TryEnter()) [[unlikely]]
      return PassSlowly<Entry>(arguments...);
    const CUresult result = Call<Entry>(arguments...);
    g_gate.Leave();
    return result;
  }

  // Out of line, so that the path through the open gate reserves no register
  // for it.
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
    if constexpr (kCaptures<Entry> == Captures::kNothing) {
      return call();
    } else {
      return NoteCapture<kCaptures<Entry>>(real->entry, call, arguments...);
    }
  }

  template <Captures What, typename Call, typename... Others>
  static CUresult NoteCapture(const EntryPoints& entry, const Call& call,
                              driver::CUstream stream, Others...) {
    if constexpr (What == Captures::kEndsWithItsStream)
      g_gate.CaptureEnds(stream);
    const CUresult result = call();
    if constexpr (What == Captures::kBegins) {
      if (result == driver::CUDA_SUCCESS) g_gate.CaptureBegins(stream);
    } else if constexpr (What == Captures::kEnds) {
      // The driver refuses a call from another thread, or for a stream other
      // than the one in which the capture began; the capture then goes on.
      if (!IsCapturing(entry, stream)) g_gate.CaptureEnds(stream);
    }
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

// The exported symbols. A tail jump keeps all arguments, so the same code
// serves every signature. It loads its slot with acquire order, which on x86-64
// every load has.
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
