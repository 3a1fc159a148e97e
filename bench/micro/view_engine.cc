// An engine that measures what its view of the pool costs it. Runs under the
// preload; the benches "start" and "blocks" start it.
//
//   bench_view_engine --planes N --page BYTES --blocks N --mode MODE
//     [--per-block] [--serve SECONDS [--idle-first]]
//
// Prints "name value" lines.

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <random>
#include <string>
#include <vector>

#include "bench/micro/block_workload.h"
#include "bench/micro/call_counter.h"
#include "bench/report/report.h"
#include "kernels/driver/driver.h"
#include "shim/fineserve_kv.h"

namespace fineserve::bench {
namespace {

using Clock = std::chrono::steady_clock;

struct Options {
  uint32_t planes = 1;
  uint64_t page_bytes = 64 << 10;
  uint64_t blocks = 0;
  uint32_t mode = FS_KV_VIEW;
  bool per_block = false;
  double serve_seconds = 0;
  bool idle_first = false;
};

[[noreturn]] void Fail(const char* what) {
  fprintf(stderr, "bench_view_engine: %s: %s\n", what, fs_kv_error());
  exit(1);
}

void Ok(int result, const char* what) {
  if (result != FS_OK) Fail(what);
}

double Milliseconds(Clock::time_point since) {
  return std::chrono::duration<double, std::milli>(Clock::now() - since)
      .count();
}

void Print(const char* name, double value) { printf("%s %.3f\n", name, value); }

// Gets blocks from the shim's allocator.
class ThroughInterface : public Blocks {
 public:
  void Allocate(uint32_t count, uint32_t* ids) override {
    Ok(fs_kv_allocate(count, ids), "allocate");
  }
  void Free(uint32_t count, const uint32_t* ids) override {
    Ok(fs_kv_free(count, ids), "free");
  }
};

class Engine {
 public:
  explicit Engine(const Options& options)
      : options_(options), driver_(*driver::Driver::Load("libcuda.so.1")) {
    if (driver_.call().cuInit(0) != driver::CUDA_SUCCESS ||
        driver_.call().cuDevicePrimaryCtxRetain(&context_, 0) !=
            driver::CUDA_SUCCESS ||
        driver_.call().cuCtxSetCurrent(context_) != driver::CUDA_SUCCESS) {
      Fail("no context");
    }
  }

  // Measures from registration to activation. A real engine would fill its
  // tensors in between.
  void Start() {
    fs_kv_format format = {};
    format.struct_bytes = sizeof(format);
    format.mode = options_.mode;
    format.planes = options_.planes;
    format.planes_per_allocation = 1;
    format.page_bytes = options_.page_bytes;
    format.blocks = options_.blocks;
    format.block_tokens = 16;
    format.floor_blocks = 1;
    fs_kv_geometry geometry = {};
    geometry.struct_bytes = sizeof(geometry);
    Ok(fs_kv_progress(FS_KV_POOL_CONSTRUCTED), "progress");
    const CallCounter calls("libcuda.so.1");
    const auto start = Clock::now();
    Ok(fs_kv_register(&format, &geometry), "register");
    Print("register_ms", Milliseconds(start));
    const auto tensors = Clock::now();
    fs_kv_begin();
    for (uint32_t i = 0; i < options_.planes; ++i) {
      driver::CUdeviceptr tensor;
      if (Allocate(&tensor, geometry.blocks * options_.page_bytes) !=
          driver::CUDA_SUCCESS) {
        Fail("a tensor");
      }
    }
    fs_kv_end();
    Print("tensors_ms", Milliseconds(tensors));
    const auto activate = Clock::now();
    Ok(fs_kv_activate(), "activate");
    Print("activate_ms", Milliseconds(activate));
    Print("start_ms", Milliseconds(start));
    for (const char* name : {"cuMemCreate", "cuMemImportFromShareableHandle",
                             "cuMemSetAccess", "cuMemUnmap"}) {
      Print(name, static_cast<double>(calls.Of(name)));
    }
    Print("driver_calls_to_activate",
          static_cast<double>(Stats().driver_calls_to_activate));
  }

  // Measures ns per block through the C interface, and two CAS on a cached word
  // for comparison.
  void MeasureBlocks() {
    constexpr uint32_t kCount = 1 << 17;
    Ok(fs_kv_set_watermark(2 * Workload::kLive), "watermark");
    do {
      fs_kv_step_end(fs_kv_step_begin());
      usleep(1000);
    } while (Stats().free_blocks < 2 * Workload::kLive);
    ThroughInterface blocks;
    Workload workload(&blocks);
    std::vector<double> one, sixteen, one_cas, sixteen_cas, cas;
    for (int round = 0; round < 21; ++round) {
      cas.push_back(CasPair(kCount));
      one.push_back(workload.Steady(1, kCount));
      sixteen.push_back(workload.Steady(16, kCount));
      one_cas.push_back(one.back() / cas.back());
      sixteen_cas.push_back(sixteen.back() / cas.back());
    }
    Print("one_ns", Median(one));
    Print("sixteen_ns", Median(sixteen));
    Print("cas_ns", Median(cas));
    Print("one_per_cas", Median(one_cas));
    Print("sixteen_per_cas", Median(sixteen_cas));
  }

  // Runs steps of 2 ms, two of them in flight. In each step up to kArrive
  // sequences begin (and take the blocks of their prompts at once), some of the
  // others grow by a block, and some end. The load rises and falls over a
  // second, so slabs travel between two engines that are out of phase.
  void Serve() {
    constexpr uint32_t kMostSequences = 64;
    constexpr uint32_t kArrive = 2;
    constexpr uint32_t kPromptBlocks = 8;
    constexpr uint32_t kPerStep = kArrive * kPromptBlocks + kMostSequences;
    // The round trip takes 4 steps: 2 for the daemon and its zero fill, and 2
    // of slack for a busy machine.
    Ok(fs_kv_set_watermark(4 * kPerStep), "watermark");
    std::vector<std::vector<uint32_t>> sequences;
    std::mt19937 random(7);
    uint64_t waits = 0;
    uint64_t steps = 0;
    const auto start = Clock::now();
    for (;; ++steps) {
      const double seconds = Milliseconds(start) / 1000;
      if (seconds > options_.serve_seconds) break;
      const bool busy =
          (static_cast<uint64_t>(seconds * 2) % 2 == 0) != options_.idle_first;
      const uint32_t target = busy ? kMostSequences : kMostSequences / 16;
      const uint64_t step = fs_kv_step_begin();
      for (uint32_t i = 0; i < kArrive && sequences.size() < target; ++i) {
        std::vector<uint32_t> blocks(kPromptBlocks);
        if (fs_kv_allocate(kPromptBlocks, blocks.data()) != FS_OK) {
          ++waits;
          break;
        }
        sequences.push_back(std::move(blocks));
      }
      for (auto& blocks : sequences) {
        uint32_t id;
        if (random() % 16 == 0 && fs_kv_allocate(1, &id) == FS_OK) {
          blocks.push_back(id);
        }
      }
      while (!sequences.empty() &&
             (sequences.size() > target || random() % 32 == 0)) {
        std::swap(sequences[random() % sequences.size()], sequences.back());
        const auto& blocks = sequences.back();
        fs_kv_free(static_cast<uint32_t>(blocks.size()), blocks.data());
        sequences.pop_back();
      }
      if (step > 1) fs_kv_step_end(step - 1);
      usleep(2000);
    }
    const fs_kv_stats stats = Stats();
    Print("steps", static_cast<double>(steps));
    Print("refused_admissions", static_cast<double>(waits));
    Print("failed_allocations", static_cast<double>(stats.failed_allocations));
    Print("watermark_misses", static_cast<double>(stats.watermark_misses));
    Print("returned_slabs", static_cast<double>(stats.returned_slabs));
    Print("driver_calls_serving",
          static_cast<double>(stats.driver_calls_serving));
  }

 private:
  driver::CUresult Allocate(driver::CUdeviceptr* out, uint64_t bytes) {
    return driver_.call().cuMemAlloc_v2(out, bytes);
  }
  static fs_kv_stats Stats() {
    fs_kv_stats stats = {};
    stats.struct_bytes = sizeof(stats);
    Ok(fs_kv_read_stats(&stats), "stats");
    return stats;
  }
  const Options options_;
  const driver::Driver driver_;
  driver::CUcontext context_ = nullptr;
};

int Main(int argc, char** argv) {
  Options options;
  std::string mode = "view";
  CLI::App app("An engine that measures what its view of the pool costs it.");
  app.add_option("--planes", options.planes);
  app.add_option("--page", options.page_bytes);
  app.add_option("--blocks", options.blocks);
  app.add_option("--mode", mode)
      ->check(CLI::IsMember({"view", "guarded", "strict"}));
  app.add_flag("--per-block", options.per_block);
  app.add_option("--serve", options.serve_seconds);
  app.add_flag("--idle-first", options.idle_first);
  CLI11_PARSE(app, argc, argv);
  if (mode == "guarded") options.mode = FS_KV_GUARDED;
  if (mode == "strict") options.mode = FS_KV_STRICT;
  Engine engine(options);
  engine.Start();
  if (options.per_block) engine.MeasureBlocks();
  if (options.serve_seconds > 0) engine.Serve();
  // Closes the view first, since the slabs of an engine that dies wait in
  // quarantine, and the next engines would find none.
  Ok(fs_kv_close(), "close");
  return 0;
}

}  // namespace
}  // namespace fineserve::bench

int main(int argc, char** argv) { return fineserve::bench::Main(argc, argv); }
