// stress_engine --seconds S --seed N [--threads T] [--rounds R]: an engine that
// does everything which a process may do to memory that was redirected, on
// several threads at once, and looks for bytes that it did not write. Each
// thread allocates KV by one of three ways, writes it, keeps it for a while,
// reads it back and frees it, at times in a context of its own that it destroys
// without freeing. Now and then a thread forks, or replaces the program by
// itself (exec), which goes on for what is left of the S seconds. With --rounds
// each thread allocates so often and no thread forks or execs.
//
// An allocation may be refused for want of memory; every other error ends the
// program with status 3, a wrong byte with status 1. Each program in the
// process ends with a line on standard output: "ended rounds=… refused=…
// outside=…", where memory outside of the pool is the driver's own.

#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <cinttypes>
#include <cstdio>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "tools/lab/engines/kv_memory.h"

namespace stock_engine {
namespace {

namespace cuda = fineserve::driver;

// The sizes of allocations. FINESERVE_KV_SIZES should name each of them.
constexpr size_t kSizes[] = {4 << 20, 6 << 20, 8 << 20};
constexpr size_t kMostKept = 4;           // allocations of one thread
constexpr uint32_t kPoison = 0xa5a5a5a5;  // by EMUCUDA_POISON=165

struct Settings {
  double seconds = 0;
  unsigned seed = 1;
  unsigned threads = 1;
  uint64_t rounds = 0;  // 0: until the time is over
};

std::atomic<uint64_t> g_rounds{0}, g_refused{0}, g_outside{0};

// The tag of this program: the low 16 bits of each word that it writes.
uint32_t g_tag = 0;
uint32_t Tag(uint32_t word) { return word & 0xffff; }

double Now() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<double>(now.tv_sec) +
         static_cast<double>(now.tv_nsec) / 1e9;
}

void PrintCounts() {
  printf("ended rounds=%" PRIu64 " refused=%" PRIu64 " outside=%" PRIu64 "\n",
         g_rounds.load(), g_refused.load(), g_outside.load());
  fflush(stdout);
}

// The work of one thread. Confined to that thread.
class Worker {
 public:
  Worker(const Settings& settings, double end, unsigned number)
      : settings_(settings), end_(end), random_(settings.seed * 31 + number) {
    STOCK_ENGINE_CALL(cuDevicePrimaryCtxRetain, &primary_, 0);
    STOCK_ENGINE_CALL(cuCtxSetCurrent, primary_);
    host_.resize(kSizes[2] / sizeof(uint32_t));
  }

  void Run() {
    const uint64_t rounds = settings_.rounds;
    for (uint64_t i = 0; rounds > 0 ? i < rounds : Now() < end_; ++i) {
      Act();
      ++g_rounds;
    }
    while (!kept_.empty()) End(kept_.size() - 1);
    STOCK_ENGINE_CALL(cuDevicePrimaryCtxRelease_v2, 0);
  }

 private:
  struct Kept {
    KvAllocator how;
    KvAllocation kv;
    uint32_t word;  // of which it is full
  };

  uint64_t Random(uint64_t below) { return random_() % below; }

  void Act() {
    const bool may_leave = settings_.rounds == 0;
    if (may_leave && Random(60) == 0) return Fork();
    if (may_leave && Random(400) == 0) return Exec();
    if (Random(12) == 0) return InOwnContext();
    if (kept_.size() == kMostKept || (!kept_.empty() && Random(2) == 0)) {
      return End(Random(kept_.size()));
    }
    Begin();
  }

  void Begin() {
    Kept made;
    if (Make(&made)) kept_.push_back(made);
  }

  bool Make(Kept* made) {
    constexpr KvAllocator kWays[] = {KvAllocator::kPlain, KvAllocator::kAsync,
                                     KvAllocator::kVirtual};
    made->how = kWays[Random(3)];
    if (AllocateKv(made->how, 0, kSizes[Random(3)], &made->kv) !=
        cuda::CUDA_SUCCESS) {
      ++g_refused;
      return false;
    }
    ExpectFresh(made->kv);
    made->word = static_cast<uint32_t>(random_() << 16) | g_tag;
    STOCK_ENGINE_CALL(cuMemsetD32Async, made->kv.address, made->word,
                      made->kv.bytes / sizeof(uint32_t), nullptr);
    return true;
  }

  void End(size_t index) {
    const Kept ended = kept_[index];
    kept_.erase(kept_.begin() + static_cast<ptrdiff_t>(index));
    Read(ended.kv);
    for (size_t i = 0; i < ended.kv.bytes / sizeof(uint32_t); ++i) {
      if (host_[i] != ended.word) Foreign("kept", ended.kv, i, ended.word);
    }
    // In half of the cases, leaves work under way while the memory is freed.
    if (Random(2) == 0) {
      STOCK_ENGINE_CALL(cuMemsetD32Async, ended.kv.address, ended.word,
                        ended.kv.bytes / sizeof(uint32_t), nullptr);
    }
    Free(ended);
  }

  // A driver does not wait for work when it unmaps memory, so the program has
  // to.
  static void Free(const Kept& kept) {
    if (kept.how == KvAllocator::kVirtual) STOCK_ENGINE_CALL(cuCtxSynchronize);
    FreeKv(kept.how, kept.kv);
  }

  // Makes a context and destroys it together with an allocation. Mapped memory
  // outlives its context, as in a driver, so it is unmapped first.
  void InOwnContext() {
    cuda::CUcontext own;
    STOCK_ENGINE_CALL(cuCtxCreate_v2, &own, 0, 0);
    Kept made;
    if (Make(&made) && made.how == KvAllocator::kVirtual) Free(made);
    STOCK_ENGINE_CALL(cuCtxDestroy_v2, own);
    STOCK_ENGINE_CALL(cuCtxSetCurrent, primary_);
  }

  // Leased memory must read zero. Memory of the driver may hold what the device
  // filled it with, or what this program left in it.
  void ExpectFresh(const KvAllocation& kv) {
    Read(kv);
    bool outside = false;
    for (size_t i = 0; i < kv.bytes / sizeof(uint32_t); ++i) {
      const uint32_t word = host_[i];
      outside = outside || word != 0;
      if (word != 0 && word != kPoison && Tag(word) != g_tag) {
        Foreign("fresh", kv, i, 0);
      }
    }
    if (outside) ++g_outside;
  }

  void Read(const KvAllocation& kv) {
    STOCK_ENGINE_CALL(cuMemcpyDtoH_v2, host_.data(), kv.address, kv.bytes);
  }

  [[noreturn]] void Foreign(const char* what, const KvAllocation& kv, size_t at,
                            uint32_t wanted) const {
    printf("error mismatch %s address=%" PRIx64
           " offset=%zu wanted=%x got=%x\n",
           what, static_cast<uint64_t>(kv.address), at * sizeof(uint32_t),
           wanted, host_[at]);
    fflush(stdout);
    _exit(kExitMismatch);
  }

  void Fork() {
    while (waitpid(-1, nullptr, WNOHANG) > 0) {
    }
    const auto us = static_cast<useconds_t>(Random(50'000));
    if (fork() == 0) {
      usleep(us);
      _exit(0);
    }
  }

  void Exec() {
    const std::string seconds = std::to_string(end_ - Now());
    const std::string seed = std::to_string(random_() % 1'000'000);
    const std::string threads = std::to_string(settings_.threads);
    PrintCounts();
    execl("/proc/self/exe", "stress_engine", "--seconds", seconds.c_str(),
          "--seed", seed.c_str(), "--threads", threads.c_str(), nullptr);
    puts("error execl");
    _exit(kExitCudaError);
  }

  const Settings& settings_;
  const double end_;
  std::mt19937_64 random_;
  cuda::CUcontext primary_ = nullptr;
  std::vector<uint32_t> host_;
  std::vector<Kept> kept_;
};

Settings Parse(int argc, char** argv) {
  Settings settings;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string name = argv[i];
    const double value = strtod(argv[i + 1], nullptr);
    if (name == "--seconds") settings.seconds = value;
    if (name == "--seed") settings.seed = static_cast<unsigned>(value);
    if (name == "--threads") settings.threads = static_cast<unsigned>(value);
    if (name == "--rounds") settings.rounds = static_cast<uint64_t>(value);
  }
  return settings;
}

int Run(const Settings& settings) {
  const double end = Now() + settings.seconds;
  g_tag = Tag(std::random_device{}()) | 1;
  STOCK_ENGINE_CALL(cuInit, 0);
  std::vector<std::thread> threads;
  for (unsigned i = 0; i < settings.threads; ++i) {
    threads.emplace_back([&, i] { Worker(settings, end, i).Run(); });
  }
  for (std::thread& thread : threads) thread.join();
  PrintCounts();
  return 0;
}

}  // namespace
}  // namespace stock_engine

int main(int argc, char** argv) {
  setvbuf(stdout, nullptr, _IOLBF, 0);
  return stock_engine::Run(stock_engine::Parse(argc, argv));
}
