// An engine whose need for KV comes and goes, in turn with another's. Runs
// under the preload; the bench "handover" starts two.
//
//   bench_handover_engine idle|waiting|busy TURN SECONDS
//
// It has its turn in every other half period. "idle": in its turn it takes all
// blocks that it can get and keeps them until the turn ends; then it makes no
// call at all. "waiting": then it waits for changes of its leases. "busy": it
// serves without a break, many sequences in its turn and few otherwise; each
// ends by itself.
//
// Prints "name value" lines.

#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "kernels/driver/driver.h"
#include "shim/fineserve_kv.h"

namespace fineserve::bench {
namespace {

constexpr double kHalfPeriodMs = 500;
// Time between the end of one engine's turn and the beginning of the other
// engine's.
constexpr double kGapMs = 50;
constexpr uint32_t kPageBytes = 64 << 10;
constexpr uint32_t kSequenceBlocks = 8;
// The engines ask for more than the bench's pool has.
constexpr uint32_t kManySequences = 64, kFewSequences = 4;
constexpr useconds_t kStepUs = 2000;
constexpr unsigned kMeanSteps = 32;  // that a sequence lives

[[noreturn]] void Fail(const char* what) {
  fprintf(stderr, "bench_handover_engine: %s: %s\n", what, fs_kv_error());
  exit(1);
}

void Require(int result, const char* what) {
  if (result != FS_OK) Fail(what);
}

double NowMs() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return 1e3 * static_cast<double>(now.tv_sec) +
         1e-6 * static_cast<double>(now.tv_nsec);
}

class Engine {
 public:
  Engine(const std::string& kind, int turn)
      : busy_(kind == "busy"),
        waits_(kind == "waiting"),
        turn_(turn),
        driver_(*driver::Driver::Load("libcuda.so.1")) {
    driver::CUcontext context = nullptr;
    if (driver_.call().cuInit(0) != driver::CUDA_SUCCESS ||
        driver_.call().cuDevicePrimaryCtxRetain(&context, 0) !=
            driver::CUDA_SUCCESS ||
        driver_.call().cuCtxSetCurrent(context) != driver::CUDA_SUCCESS) {
      Fail("no context");
    }
  }

  void Start() {
    fs_kv_format format = {};
    format.struct_bytes = sizeof(format);
    format.mode = FS_KV_VIEW;
    format.planes = format.planes_per_allocation = 1;
    format.page_bytes = kPageBytes;
    format.block_tokens = 16;
    format.floor_blocks = 1;
    fs_kv_geometry geometry = {};
    geometry.struct_bytes = sizeof(geometry);
    Require(fs_kv_progress(FS_KV_POOL_CONSTRUCTED), "progress");
    Require(fs_kv_register(&format, &geometry), "register");
    fs_kv_begin();
    driver::CUdeviceptr tensor;
    if (driver_.call().cuMemAlloc_v2(&tensor, geometry.blocks * kPageBytes) !=
        driver::CUDA_SUCCESS) {
      Fail("a tensor");
    }
    fs_kv_end();
    Require(fs_kv_activate(), "activate");
    Require(fs_kv_set_watermark(kSequenceBlocks), "watermark");
  }

  void Run(double seconds) {
    const double end_ms = NowMs() + 1e3 * seconds;
    while (NowMs() < end_ms) {
      if (busy_) {
        Step(HasTurn() ? kManySequences : kFewSequences, /*ends=*/true);
      } else if (HasTurn()) {
        Step(kManySequences, /*ends=*/false);
      } else {
        BeIdle();
      }
    }
    FreeAll();
    Require(fs_kv_close(), "close");
    Print();
  }

 private:
  bool HasTurn() const {
    const double periods = NowMs() / kHalfPeriodMs;
    const auto half = static_cast<int64_t>(periods);
    const double since_ms =
        (periods - static_cast<double>(half)) * kHalfPeriodMs;
    return half % 2 == turn_ && since_ms < kHalfPeriodMs - kGapMs;
  }

  // Starts sequences up to `target`, ends some, and lets the device work.
  void Step(size_t target, bool ends) {
    const uint64_t step = fs_kv_step_begin();
    if (sequences_.size() < target) Admit(target);
    for (size_t i = sequences_.size(); ends && i-- > 0;) {
      if (random_() % kMeanSteps != 0) continue;
      std::swap(sequences_[i], sequences_.back());
      FreeLast();
    }
    usleep(kStepUs);
    Require(fs_kv_step_end(step), "step_end");
  }

  void Admit(size_t target) {
    while (sequences_.size() < target) {
      std::vector<uint32_t> blocks(kSequenceBlocks);
      if (fs_kv_allocate(kSequenceBlocks, blocks.data()) != FS_OK) {
        if (starving_since_ms_ == 0) starving_since_ms_ = NowMs();
        return;
      }
      if (starving_since_ms_ != 0) {
        starved_ms_.push_back(NowMs() - starving_since_ms_);
        starving_since_ms_ = 0;
      }
      sequences_.push_back(std::move(blocks));
    }
  }

  void FreeLast() {
    fs_kv_free(kSequenceBlocks, sequences_.back().data());
    sequences_.pop_back();
  }
  void FreeAll() {
    while (!sequences_.empty()) FreeLast();
  }

  void BeIdle() {
    FreeAll();
    // It gave up what it waited for.
    starving_since_ms_ = 0;
    while (!HasTurn()) {
      if (!waits_) {
        usleep(1000);
        continue;
      }
      // A timeout is no error here.
      fs_kv_wait(10);
      Require(fs_kv_step_end(fs_kv_step_begin()), "step_end");
    }
  }

  void Print() {
    std::sort(starved_ms_.begin(), starved_ms_.end());
    const size_t count = starved_ms_.size();
    printf("starved %zu\n", count);
    if (count == 0) return;
    printf("starved_p50_ms %.3f\nstarved_p99_ms %.3f\n", starved_ms_[count / 2],
           starved_ms_[count * 99 / 100]);
  }

  const bool busy_, waits_;
  const int turn_;
  const driver::Driver driver_;
  std::mt19937 random_{7};
  std::vector<std::vector<uint32_t>> sequences_;
  double starving_since_ms_ = 0;  // 0: it is not
  std::vector<double> starved_ms_;
};

int Main(int argc, char** argv) {
  if (argc != 4) {
    fputs("usage: bench_handover_engine idle|waiting|busy TURN SECONDS\n",
          stderr);
    return 2;
  }
  Engine engine(argv[1], atoi(argv[2]));
  engine.Start();
  engine.Run(strtod(argv[3], nullptr));
  return 0;
}

}  // namespace
}  // namespace fineserve::bench

int main(int argc, char** argv) { return fineserve::bench::Main(argc, argv); }
