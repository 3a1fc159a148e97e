// An LLM engine for tests and the demo: HTTP as vLLM serves it, continuous
// batching, KV in device memory, tokens computed from the KV. It uses of
// FineServe what a stock engine with our plugin uses: shim/fineserve_kv.h, by
// weak symbols. `--help` lists its options; scripts/design/0013 gives the
// reasons.

#include <unistd.h>

#include <chrono>
#include <cinttypes>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <memory>
#include <sstream>
#include <string>
#include <thread>

#include "kernels/driver/rounding.h"
#include "tools/lab/engines/device_memory.h"
#include "tools/lab/engines/engine_flags.h"
#include "tools/lab/engines/tinyserve/engine/engine.h"
#include "tools/lab/engines/tinyserve/http/http_server.h"
#include "tools/lab/engines/tinyserve/http/service.h"
#include "tools/lab/engines/tinyserve/kv/kv_store.h"
#include "tools/lab/engines/tinyserve/kv/leased_blocks.h"
#include "tools/lab/engines/weak_kv.h"

namespace tinyserve {
namespace {

enum class Mode { kView, kGuarded, kStrict };

struct Options {
  EngineSettings engine;
  KvFormat format;
  std::string host = "127.0.0.1";
  uint16_t port = 8000;
  bool view = false;
  size_t weights_bytes = 0;
  size_t tensor_bytes = 4 << 20;  // each of them
  bool freeze = false;  // says that they are parameters (fs_weights_freeze)
  double load_s = 0;    // that it takes from its memory to its first answer
  Mode mode = Mode::kView;
  // Number of blocks of each plane. If it is 0, with a view as many as the pool
  // has, otherwise enough for eight requests of the longest length.
  uint32_t blocks = 0;
  uint32_t floor_blocks = 0;  // 0: the longest request's
  bool lines = false;         // obeys lines from stdin
  bool logs_requests = false;
};

constexpr char kAbout[] =
    "an LLM engine for tests. It serves vLLM's HTTP dialect, runs\n"
    "continuous batching with paged KV in device memory, and computes each\n"
    "token from the KV that it reads back.\n";

constexpr char kMore[] =
    "prints: ready port=8000 pid=4711 blocks=2048\n"
    "paths: /v1/completions /v1/chat/completions /v1/models /tokenize\n"
    "  /health /version /metrics, and POST /fault/error (every second request\n"
    "  from now on is answered 500), /fault/reset, /fault/none, /fault/hang\n"
    "  (SIGSTOP), /fault/die\n"
    "exit: 0 ok (SIGTERM), 1 cannot listen, 2 usage, 3 CUDA error, 4 no KV,\n"
    "  5 no view\n"
    "\n"
    "  tinyserve --model llama --port 8000 --speed 10 &\n"
    "  curl localhost:8000/v1/completions -H 'Content-Type: application/json'\n"
    "    -d '{\"model\": \"llama\", \"prompt\": \"hello\", \"stream\": "
    "true}'\n";

constexpr uint32_t kMost = 1 << 30;

using stock_engine::EngineFlags;

void AddServer(EngineFlags* flags, Options* o) {
  flags->Text("model", "the model that it serves (tiny)", &o->engine.model);
  flags->Text("host", "address to listen on (127.0.0.1)", &o->host);
  flags->Count("port", "0: any, printed (8000)", &o->port);
  flags->Flag("lines",
              "obeys lines from stdin: stats | flip (a bit of KV) |\n"
              "hold TOKENS (stops when an answer has so many) |\n"
              "continue",
              &o->lines);
  flags->Flag("log-requests",
              "prints a line on stderr for each request:\n"
              "request ID traceparent VALUE",
              &o->logs_requests);
}

void AddKv(EngineFlags* flags, Options* o) {
  flags->Count("planes", "of the KV (1)", &o->format.planes, 1, 1024);
  flags->Bytes("page", "of one block in one plane (64KiB)",
               &o->format.page_bytes);
  flags->Count("block-tokens", "of a block (16)", &o->format.block_tokens, 1,
               4096);
  flags->Count("blocks",
               "of each plane (0: with a view the pool's, else for\n"
               "8 of the longest requests)",
               &o->blocks, 0, kMost);
  flags->Flag("view",
              "has a view of FineServe's pool; also by\n"
              "FINESERVE_VIEW",
              &o->view);
  flags->Bytes("weights",
               "on the GPU besides KV; each step reads some of\n"
               "each tensor (none)",
               &o->weights_bytes);
  flags->Bytes("tensor", "size of each tensor of the weights (4MiB)",
               &o->tensor_bytes);
  flags->Flag("freeze",
              "tells FineServe that the weights are parameters,\n"
              "which it never writes again",
              &o->freeze);
  flags->Real("load-s", "seconds that loading them takes (0)", &o->load_s);
  flags->OneOf<Mode>("mode", "view, guarded or strict (view)", &o->mode,
                     {{"view", Mode::kView},
                      {"guarded", Mode::kGuarded},
                      {"strict", Mode::kStrict}});
  flags->Count("floor",
               "blocks that it always holds (0: the longest\n"
               "request's)",
               &o->floor_blocks, 0, kMost);
}

void AddSteps(EngineFlags* flags, EngineSettings* to) {
  flags->Count("max-model-len", "tokens of prompt and answer (4096)",
               &to->limits.model_tokens, 2, kMost);
  flags->Count("max-num-seqs", "sequences that run at once (64)",
               &to->limits.most_sequences, 1, 1 << 16);
  flags->Count("max-num-batched-tokens", "tokens of one step (2048)",
               &to->limits.step_tokens, 1, kMost);
  flags->Count("checked-blocks",
               "blocks of a sequence that each step reads\n"
               "besides the newest; the last reads all (2)",
               &to->checked_blocks, 0, kMost);
  flags->Real("step-base-us", "the time of a step (7600),", &to->cost.base_us);
  flags->Real("step-token-us", "plus for each prompt token (16),",
              &to->cost.per_token_us);
  flags->Real("step-sequence-us", "plus for each decoded sequence (64),",
              &to->cost.per_sequence_us);
  flags->Real("speed", "divided by this (1)", &to->cost.speed);
}

// Parses the command line; on a mistake prints one line and exits with 2.
Options ParseOptions(int argc, char** argv) {
  Options options;
  options.engine.model = "tiny";
  const char* view = getenv("FINESERVE_VIEW");
  options.view = view != nullptr && *view != '\0' && strcmp(view, "0") != 0;
  EngineFlags flags("tinyserve", kAbout, kMore);
  AddServer(&flags, &options);
  AddKv(&flags, &options);
  AddSteps(&flags, &options.engine);
  flags.Parse(argc, argv);
  if (options.engine.cost.speed == 0) flags.Refuse("--speed is 0");
  const KvFormat& format = options.format;
  if (format.page_bytes % (size_t{8} * format.block_tokens) != 0) {
    flags.Refuse(
        "--page must be a multiple of 8 bytes for each of "
        "--block-tokens");
  }
  options.engine.limits.block_tokens = format.block_tokens;
  return options;
}

inline constexpr int kExitNoView = 5;

// The part of an engine's plugin that gives the engine a view of FineServe's
// pool (shim/fineserve_kv.h). If one of the two steps fails, it prints the
// reason in one line and exits with kExitNoView.

[[noreturn]] void NoView(const char* function, const char* why) {
  printf("error %s %s\n", function, why);
  fprintf(stderr, "tinyserve: no view: %s: %s\n", function, why);
  exit(kExitNoView);
}

void Require(int result, const char* function) {
  if (result != FS_OK) NoView(function, fs_kv_error());
}

uint32_t ModeNumber(Mode mode) {
  switch (mode) {
    case Mode::kView:
      return FS_KV_VIEW;
    case Mode::kGuarded:
      return FS_KV_GUARDED;
    case Mode::kStrict:
      return FS_KV_STRICT;
  }
  return 0;
}

uint64_t Floor(const Options& options) {
  if (options.floor_blocks > 0) return options.floor_blocks;
  const Limits& limits = options.engine.limits;
  return fineserve::DivideUp(limits.model_tokens, limits.block_tokens);
}

// Call before the tensors are allocated. Returns the number of blocks that each
// tensor needs.
uint32_t RegisterView(const Options& options) {
  if (fs_kv_register == nullptr) {
    NoView("fs_kv_register",
           "no shim: start it under fsctl run, or set LD_PRELOAD");
  }
  Require(fs_kv_progress(FS_KV_PLUGIN_LOADED), "fs_kv_progress");
  Require(fs_kv_progress(FS_KV_POOL_REPLACED), "fs_kv_progress");
  fs_kv_format format = {};
  format.struct_bytes = sizeof(format);
  format.mode = ModeNumber(options.mode);
  format.planes = options.format.planes;
  format.planes_per_allocation = 1;
  format.page_bytes = options.format.page_bytes;
  format.blocks = options.blocks;
  format.block_tokens = options.format.block_tokens;
  format.floor_blocks = Floor(options);
  fs_kv_geometry geometry = {};
  geometry.struct_bytes = sizeof(geometry);
  Require(fs_kv_register(&format, &geometry), "fs_kv_register");
  return static_cast<uint32_t>(geometry.blocks);
}

// Call after warm-up. From then on only leased blocks may be used.
void ActivateView() {
  Require(fs_kv_progress(FS_KV_POOL_CONSTRUCTED), "fs_kv_progress");
  Require(fs_kv_activate(), "fs_kv_activate");
}

using namespace fineserve::driver;  // NOLINT: this file calls CUDA

constexpr int kExitCannotListen = 1;
// By default, blocks suffice for this many requests of the longest length.
constexpr uint32_t kLongestRequests = 8;

// The primary context of device 0, current in the thread that opens it.
class Device {
 public:
  Device() {
    STOCK_ENGINE_CALL(cuInit, 0);
    STOCK_ENGINE_CALL(cuDeviceGet, &device_, 0);
    STOCK_ENGINE_CALL(cuDevicePrimaryCtxRetain, &context_, device_);
    MakeCurrent();
  }
  ~Device() { STOCK_ENGINE_CALL(cuDevicePrimaryCtxRelease_v2, device_); }
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  void MakeCurrent() const { STOCK_ENGINE_CALL(cuCtxSetCurrent, context_); }

 private:
  CUdevice device_ = 0;
  CUcontext context_ = nullptr;
};

uint32_t BlocksOfLongest(const Limits& limits) {
  return fineserve::DivideUp(limits.model_tokens, limits.block_tokens);
}

// Returns the number of blocks without a view. Ends the program if the longest
// request does not fit.
uint32_t OwnBlockCount(const Options& options) {
  const Limits& limits = options.engine.limits;
  const uint32_t longest = BlocksOfLongest(limits);
  if (options.blocks == 0) return 1 + longest * kLongestRequests;
  if (options.blocks <= longest) {
    fprintf(stderr,
            "tinyserve: --blocks %u do not hold a request of --max-model-len "
            "%u: %u do\n",
            options.blocks, limits.model_tokens, longest + 1);
    exit(stock_engine::kExitNoKvMemory);
  }
  return options.blocks;
}

std::unique_ptr<KvStore> MakeStore(const Options& options, uint32_t blocks) {
  auto store = std::make_unique<KvStore>(options.format, blocks);
  std::string why;
  if (!store->Allocate(options.view, &why)) {
    printf("error %s\n", why.c_str());
    fprintf(stderr, "tinyserve: no memory for %u blocks of KV: %s\n", blocks,
            why.c_str());
    exit(stock_engine::kExitNoKvMemory);
  }
  store->WarmUp();
  return store;
}

void SayStats(const Metrics& m) {
  printf("ok running=%" PRIu64 " waiting=%" PRIu64 " preemptions=%" PRIu64
         " usage=%.6f aborted=%" PRIu64 " late_steps=%" PRIu64 "\n",
         m.running, m.waiting, m.preemptions, m.kv_usage, m.finished_abort,
         m.late_steps);
}

// Answers each line of stdin with one line, until stdin ends. "hold" is
// answered once the engine holds.
void ObeyLines(Engine* engine) {
  for (std::string line; std::getline(std::cin, line);) {
    std::istringstream words(line);
    std::string command;
    uint32_t tokens = 0;
    words >> command >> tokens;
    if (command == "stats") {
      SayStats(engine->metrics());
    } else if (command == "flip") {
      engine->Do([engine] {
        puts(engine->Corrupt() ? "ok flipped" : "error nothing runs");
      });
    } else if (command == "hold" && tokens > 0) {
      engine->Do([engine, tokens] {
        engine->HoldAfter(tokens, [] { puts("ok holding"); });
      });
    } else if (command == "continue") {
      engine->Do([engine] {
        engine->Continue();
        puts("ok continued");
      });
    } else {
      printf("error no command '%s'\n", line.c_str());
    }
  }
}

int Serve(const Options& options, const Device& device, BlockSource* blocks,
          KvStore* store, Weights* weights, uint32_t block_count) {
  Engine engine(options.engine, blocks, store, weights);
  if (options.view) engine.WatchLeases();
  std::thread loop([&] {
    device.MakeCurrent();
    engine.Run();
  });
  if (options.lines) std::thread(ObeyLines, &engine).detach();
  Service service({options.engine.model, options.engine.limits.model_tokens},
                  &engine);
  if (options.logs_requests) service.LogRequests();
  const auto stop = [&] {
    engine.Stop();
    loop.join();
  };
  const auto say_ready = [&](uint16_t port) {
    printf("ready port=%u pid=%d blocks=%u\n", port, getpid(), block_count);
  };
  std::string why;
  if (ServeHttp(options.host, options.port, &service, {say_ready, stop},
                &why)) {
    return 0;
  }
  stop();
  fprintf(stderr, "tinyserve: cannot listen on %s\n", why.c_str());
  return kExitCannotListen;
}

int Run(const Options& options) {
  const Device device;
  const uint32_t count =
      options.view ? RegisterView(options) : OwnBlockCount(options);
  Weights weights(options.weights_bytes, options.tensor_bytes);
  if (options.freeze) weights.Freeze();
  const std::unique_ptr<KvStore> store = MakeStore(options, count);
  if (options.view) ActivateView();
  std::unique_ptr<BlockSource> blocks;
  if (options.view) {
    blocks = std::make_unique<LeasedBlocks>();
  } else {
    blocks = std::make_unique<OwnBlocks>(count);
  }
  std::this_thread::sleep_for(std::chrono::duration<double>(options.load_s));
  return Serve(options, device, blocks.get(), store.get(), &weights, count);
}

}  // namespace
}  // namespace tinyserve

int main(int argc, char** argv) {
  // Tests read stdout through a pipe and wait for whole lines.
  setvbuf(stdout, nullptr, _IOLBF, 0);
  return tinyserve::Run(tinyserve::ParseOptions(argc, argv));
}
