#include "shim/classify/stack.h"

#include <dlfcn.h>
#include <errno.h>
#include <gtest/gtest.h>
#include <malloc.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>

#include <algorithm>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "shim/classify/frame_step.h"

namespace fineserve::shim {
namespace {

constexpr uint16_t kCapacity = 256;

// A stack in an array, because signal handlers must not allocate memory.
struct Frames {
  uint64_t ips[kCapacity];
  uint16_t count = 0;

  using const_iterator = const uint64_t*;  // printed by GoogleTest
  const uint64_t* begin() const { return ips; }
  const uint64_t* end() const { return ips + count; }
  friend bool operator==(const Frames& a, const Frames& b) {
    return std::equal(a.begin(), a.end(), b.begin(), b.end());
  }
};

// The results of CaptureStack and of libgcc for the same stack, from
// CaptureBoth's caller on, because the two captures differ below it.
struct BothStacks {
  Frames ours;
  Frames libgcc;
};

[[gnu::noinline]] BothStacks CaptureBoth() {
  const void* const caller = __builtin_return_address(0);
  BothStacks both;
  both.ours.count = CaptureStack(caller, both.ours.ips, kCapacity);
  both.libgcc.count = UnwindStack(caller, both.libgcc.ips, kCapacity);
  return both;
}

// The stack of the last callback, in a global because signal handlers and C
// callbacks cannot return it otherwise.
BothStacks g_seen;

void ExpectSame(const BothStacks& both, size_t least) {
  EXPECT_TRUE(both.ours == both.libgcc)
      << testing::PrintToString(both.ours)
      << "\nlibgcc: " << testing::PrintToString(both.libgcc);
  EXPECT_GE(both.ours.count, least);
}

// Also expects that libgcc was not needed on architectures where steps are
// known.
void ExpectKnown(const BothStacks& both, size_t least) {
  ExpectSame(both, least);
#if defined(__x86_64__)
  for (uint64_t ip : both.ours) {
    EXPECT_NE(ReadFrameStep(ip - 1).kind, FrameStep::Kind::kUnusual) << ip;
  }
#endif
}

[[gnu::noinline]] BothStacks Recurse(int depth) {
  if (depth == 0) return CaptureBoth();
  BothStacks both = Recurse(depth - 1);
  asm volatile("" ::: "memory");  // keeps the frame: no tail call
  return both;
}

// The function's frame size is known only at run time, so its CFA is relative
// to rbp.
[[gnu::noinline]] BothStacks RecurseWithArrays(int depth, size_t bytes) {
  auto* array = static_cast<volatile char*>(__builtin_alloca(bytes));
  array[0] = 1;
  if (depth == 0) return CaptureBoth();
  BothStacks both = RecurseWithArrays(depth - 1, bytes + 8);
  array[bytes - 1] = 2;
  return both;
}

// The function's locals need a larger alignment than the stack's.
[[gnu::noinline]] BothStacks RecurseRealigned(int depth) {
  alignas(64) volatile char line[64];
  line[0] = 1;
  if (depth == 0) return CaptureBoth();
  BothStacks both = RecurseRealigned(depth - 1);
  line[1] = line[0];
  return both;
}

TEST(StackTest, IsThatOfLibgccAtEveryDepth) {
  for (int depth : {0, 1, 2, 30, 100}) {
    SCOPED_TRACE(depth);
    ExpectKnown(Recurse(depth), depth + 3);
  }
}

TEST(StackTest, FramesOfUnknownSizeAreFollowed) {
  ExpectKnown(RecurseWithArrays(20, 24), 23);
}

TEST(StackTest, RealignedFramesAreFollowed) {
  ExpectKnown(RecurseRealigned(20), 23);
}

TEST(StackTest, BeginsWithTheCallerAndEndsAtTheCapacity) {
  uint64_t frames[4] = {0, 0, 0, 7};
  const BothStacks whole = CaptureBoth();
  const void* const caller = __builtin_return_address(0);
  EXPECT_EQ(CaptureStack(caller, frames, 3), 3);
  EXPECT_EQ(frames[0], reinterpret_cast<uint64_t>(caller));
  EXPECT_EQ(frames[1], whole.ours.ips[2]);
  EXPECT_EQ(frames[2], whole.ours.ips[3]);
  EXPECT_EQ(frames[3], 7u);
}

TEST(StackTest, CallerThatIsNotOnTheStackIsAllThatIsKnown) {
  uint64_t frames[4];
  const int nowhere = 0;
  EXPECT_EQ(CaptureStack(&nowhere, frames, 4), 1);
  EXPECT_EQ(frames[0], reinterpret_cast<uint64_t>(&nowhere));
}

// glibc and libstdc++ are stripped, and qsort's frames are between ours.
TEST(StackTest, FramesOfStrippedLibrariesAreFollowed) {
  int values[] = {3, 1, 2};
  qsort(values, 3, sizeof(int), [](const void*, const void*) {
    g_seen = CaptureBoth();
    return 0;
  });
  ExpectKnown(g_seen, 5);
}

TEST(StackTest, ThreadsEndWithTheirFirstFrame) {
  BothStacks both;
  std::thread([&] { both = Recurse(3); }).join();
  ExpectKnown(both, 6);
}

TEST(StackTest, SignalHandlersStackGoesOnInWhatWasInterrupted) {
  struct sigaction act = {}, old;
  act.sa_handler = [](int) { g_seen = CaptureBoth(); };
  for (int flags : {0, SA_ONSTACK}) {
    SCOPED_TRACE(flags);
    act.sa_flags = flags;
    std::vector<char> room(1 << 16);
    stack_t stack = {};
    stack.ss_sp = room.data();
    stack.ss_size = room.size();
    ASSERT_EQ(sigaltstack(&stack, nullptr), 0);
    ASSERT_EQ(sigaction(SIGUSR2, &act, &old), 0);
    const BothStacks outside = CaptureBoth();
    raise(SIGUSR2);
    ASSERT_EQ(sigaction(SIGUSR2, &old, nullptr), 0);
    stack.ss_flags = SS_DISABLE;
    ASSERT_EQ(sigaltstack(&stack, nullptr), 0);
    ExpectSame(g_seen, outside.ours.count + 2u);
    EXPECT_EQ(g_seen.ours.end()[-1], outside.ours.end()[-1]);
  }
}

// Switches stacks as green threads do.
TEST(StackTest, StackOfAnotherContextEndsWhereItBegan) {
  static ucontext_t main_context, other;
  std::vector<char> room(1 << 18);
  ASSERT_EQ(getcontext(&other), 0);
  other.uc_stack.ss_sp = room.data();
  other.uc_stack.ss_size = room.size();
  other.uc_link = &main_context;
  makecontext(
      &other, [] { g_seen = Recurse(2); }, 0);
  ASSERT_EQ(swapcontext(&main_context, &other), 0);
  ExpectSame(g_seen, 4);
}

TEST(StackTest, ExceptionsHandlerIsFollowed) {
  BothStacks both;
  try {
    Recurse(2);
    throw std::string("thrown through frames");
  } catch (const std::string&) {
    both = Recurse(2);
  }
  ExpectKnown(both, 5);
}

void LoadAndUnload(const std::stop_token& stop) {
  while (!stop.stop_requested()) {
    void* const library = dlopen(FRAMES_600, RTLD_NOW);
    if (library != nullptr) dlclose(library);
  }
}

// A function generated at run time, in no module. It uses the frame register
// like any other.
#if defined(__x86_64__)
// push %rbp; mov %rsi, %rbp; call *%rdi; pop %rbp; ret
constexpr uint8_t kRunTimeCode[] = {0x55, 0x48, 0x89, 0xf5,
                                    0xff, 0xd7, 0x5d, 0xc3};
constexpr uint64_t kBehindItsCall = 6;
#elif defined(__aarch64__)
// stp x29, x30, [sp, #-16]!; mov x29, x1; blr x0; ldp x29, x30, [sp], #16; ret
constexpr uint32_t kRunTimeCode[] = {0xa9bf7bfd, 0xaa0103fd, 0xd63f0000,
                                     0xa8c17bfd, 0xd65f03c0};
constexpr uint64_t kBehindItsCall = 12;
#endif
class RunTimeCode {
 public:
  RunTimeCode() {
    page_ = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE,
                 MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (page_ == MAP_FAILED) return;
    memcpy(code(), kRunTimeCode, sizeof(kRunTimeCode));
    auto* const begin = reinterpret_cast<char*>(code());
    __builtin___clear_cache(begin, begin + sizeof(kRunTimeCode));
    ready_ = mprotect(page_, kBytes, PROT_READ | PROT_EXEC) == 0;
  }
  ~RunTimeCode() {
    if (page_ != MAP_FAILED) munmap(page_, kBytes);
  }
  RunTimeCode(const RunTimeCode&) = delete;
  RunTimeCode& operator=(const RunTimeCode&) = delete;

  bool ready() const { return ready_; }
  uint64_t return_address() const {
    return reinterpret_cast<uint64_t>(code()) + kBehindItsCall;
  }
  void Call(void (*callback)(), const void* rbp) const {
    reinterpret_cast<void (*)(void (*)(), const void*)>(code())(callback, rbp);
  }

 private:
  static constexpr size_t kBytes = 1 << 16;  // whole pages of any kernel

  // The code is not at the start of the page, because a sanitizer may read the
  // bytes before it.
  uint8_t* code() const { return static_cast<uint8_t*>(page_) + 64; }

  void* page_;
  bool ready_ = false;
};

// An unwinder that continues by guessing from the memory at rbp would name
// functions that were never called: here LoadAndUnload, in what looks like a
// frame.
TEST(StackTest, CodeMadeAtRunTimeEndsTheStack) {
  const RunTimeCode code;
  ASSERT_TRUE(code.ready());
  const volatile uint64_t looks_like_a_frame[] = {
      reinterpret_cast<uint64_t>(&looks_like_a_frame[2]),
      reinterpret_cast<uint64_t>(&LoadAndUnload) + 1, 0, 0};
  code.Call([] { g_seen = CaptureBoth(); },
            const_cast<const uint64_t*>(looks_like_a_frame));
  ExpectSame(g_seen, 2);
  EXPECT_EQ(g_seen.ours.end()[-1], code.return_address());
}

TEST(StackTest, LeavesErrnoAsItWas) {
  errno = ENOTTY;
  const BothStacks both = RecurseWithArrays(5, 5000);
  EXPECT_EQ(errno, ENOTTY);
  EXPECT_GE(both.ours.count, 5);
}

// The host's malloc may hold any lock while a thread allocates, and profilers
// unwind inside malloc.
TEST(StackTest, ThreadsFirstStackAllocatesNothing) {
  uint64_t frames[8];
  ASSERT_EQ(CaptureStack(__builtin_return_address(0), frames, 8), 8);
  size_t before = 0, after = 0;
  std::thread([&] {
    uint64_t own[8];
    before = mallinfo2().uordblks;
    CaptureStack(__builtin_return_address(0), own, 8);
    after = mallinfo2().uordblks;
  }).join();
  EXPECT_EQ(after, before);
}

// New code at the addresses of an unloaded library has different frames.
TEST(StackTest, LibrariesThatComeAndGoAreReadAgain) {
  for (int i = 0; i < 20; ++i) {
    for (const char* file : {FRAMES_600, FRAMES_900}) {
      void* const library = dlopen(file, RTLD_NOW);
      ASSERT_NE(library, nullptr) << dlerror();
      using Call = void (*)(void (*)());
      const auto call = reinterpret_cast<Call>(dlsym(library, "frames_call"));
      ASSERT_NE(call, nullptr);
      call([] { g_seen = CaptureBoth(); });
      ExpectKnown(g_seen, 4);
      ASSERT_EQ(dlclose(library), 0);
    }
  }
}

// Random calls among frames of every kind, in several threads, while a library
// is loaded and unloaded.
class RandomStacks {
 public:
  explicit RandomStacks(unsigned seed) : random_(seed) {}

  BothStacks Make() {
    left_ = std::uniform_int_distribution<int>(0, 12)(random_);
    return Next();
  }

 private:
  [[gnu::noinline]] BothStacks Next() {
    if (left_-- == 0) return CaptureBoth();
    BothStacks both;
    switch (random_() % 5) {
      case 0:
        both = Next();
        break;
      case 1: {
        auto* array =
            static_cast<volatile char*>(__builtin_alloca(random_() % 512 + 1));
        array[0] = 1;
        both = Next();
        break;
      }
      case 2: {
        std::vector<int> values = {2, 1};
        std::sort(values.begin(), values.end(), [&](int a, int b) {
          if (both.ours.count == 0) both = Next();
          return a < b;
        });
        break;
      }
      case 3:
        both = Large();
        break;
      default:
        std::thread([&] { both = Next(); }).join();
    }
    asm volatile("" ::: "memory");
    return both;
  }

  [[gnu::noinline]] BothStacks Large() {
    volatile char locals[40000];
    locals[0] = 1;
    BothStacks both = Next();
    locals[1] = locals[0];
    return both;
  }

  std::mt19937 random_;
  int left_ = 0;
};

TEST(StackTest, RandomStacksAreThoseOfLibgcc) {
  const unsigned seed = std::random_device()();
  SCOPED_TRACE("seed " + std::to_string(seed));
  const std::jthread loader(&LoadAndUnload);
  std::vector<std::thread> threads;
  for (unsigned i = 0; i < 3; ++i) {
    threads.emplace_back([i, seed] {
      RandomStacks stacks(seed + i);
      for (int n = 0; n < 100; ++n) {
        const BothStacks both = stacks.Make();
        ASSERT_TRUE(both.ours == both.libgcc);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

// The child must not wait for a lock whose holder exists only in the parent.
TEST(StackTest, ForkedChildOfALoadingParentCapturesItsStack) {
  const std::jthread loader(&LoadAndUnload);
  for (int i = 0; i < 100; ++i) {
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      alarm(120);
      UnwindOnlyAfterFork();
      uint64_t frames[8];
      _exit(CaptureStack(__builtin_return_address(0), frames, 8) == 8 ? 0 : 1);
    }
    int status = -1;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    ASSERT_EQ(status, 0);
  }
}

}  // namespace
}  // namespace fineserve::shim
