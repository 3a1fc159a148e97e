#include "tools/fsctl/stack/process_stacks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/ptrace.h>

#include <condition_variable>
#include <mutex>
#include <thread>

#include "tools/fsctl/processes/inspected_process.h"
#include "tools/fsctl/stack/traced_child.h"
#include "tools/lab/process/eventually.h"

namespace fineserve::fsctl {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::StartsWith;

// Functions in which the children wait, with C names so that a stack can be
// checked.
extern "C" {
[[gnu::noinline]] void StackTestWaitsForByte(int pipe) {
  char byte = 0;
  // Prevents a tail call, because the function must be on the stack.
  if (read(pipe, &byte, 1) != 1) _exit(2);
  asm volatile("" ::: "memory");
}
[[gnu::noinline]] void StackTestWaitsForEver() {
  std::mutex mutex;
  std::condition_variable never;
  std::unique_lock<std::mutex> lock(mutex);
  never.wait(lock, [] { return false; });
}
[[gnu::noinline]] void StackTestSpins() {
  for (;;) asm volatile("" ::: "memory");
}
[[gnu::noinline]] int StackTestGoesDown(int levels, int pipe) {
  volatile char room[4096] = {};
  room[0] = 1;
  if (levels == 0) {
    StackTestWaitsForByte(pipe);
    return room[0];
  }
  return StackTestGoesDown(levels - 1, pipe) + room[0];
}
[[gnu::noinline]] void cuStackTestSynchronizes(int pipe) {
  StackTestWaitsForByte(pipe);
  asm volatile("" ::: "memory");
}
}

std::vector<std::string> FunctionsOf(const ThreadStack& stack) {
  std::vector<std::string> functions;
  for (const Frame& frame : stack.frames) {
    functions.push_back(frame.place.function);
  }
  return functions;
}

const ThreadStack* ThreadIn(const ProcessStacks& stacks,
                            const std::string& function) {
  for (const ThreadStack& t : stacks.threads) {
    for (const std::string& f : FunctionsOf(t)) {
      if (f.rfind(function + "+", 0) == 0) return &t;
    }
  }
  return nullptr;
}

class StackTest : public testing::Test {
 protected:
  StackTest() {
    EXPECT_EQ(pipe(pipe_), 0);
    if (!MayTrace()) skips_ = true;
  }
  ~StackTest() override {
    close(pipe_[0]);
    close(pipe_[1]);
  }
  void SetUp() override {
    if (skips_) GTEST_SKIP() << "this machine does not permit ptrace";
  }

  static bool MayTrace() {
    TracedChild child([] { StackTestSpins(); });
    return !absl::IsPermissionDenied(SnapshotThreads(child.pid()).status());
  }
  // Returns the stacks once a thread of the process is in the function.
  static ProcessStacks StacksIn(pid_t pid, const std::string& function) {
    ProcessStacks found;
    std::string trouble;
    EXPECT_TRUE(process::Eventually([&] {
      absl::StatusOr<ProcessStacks> stacks = StacksOf(pid);
      trouble = stacks.ok() ? stacks->threads.front().thread.trouble
                            : stacks.status().ToString();
      if (!stacks.ok() || ThreadIn(*stacks, function) == nullptr) return false;
      found = *std::move(stacks);
      return true;
    })) << function
        << ": " << trouble;
    return found;
  }
  char StateOf(pid_t pid) const {
    const std::string stat = ReadFile("/proc/" + std::to_string(pid) + "/stat");
    return stat[stat.rfind(')') + 2];
  }

  int pipe_[2];
  bool skips_ = false;
};

TEST_F(StackTest, EachThreadIsShownWhereItWaits) {
  TracedChild child([&] {
    std::thread helper([] {
      pthread_setname_np(pthread_self(), "helper");
      StackTestWaitsForEver();
    });
    StackTestWaitsForByte(pipe_[0]);
    _exit(7);
  });
  StacksIn(child.pid(), "StackTestWaitsForEver");
  const ProcessStacks stacks = StacksIn(child.pid(), "StackTestWaitsForByte");
  ASSERT_EQ(stacks.threads.size(), 2u);
  EXPECT_EQ(stacks.threads[0].thread.tid, child.pid());
  const ThreadStack& helper = stacks.threads[1];
  EXPECT_EQ(helper.thread.name, "helper");
  EXPECT_EQ(helper.thread.state, 'S');
  EXPECT_THAT(FunctionsOf(helper),
              Contains(StartsWith("StackTestWaitsForEver+")));
  // The stacks reach down to the first functions of the thread and the program.
  EXPECT_GT(helper.frames.size(), 4u);
  EXPECT_THAT(FunctionsOf(stacks.threads[0]), Contains(StartsWith("main+")));
  // The process continues as if it had not been stopped.
  ASSERT_EQ(write(pipe_[1], "x", 1), 1);
  EXPECT_EQ(WEXITSTATUS(child.Await()), 7);
}

TEST_F(StackTest, AThreadInCudaTellsFirst) {
  TracedChild child([&] {
    std::thread worker([&] { cuStackTestSynchronizes(pipe_[0]); });
    StackTestWaitsForEver();
  });
  StacksIn(child.pid(), "StackTestWaitsForEver");
  const ProcessStacks stacks = StacksIn(child.pid(), "cuStackTestSynchronizes");
  EXPECT_THAT(Summary(stacks), HasSubstr(" waits in cuStackTestSynchronizes"));
}

TEST_F(StackTest, ADescendantInCudaTellsForItsParent) {
  TracedChild parent([&] {
    TracedChild child([&] { cuStackTestSynchronizes(pipe_[0]); });
    StackTestWaitsForEver();
  });
  EXPECT_TRUE(process::Eventually([&] {
    return SummaryOfTree(parent.pid())
               .find(" waits in cuStackTestSynchronizes") != std::string::npos;
  }));
}

TEST_F(StackTest, ABusyThreadRunsInItsFunction) {
  TracedChild child([] { StackTestSpins(); });
  const ProcessStacks stacks = StacksIn(child.pid(), "StackTestSpins");
  EXPECT_THAT(Summary(stacks), HasSubstr(" runs in StackTestSpins"));
}

TEST_F(StackTest, AStoppedProcessStaysStopped) {
  TracedChild child([&] {
    StackTestWaitsForByte(pipe_[0]);
    _exit(0);
  });
  StacksIn(child.pid(), "StackTestWaitsForByte");
  kill(child.pid(), SIGSTOP);
  ASSERT_TRUE(process::Eventually([&] { return StateOf(child.pid()) == 'T'; }));
  const auto stacks = StacksOf(child.pid());
  ASSERT_TRUE(stacks.ok()) << stacks.status();
  EXPECT_THAT(Summary(*stacks), HasSubstr("is stopped by a signal (SIGSTOP)"));
  EXPECT_NE(ThreadIn(*stacks, "StackTestWaitsForByte"), nullptr);
  EXPECT_EQ(StateOf(child.pid()), 'T');
  kill(child.pid(), SIGCONT);
  ASSERT_EQ(write(pipe_[1], "x", 1), 1);
  EXPECT_EQ(WEXITSTATUS(child.Await()), 0);
}

TEST_F(StackTest, NoSignalThatComesAtTheSameTimeIsLost) {
  static constexpr int kSignals = 20'000;
  static volatile sig_atomic_t seen = 0;
  TracedChild child([] {
    signal(SIGUSR1, [](int) { seen = seen + 1; });
    for (int i = 0; i < kSignals; ++i) raise(SIGUSR1);
    _exit(seen == kSignals ? 0 : 3);
  });
  while (SnapshotThreads(child.pid()).ok()) {
  }
  EXPECT_EQ(WEXITSTATUS(child.Await()), 0);
}

TEST_F(StackTest, ADeepStackEndsWithItsCopy) {
  TracedChild child([&] { StackTestGoesDown(500, pipe_[0]); });
  const ProcessStacks stacks = StacksIn(child.pid(), "StackTestWaitsForByte");
  ASSERT_FALSE(stacks.threads.empty());
  const ThreadStack& thread = stacks.threads.front();
  // 256 KiB of frames of 4 KiB.
  EXPECT_GT(thread.frames.size(), 50u);
  EXPECT_LT(thread.frames.size(), 80u);
  EXPECT_EQ(ThreadIn(stacks, "main"), nullptr);
}

#if defined(__x86_64__)
// A function whose unwind table finds the caller's frame by an expression that
// jumps back to its own beginning.
extern "C" void StackTestEndlessTable();
asm(".text\n"
    ".type StackTestEndlessTable, @function\n"
    "StackTestEndlessTable:\n"
    ".cfi_startproc\n"
    ".cfi_escape 0x0f, 0x03, 0x2f, 0xfd, 0xff\n"
    "1: jmp 1b\n"
    ".cfi_endproc\n"
    ".size StackTestEndlessTable, . - StackTestEndlessTable\n");

TEST_F(StackTest, AnUnwindTableThatNeverEndsEndsTheStack) {
  TracedChild child([] { StackTestEndlessTable(); });
  const ProcessStacks stacks = StacksIn(child.pid(), "StackTestEndlessTable");
  ASSERT_FALSE(stacks.threads.empty());
  EXPECT_EQ(stacks.threads.front().frames.size(), 1u);
}

TEST_F(StackTest, AStackThatBeginsAtItsFirstPageIsRead) {
  TracedChild child([] {
    constexpr size_t kBytes = 1 << 16;
    char* pages =
        static_cast<char*>(mmap(nullptr, 2 * kBytes, PROT_READ | PROT_WRITE,
                                MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    munmap(pages, kBytes);
    asm volatile(
        "mov %0, %%rsp\n"
        "1: jmp 1b\n"
        :
        : "r"(pages + kBytes));
  });
  EXPECT_TRUE(process::Eventually([&] {
    const auto stacks = StacksOf(child.pid());
    if (!stacks.ok()) return false;
    const ThreadStack& stack = stacks->threads.front();
    return stack.thread.registers.rsp % kPageBytes == 0 &&
           stack.thread.trouble.empty() && !stack.frames.empty();
  }));
}

TEST_F(StackTest, AWildStackPointerIsSaid) {
  TracedChild child([] {
    asm volatile(
        "mov $8, %rsp\n"
        "1: jmp 1b\n");
  });
  EXPECT_TRUE(process::Eventually([&] {
    const auto stacks = StacksOf(child.pid());
    return stacks.ok() &&
           stacks->threads.front().thread.trouble == "its stack cannot be read";
  }));
}
#endif

TEST_F(StackTest, AnEndedProcessIsNotFound) {
  pid_t ended = 0;
  {
    TracedChild child([] { _exit(0); });
    ended = child.pid();
    child.Await();
  }
  EXPECT_TRUE(absl::IsNotFound(StacksOf(ended).status()));
}

TEST_F(StackTest, OneThatADebuggerTracesIsRefusedWithTheReason) {
  TracedChild child([&] {
    ptrace(PTRACE_TRACEME, 0, 0, 0);
    StackTestWaitsForByte(pipe_[0]);
  });
  EXPECT_TRUE(process::Eventually([&] {
    const absl::Status status = StacksOf(child.pid()).status();
    return absl::IsPermissionDenied(status) &&
           std::string(status.message()).find("a debugger traces it already") !=
               std::string::npos;
  }));
}

ThreadStack StackOf(std::vector<AddressMap::Place> places) {
  ThreadStack stack;
  stack.thread.tid = 12;
  stack.thread.state = 'S';
  for (AddressMap::Place& place : places) {
    stack.frames.push_back({0, std::move(place)});
  }
  return stack;
}

TEST(TellingFunctionTest, DeviceBeforeProgramBeforeKernel) {
  EXPECT_EQ(TellingFunction(StackOf({{"poll+0x4e", "libc.so.6", 1},
                                     {"Wait(int)+0x8", "engine", 1},
                                     {"cudaStreamSynchronize+0x1c", "x", 1}})),
            "cudaStreamSynchronize");
  EXPECT_EQ(TellingFunction(StackOf({{"poll+0x4e", "libc.so.6", 1},
                                     {"Wait(int)+0x8", "engine", 1}})),
            "Wait(int)");
  // No function of CUDA's.
  EXPECT_EQ(TellingFunction(StackOf({{"poll+0x4e", "libc.so.6", 1},
                                     {"run+0x2", "engine", 1},
                                     {"customer+0x1", "engine", 1}})),
            "run");
  ThreadStack bare = StackOf({});
  bare.thread.kernel_wait = "futex_do_wait";
  EXPECT_EQ(TellingFunction(bare), "futex_do_wait");
}

TEST(SentenceTest, SaysHowLongItHasNotRun) {
  ThreadStack stack = StackOf({{"ncclGroupEnd+0x1", "libnccl.so.2", 1}});
  stack.thread.idle_s = 92;
  EXPECT_EQ(Sentence(stack),
            "thread 12 waits in ncclGroupEnd, last ran 92 s ago");
  stack.thread.idle_s = 0.5;
  EXPECT_EQ(Sentence(stack), "thread 12 waits in ncclGroupEnd");
}

}  // namespace
}  // namespace fineserve::fsctl
