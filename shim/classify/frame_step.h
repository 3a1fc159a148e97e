#ifndef SHIM_CLASSIFY_FRAME_STEP_H_
#define SHIM_CLASSIFY_FRAME_STEP_H_

#include <cstdint>

namespace fineserve::shim {

// The way from a frame to its caller's, in the forms that compilers emit for
// x86-64 (System V ABI 1.0, 3.7 "Stack Unwind Algorithm"; the table itself:
// DWARF 5, 6.4, in the dialect of LSB 5.0, 10.6 "Exception Frames"). All counts
// are of 8-byte words.
//
// The canonical frame address, CFA, is rsp as it was before the call: it is
// `cfa_words` above rsp or rbp. The return address is one word below it; the
// caller's rbp is unchanged, or is `rbp_words` below it.
//
// On other processors every frame is unusual.
struct FrameStep {
  enum class Kind : uint8_t {
    kUnusual,  // needs a full unwinder: a signal's frame, a realigned one, …
    kLast,     // the table says there is no caller: a thread's first frame
    kCaller,
  };
  Kind kind = Kind::kUnusual;
  bool from_rbp = false;   // else from rsp
  uint32_t cfa_words = 0;  // at most kMostCfaWords
  uint32_t rbp_words = 0;  // at most kMostRbpWords; 0: unchanged
};

inline constexpr uint32_t kMostCfaWords = (1 << 18) - 1;  // frames of 2 MiB
inline constexpr uint32_t kMostRbpWords = (1 << 5) - 1;

// Reads the unwind table of the module that holds `pc`, an address within the
// instruction that a frame is at (for a caller: its return address less 1).
// Takes no lock, allocates nothing, keeps errno. The module must stay loaded
// during the call; a module with code on the calling thread's stack does.
FrameStep ReadFrameStep(uint64_t pc);

}  // namespace fineserve::shim

#endif  // SHIM_CLASSIFY_FRAME_STEP_H_
