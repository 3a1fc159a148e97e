#include "shim/classify/stack.h"

#include <unwind.h>

#include <atomic>

#include "shim/classify/code_names.h"
#include "shim/classify/frame_step.h"

namespace fineserve::shim {
namespace {

// Steps by address. Every place is one word, so that threads share them without
// a lock: a reader finds a whole step for its address, or none. (If threads
// write different addresses to one place, one step is lost and is read again
// later.)
//
// A step holds until the module of its address is unloaded. No stack holds an
// address of an unloaded module, so a step that an interrupted thread stores
// late belongs to a module that is still loaded; the first reader that sees a
// new count of unloads clears older steps.
class StepTable {
 public:
  constexpr StepTable() = default;

  // Must be called once before the steps of a stack are read.
  void ClearIfUnloaded(uint64_t unloads) {
    // Acquire: pairs with the release below; a thread that reads the new count
    // does not find steps that were kept under the old one.
    if (unloads_.load(std::memory_order_acquire) == unloads) return;
    for (auto& place : places_) place.store(0, std::memory_order_relaxed);
    unloads_.store(unloads, std::memory_order_release);
  }

  FrameStep Get(uint64_t pc) {
    const uint64_t first =
        (pc ^ pc >> kBucketBits ^ pc >> 2 * kBucketBits) % kBuckets * kWays;
    const uint64_t tag = pc >> kBucketBits;
    for (uint64_t way = 0; way < kWays; ++way) {
      const uint64_t word =
          places_[first + way].load(std::memory_order_relaxed);
      if (word == 0) return Learn(pc, &places_[first + way]);
      if (word >> kStepBits == tag) return Unpack(word);
    }
    return Learn(pc, &places_[first + tag % kWays]);
  }

 private:
  // From the top: tag 38, kind 2, from_rbp 1, rbp_words 5, cfa_words 18. An
  // address's bucket and tag identify all of its 47 bits.
  static constexpr int kStepBits = 26;
  static constexpr int kBucketBits = 9;
  static constexpr uint64_t kBuckets = 1 << kBucketBits;
  static constexpr uint64_t kWays = 4;  // heuristic: 2,048 places, 16 KiB
  static_assert(kMostCfaWords < 1 << 18 && kMostRbpWords < 1 << 5);

  static FrameStep Learn(uint64_t pc, std::atomic<uint64_t>* place) {
    const FrameStep step = ReadFrameStep(pc);
    if (pc >> 47 == 0) place->store(Pack(pc, step), std::memory_order_relaxed);
    return step;
  }

  static uint64_t Pack(uint64_t pc, const FrameStep& step) {
    // Adds 1, so that a used place is never zero.
    const uint64_t kind = static_cast<uint64_t>(step.kind) + 1;
    return pc >> kBucketBits << kStepBits | kind << 24 |
           uint64_t{step.from_rbp} << 23 | uint64_t{step.rbp_words} << 18 |
           step.cfa_words;
  }

  static FrameStep Unpack(uint64_t word) {
    FrameStep step;
    step.kind = static_cast<FrameStep::Kind>((word >> 24 & 3) - 1);
    step.from_rbp = (word >> 23 & 1) != 0;
    step.rbp_words = word >> 18 & kMostRbpWords;
    step.cfa_words = word & kMostCfaWords;
    return step;
  }

  std::atomic<uint64_t> unloads_{0};
  std::atomic<uint64_t> places_[kBuckets * kWays] = {};
};

constinit StepTable g_steps;
constinit std::atomic<bool> g_unwind_only{false};

// The registers that a step needs.
struct Registers {
  uint64_t pc;
  uint64_t rsp;
  uint64_t rbp;
};

// Reads the registers of the function into which this one is inlined, at one of
// that function's instructions. False on a processor for which no step is known
// (frame_step.h).
[[gnu::always_inline]] inline bool ReadRegisters(Registers* here) {
#if defined(__x86_64__)
  asm volatile(
      "leaq (%%rip), %0\n\t"
      "movq %%rsp, %1\n\t"
      "movq %%rbp, %2"
      : "=&r"(here->pc), "=&r"(here->rsp), "=r"(here->rbp));
  return true;
#else
  return false;
#endif
}

// Not checked by ASan, which may still have poisoned the word's place for an
// earlier object.
[[gnu::no_sanitize_address]] uint64_t LoadWord(uint64_t address) {
  return *reinterpret_cast<const volatile uint64_t*>(address);
}

// Moves to the caller's frame. False if that is not further up the stack.
bool Follow(const FrameStep& step, Registers* at) {
  const uint64_t cfa =
      (step.from_rbp ? at->rbp : at->rsp) + uint64_t{step.cfa_words} * 8;
  if (cfa <= at->rsp || cfa % 8 != 0) return false;
  if (step.rbp_words != 0) at->rbp = LoadWord(cfa - step.rbp_words * 8);
  at->pc = LoadWord(cfa - 8);
  at->rsp = cfa;
  return true;
}

// Walks the stack by steps. Returns 0 if a frame is unusual or `caller` is not
// found.
uint16_t WalkSteps(Registers at, uint64_t caller, uint64_t* frames,
                   uint16_t capacity) {
  constexpr int kMostOwnFrames = 32;  // ours above `caller` are under ten
  g_steps.ClearIfUnloaded(UnloadCount());
  uint16_t count = 0;
  FrameStep step = g_steps.Get(at.pc);
  for (int own = 0; step.kind == FrameStep::Kind::kCaller;) {
    if (!Follow(step, &at)) return 0;
    if (at.pc == 0) return count;
    if (count > 0 || at.pc == caller) {
      frames[count++] = at.pc;
    } else if (++own == kMostOwnFrames) {
      return 0;
    }
    if (count == capacity) return count;
    // Looks up at.pc - 1, because a call may be the last instruction of its
    // function.
    step = g_steps.Get(at.pc - 1);
  }
  return step.kind == FrameStep::Kind::kLast ? count : 0;
}

// Collects instruction pointers, starting at `caller`.
struct Capture {
  uint64_t caller;
  uint64_t* frames;
  uint16_t capacity;
  uint16_t count = 0;

  static _Unwind_Reason_Code Visit(_Unwind_Context* context, void* self) {
    auto* c = static_cast<Capture*>(self);
    const uint64_t ip = _Unwind_GetIP(context);
    if (c->count == 0 && ip != c->caller) return _URC_NO_REASON;
    if (c->count == c->capacity || ip == 0) return _URC_END_OF_STACK;
    c->frames[c->count++] = ip;
    return _URC_NO_REASON;
  }
};

}  // namespace

uint16_t UnwindStack(const void* caller, uint64_t* frames, uint16_t capacity) {
  Capture capture{reinterpret_cast<uint64_t>(caller), frames, capacity};
  _Unwind_Backtrace(&Capture::Visit, &capture);
  if (capture.count > 0) return capture.count;
  // Unwinding failed before it left the shim, but the caller is known anyway.
  frames[0] = capture.caller;
  return 1;
}

uint16_t CaptureStack(const void* caller, uint64_t* frames, uint16_t capacity) {
  Registers here = {};
  if (!g_unwind_only.load(std::memory_order_relaxed) && ReadRegisters(&here)) {
    const uint16_t count =
        WalkSteps(here, reinterpret_cast<uint64_t>(caller), frames, capacity);
    if (count > 0) return count;
  }
  return UnwindStack(caller, frames, capacity);
}

void UnwindOnlyAfterFork() {
  g_unwind_only.store(true, std::memory_order_relaxed);
}

}  // namespace fineserve::shim
