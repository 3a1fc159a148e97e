// An engine whose blocks are visible: it has a view of the pool
// (shim/fineserve_kv.h), fills and warms up on its tensors, activates, and then
// serves by lines from stdin or at random. `--help` lists what it does.
//
// stdout, one line each, flushed:
//   ready pid=4711 slabs=15 blocks=2048 floor=1 cap=15
//   ok … | error …                       one answer per command

#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cinttypes>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <iterator>
#include <sstream>
#include <string>

#include "shim/fineserve_kv.h"
#include "tools/lab/engines/engine_flags.h"
#include "tools/lab/engines/view_blocks.h"
#include "tools/lab/engines/view_random.h"
#include "tools/lab/engines/weak_kv.h"

namespace stock_engine {
namespace {

struct ViewOptions {
  fs_kv_format format = {};
  uint64_t watermark = 0;
  uint64_t seed = 1;
  int progress = FS_KV_POOL_CONSTRUCTED;
  size_t before_bytes = 0;
  double random_seconds = 0;
  uint32_t most_blocks = 400;
  bool fills_first = false;
  unsigned child_outlives_ms = 0;
};

constexpr char kMore[] =
    "Lines from stdin:\n"
    "  alloc N | nan | nanscan | scan | write | queue | verify | free N |\n"
    "  step | begin | end | idle MS | watermark N | peek BLOCK |\n"
    "  poke BLOCK | stats | checkfree | fork | close | release | exit\n"
    "\n"
    "exit: 0 ok, 1 mismatch, 2 usage, 3 CUDA error, 4 no KV, 5 no view\n";

// Parses the command line; on a mistake prints one line and exits with 2.
ViewOptions ParseViewOptions(int argc, char** argv) {
  ViewOptions o;
  o.format.struct_bytes = sizeof(o.format);
  o.format.mode = FS_KV_VIEW;
  o.format.planes = o.format.planes_per_allocation = 1;
  o.format.page_bytes = 64 << 10;
  o.format.block_tokens = 16;
  EngineFlags flags("view_engine", "an engine with a view of FineServe's pool",
                    kMore);
  flags.Count("planes", "of the KV (1)", &o.format.planes);
  flags.Count("per-allocation", "planes in one tensor, one behind another (1)",
              &o.format.planes_per_allocation);
  flags.Bytes("page", "of one block in one plane (64KiB)",
              &o.format.page_bytes);
  flags.Count("blocks", "of each plane (0: the whole pool)", &o.format.blocks);
  flags.OneOf<uint32_t>("mode", "view, guarded or strict (view)",
                        &o.format.mode,
                        {{"view", FS_KV_VIEW},
                         {"guarded", FS_KV_GUARDED},
                         {"strict", FS_KV_STRICT}});
  flags.Count("floor", "in blocks (0)", &o.format.floor_blocks);
  flags.Count("cap", "in blocks (0)", &o.format.cap_blocks);
  flags.Count("watermark", "blocks that it keeps ready (0)", &o.watermark);
  flags.Count("progress", "the stage that its plugin reports (3)", &o.progress);
  flags.Bytes("before", "device memory that is no KV, allocated first",
              &o.before_bytes);
  flags.Count("seed", "what is written (1)", &o.seed);
  flags.Real("random", "serves at random for X seconds, then exits",
             &o.random_seconds);
  flags.Count("most", "with --random, at most N blocks (400)", &o.most_blocks);
  flags.Flag("fill-first",
             "fills a block with rubbish before it writes it:\n"
             "of a killed engine's work only fills linger",
             &o.fills_first);
  flags.Count("child-outlives-ms",
              "forks a child that keeps all descriptors and\n"
              "ends N ms after its parent",
              &o.child_outlives_ms);
  flags.Parse(argc, argv);
  return o;
}

constexpr int kExitNoView = 5;

[[noreturn]] void NoView(const char* function, int result) {
  printf("error %s %d %s\n", function, result, fs_kv_error());
  fprintf(stderr, "%s: %s\n", function, fs_kv_error());
  exit(kExitNoView);
}

void Require(int result, const char* function) {
  if (result != FS_OK) NoView(function, result);
}

void Progress(const ViewOptions& options, int from, int to) {
  for (int stage = from; stage <= std::min(to, options.progress); ++stage) {
    Require(fs_kv_progress(stage), "fs_kv_progress");
  }
}

class ViewEngine {
 public:
  explicit ViewEngine(const ViewOptions& options) : options_(options) {
    STOCK_ENGINE_CALL(cuEventCreate, &done_,
                      fineserve::driver::CU_EVENT_DISABLE_TIMING);
    Progress(options, FS_KV_PLUGIN_LOADED, FS_KV_POOL_REPLACED);
    if (options.before_bytes > 0) {
      AllocateOther("before", options.before_bytes);
    }
    fs_kv_geometry geometry = {};
    geometry.struct_bytes = sizeof(geometry);
    Require(fs_kv_register(&options.format, &geometry), "fs_kv_register");
    blocks_ = new ViewBlocks(options.format, geometry, options.seed);
    if (options.fills_first) blocks_->FillFirst();
    std::string why;
    if (!blocks_->AllocateTensors(&why)) {
      printf("error %s\n", why.c_str());
      exit(kExitNoKvMemory);
    }
    blocks_->WarmUp();
    Progress(options, FS_KV_POOL_CONSTRUCTED, FS_KV_POOL_CONSTRUCTED);
    Require(fs_kv_set_watermark(options.watermark), "fs_kv_set_watermark");
    Require(fs_kv_activate(), "fs_kv_activate");
    printf("ready pid=%d slabs=%u blocks=%" PRIu64 " floor=%u cap=%u\n",
           getpid(), geometry.slab_count, geometry.blocks, geometry.floor_slabs,
           geometry.cap_slabs);
  }
  ~ViewEngine() {
    delete blocks_;
    STOCK_ENGINE_CALL(cuEventDestroy_v2, done_);
  }
  ViewEngine(const ViewEngine&) = delete;
  ViewEngine& operator=(const ViewEngine&) = delete;

  bool Random() {
    return ServeAtRandom(blocks_, options_.most_blocks, options_.random_seconds,
                         options_.seed);
  }

  // Obeys lines until "exit" or the end of input. False if a byte was wrong.
  bool Hold() {
    for (std::string line; std::getline(std::cin, line) && line != "exit";) {
      std::istringstream words(line);
      std::string command;
      uint64_t number = 0;
      words >> command >> number;
      Obey(command, number);
    }
    if (!wrong_) puts("ok exit");
    return !wrong_;
  }

 private:
  // Allocates device memory that is not KV and is never freed.
  static void AllocateOther(const char* what, size_t bytes) {
    CUdeviceptr memory = 0;
    const CUresult result = fineserve::driver::cuMemAlloc_v2(&memory, bytes);
    printf("%s %s\n", what, ErrorName(result));
  }

  void Obey(const std::string& command, uint64_t number) {
    const auto count = static_cast<uint32_t>(number);
    if (command == "alloc") return Say(blocks_->Allocate(count), "allocated");
    if (command == "free") return Say(blocks_->Free(count), "freed");
    if (command == "nanscan") {
      return Judge(blocks_->FindForeign(/*or_own=*/false), "nonzero");
    }
    if (command == "scan") {
      return Judge(blocks_->FindForeign(/*or_own=*/true), "foreign");
    }
    if (command == "verify") return Judge(blocks_->Verify(), "mismatch");
    if (command == "write") return Write();
    if (command == "step") return Step();
    if (command == "begin") return Begin();
    if (command == "end") return End();
    if (command == "queue") return Queue();
    if (command == "wait") return Wait(static_cast<int>(number));
    if (command == "idle") return Idle(static_cast<int>(number));
    if (command == "watermark") {
      return Say(fs_kv_set_watermark(number), "watermark");
    }
    if (command == "peek") return Peek(count);
    if (command == "poke") return Poke(count);
    if (command == "nan") {
      blocks_->FillWithNan();
      printf("ok nan=%zu\n", blocks_->held().size());
      return;
    }
    if (command == "stats") return Stats();
    if (command == "more") return AllocateOther("more", number);
    if (command == "presence") {
      printf("ok presence=%d\n", fs_kv_presence());
      return;
    }
    if (command == "checkfree") return CheckFree();
    if (command == "fork") return Fork();
    if (command == "close") return Say(fs_kv_close(), "closed");
    if (command == "release") return Release();
    printf("error unknown command '%s'\n", command.c_str());
  }

  void Say(int result, const char* what) {
    if (result != FS_OK) {
      printf("error %d %s\n", result, fs_kv_error());
      return;
    }
    printf("ok %s held=%zu\n", what, blocks_->held().size());
  }

  void Judge(const Wrong& wrong, const char* what) {
    if (wrong.found) {
      wrong_ = true;
      printf("error %s %s\n", what, wrong.Text().c_str());
    } else {
      printf("ok held=%zu\n", blocks_->held().size());
    }
  }

  // Writes patterns into all new blocks, in a separate step.
  void Write() {
    const uint64_t step = fs_kv_step_begin();
    const uint32_t count = blocks_->Write(done_);
    STOCK_ENGINE_CALL(cuEventSynchronize, done_);
    if (fs_kv_step_end(step) == FS_OK) ended_ = step;
    printf("ok wrote=%u held=%zu\n", count, blocks_->held().size());
  }

  void Step() {
    const uint64_t step = fs_kv_step_begin();
    const int result = fs_kv_step_end(step);
    if (result == FS_OK) ended_ = step;
    if (result != FS_OK) return Say(result, "step");
    printf("ok step=%" PRIu64 "\n", step);
  }

  void Begin() {
    const uint64_t step = fs_kv_step_begin();
    if (step == 0) return Say(FS_STATE, "begun");
    printf("ok begun=%" PRIu64 "\n", step);
  }

  // Ends the oldest step once the device has executed everything.
  void End() {
    STOCK_ENGINE_CALL(cuStreamSynchronize, blocks_->stream());
    const int result = fs_kv_step_end(ended_ + 1);
    if (result == FS_OK) ++ended_;
    Say(result, "ended");
  }

  // Does the same as Write, but within a step that was already begun, and
  // without waiting for the copies.
  void Queue() { printf("ok queued=%u\n", blocks_->Write(done_)); }

  // Waits as an engine does that has a block pool of its own and no request.
  static void Wait(int ms) {
    fs_kv_change changes[16];
    while (fs_kv_poll(changes, std::size(changes)) > 0) {
    }
    printf("ok woken=%d\n", fs_kv_wait(ms));
  }

  // Sleeps until something changes, then looks at the changes.
  void Idle(int ms) {
    const int woken = fs_kv_wait(ms);
    const uint64_t step = fs_kv_step_begin();
    if (fs_kv_step_end(step) == FS_OK) ended_ = step;
    printf("ok idle=%d\n", woken);
  }

  void Peek(uint32_t block) {
    const char* const names[] = {"zero", "own", "other"};
    printf("ok %s\n", names[static_cast<int>(blocks_->Peek(block))]);
  }

  void Poke(uint32_t block) {
    blocks_->Poke(block);
    puts("ok poked");
  }

  // Prints the device's free memory.
  static void CheckFree() {
    size_t free_bytes, total_bytes;
    STOCK_ENGINE_CALL(cuMemGetInfo_v2, &free_bytes, &total_bytes);
    printf("ok free=%zu total=%zu\n", free_bytes, total_bytes);
  }

  // Prints the results of the calls that a forked child makes.
  static void Fork() {
    const pid_t child = fork();
    if (child == 0) {
      uint32_t id = 0;
      const bool steps = fs_kv_step_begin() != 0;
      _exit(steps ? 100 : fs_kv_allocate(1, &id));
    }
    int status = 0;
    waitpid(child, &status, 0);
    printf("ok child=%d\n", WEXITSTATUS(status));
  }

  void Release() {
    blocks_->FreeTensors();
    puts("ok released");
  }

  void Stats() {
    fs_kv_stats s = {};
    s.struct_bytes = sizeof(s);
    if (const int error = fs_kv_read_stats(&s)) return Say(error, "stats");
    printf("ok leased=%u leaving=%u wanted=%u free=%" PRIu64 " used=%" PRIu64
           " failed=%" PRIu64 " misses=%" PRIu64 " returned=%" PRIu64
           " calls_activate=%" PRIu64 " calls_serving=%" PRIu64 "\n",
           s.leased_slabs, s.leaving_slabs, s.wanted_slabs, s.free_blocks,
           s.used_blocks, s.failed_allocations, s.watermark_misses,
           s.returned_slabs, s.driver_calls_to_activate,
           s.driver_calls_serving);
  }

  uint64_t ended_ = 0;  // steps
  const ViewOptions options_;
  CUevent done_ = nullptr;
  ViewBlocks* blocks_ = nullptr;
  bool wrong_ = false;
};

// Forks a child without libc, so that no fork handler closes anything in it.
// The child keeps the daemon's socket and the device open after its parent has
// died.
void ForkChild(unsigned outlives_ms) {
  const pid_t parent = getpid();
  if (syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0) != 0) return;
  while (getppid() == parent) usleep(5'000);
  usleep(outlives_ms * 1'000);
  _exit(0);
}

int Run(const ViewOptions& options) {
  if (fs_kv_register == nullptr) {
    puts("error no shim: start it under fsctl run, or set LD_PRELOAD");
    return kExitNoView;
  }
  fineserve::driver::CUdevice device = 0;
  fineserve::driver::CUcontext context;
  STOCK_ENGINE_CALL(cuInit, 0);
  STOCK_ENGINE_CALL(cuDeviceGet, &device, 0);
  STOCK_ENGINE_CALL(cuDevicePrimaryCtxRetain, &context, device);
  STOCK_ENGINE_CALL(cuCtxSetCurrent, context);
  bool right;
  {
    ViewEngine engine(options);
    if (options.child_outlives_ms > 0) ForkChild(options.child_outlives_ms);
    right = options.random_seconds > 0 ? engine.Random() : engine.Hold();
  }
  STOCK_ENGINE_CALL(cuDevicePrimaryCtxRelease_v2, device);
  return right ? 0 : kExitMismatch;
}

}  // namespace
}  // namespace stock_engine

int main(int argc, char** argv) {
  // Tests read stdout through a pipe and wait for whole lines.
  setvbuf(stdout, nullptr, _IOLBF, 0);
  return stock_engine::Run(stock_engine::ParseViewOptions(argc, argv));
}
