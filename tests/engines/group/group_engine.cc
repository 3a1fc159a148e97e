// An engine that spans GPUs: this process runs the block pool and has no GPU;
// each rank is a child process with a view of its GPU's pool. `--help` lists
// what it does.
//
// stdout, one line each, flushed:
//   ranks 4712 4713
//   ready slabs=23 floor=1 cap=23
//   ok … | error …                       one answer per command

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <memory>
#include <sstream>
#include <string>

#include "tests/engines/device_memory.h"
#include "tests/engines/group/failures.h"
#include "tests/engines/group/group_options.h"
#include "tests/engines/group/group_pool.h"
#include "tests/engines/group/ranks.h"

namespace stock_engine {
namespace {

// A view of one GPU's pool and what is done with its slabs: one plane, filled
// and read back by work in a stream. Any failure prints a line and exits.
// Not thread-safe.
class RankMemory {
 public:
  // Registers and activates the view; `flags` are those of fs_kv_format.
  RankMemory(int device, uint32_t floor_blocks, uint32_t flags);
  RankMemory(const RankMemory&) = delete;
  RankMemory& operator=(const RankMemory&) = delete;

  const fs_kv_geometry& geometry() const { return geometry_; }

  void Fill(uint32_t slab, uint32_t word);
  Answer Check(uint32_t slab, uint32_t word);
  void Sync();

 private:
  CUdeviceptr At(uint32_t slab) const {
    return tensor_ + slab * geometry_.plane_bytes;
  }

  fs_kv_geometry geometry_ = {};
  CUdeviceptr tensor_ = 0;
  CUstream stream_ = nullptr;
  uint32_t* read_ = nullptr;  // pinned: one slab
};

constexpr uint32_t kPageBytes = 64 << 10;
constexpr unsigned kRubbish = 0xffffffff;

void UseDevice(int ordinal) {
  fineserve::driver::CUdevice device = 0;
  fineserve::driver::CUcontext context;
  STOCK_ENGINE_CALL(cuInit, 0);
  STOCK_ENGINE_CALL(cuDeviceGet, &device, ordinal);
  STOCK_ENGINE_CALL(cuDevicePrimaryCtxRetain, &context, device);
  STOCK_ENGINE_CALL(cuCtxSetCurrent, context);
}

RankMemory::RankMemory(int device, uint32_t floor_blocks, uint32_t flags) {
  UseDevice(device);
  Require(fs_kv_progress(FS_KV_POOL_REPLACED), "fs_kv_progress");
  fs_kv_format format = {};
  format.struct_bytes = sizeof(format);
  format.mode = FS_KV_VIEW;
  format.planes = format.planes_per_allocation = 1;
  format.page_bytes = kPageBytes;
  format.block_tokens = 16;
  format.flags = flags;
  format.floor_blocks = floor_blocks;
  geometry_.struct_bytes = sizeof(geometry_);
  Require(fs_kv_register(&format, &geometry_), "fs_kv_register");
  const size_t bytes = geometry_.blocks * kPageBytes;
  fs_kv_begin();
  STOCK_ENGINE_CALL(cuMemAlloc_v2, &tensor_, bytes);
  fs_kv_end();
  STOCK_ENGINE_CALL(cuStreamCreate, &stream_, 0);
  STOCK_ENGINE_CALL(cuMemAllocHost_v2, reinterpret_cast<void**>(&read_),
                    geometry_.plane_bytes);
  // As an engine warms up on its scratch.
  STOCK_ENGINE_CALL(cuMemsetD32Async, tensor_, kRubbish, bytes / 4, stream_);
  Require(fs_kv_progress(FS_KV_POOL_CONSTRUCTED), "fs_kv_progress");
  Require(fs_kv_activate(), "fs_kv_activate");
}

void RankMemory::Fill(uint32_t slab, uint32_t word) {
  STOCK_ENGINE_CALL(cuMemsetD32Async, At(slab), word, geometry_.plane_bytes / 4,
                    stream_);
}

Answer RankMemory::Check(uint32_t slab, uint32_t word) {
  // The buffer's bytes must match no expectation if the copy never runs.
  memset(read_, 0xcd, geometry_.plane_bytes);
  STOCK_ENGINE_CALL(cuMemcpyDtoHAsync_v2, read_, At(slab),
                    geometry_.plane_bytes, stream_);
  Sync();
  for (uint32_t i = 0; i < geometry_.plane_bytes / 4; ++i) {
    if (read_[i] != word) return {slab, 1, i, word, read_[i]};
  }
  return {slab, 0, 0, word, word};
}

void RankMemory::Sync() { STOCK_ENGINE_CALL(cuStreamSynchronize, stream_); }

// Is a rank: says hello on stdout and obeys orders from stdin to its end.
int RunRank(const GroupOptions& options) {
  // Error lines must not get among the answers.
  const int answers = fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 3);
  dup2(STDERR_FILENO, STDOUT_FILENO);
  const auto rank = static_cast<size_t>(options.rank);
  RankMemory memory(options.gpus[rank], options.floor_blocks, FS_KV_RANK);
  RankHello hello = {};
  hello.geometry = memory.geometry();
  hello.rank.struct_bytes = sizeof(hello.rank);
  Require(fs_kv_read_rank(&hello.rank), "fs_kv_read_rank");
  if (!WriteAll(answers, &hello, sizeof(hello))) return 0;
  Order order;
  while (ReadAll(STDIN_FILENO, &order, sizeof(order))) {
    if (order.ask == Ask::kFill) {
      memory.Fill(order.slab, order.word);
      continue;
    }
    Answer answer = {order.slab, 0, 0, order.word, order.word};
    if (order.ask == Ask::kCheck) {
      answer = memory.Check(order.slab, order.word);
    } else {
      memory.Sync();
    }
    if (!WriteAll(answers, &answer, sizeof(answer))) break;
  }
  return 0;  // its parent has ended
}

using Clock = std::chrono::steady_clock;

// For the daemon to zero what came back.
constexpr useconds_t kSettleUs = 3000;

// The next slab that is leased, as an idle engine waits for it.
uint32_t AwaitLease() {
  for (;;) {
    fs_kv_change change;
    const int count = fs_kv_poll(&change, 1);
    if (count < 0) Require(-count, "fs_kv_poll");
    if (count == 1 && change.kind == FS_KV_LEASED) return change.view_index;
    const int woken = fs_kv_wait(100);
    if (woken < 0) Require(-woken, "fs_kv_wait");
  }
}

// Wants one slab more and gives it back, `count` times. Returns how long each
// took from fs_kv_want to FS_KV_LEASED, in microseconds: "12.3 14.0 …". The
// engine must have its own block pool and nothing else to do.
std::string TimeLeases(uint32_t count) {
  // The floor, which it has until the end.
  Require(fs_kv_want(1), "fs_kv_want");
  const uint32_t first = AwaitLease();
  std::string times;
  for (uint32_t i = 0; i < count; ++i) {
    usleep(kSettleUs);
    const auto start = Clock::now();
    Require(fs_kv_want(2), "fs_kv_want");
    const uint32_t slab = AwaitLease();
    const std::chrono::duration<double, std::micro> took = Clock::now() - start;
    char text[32];
    snprintf(text, sizeof(text), "%s%.1f", i == 0 ? "" : " ", took.count());
    times += text;
    Require(fs_kv_want(1), "fs_kv_want");
    Require(fs_kv_return_slab(slab), "fs_kv_return_slab");
    fs_kv_change none;
    fs_kv_poll(&none, 1);  // sends it
  }
  Require(fs_kv_want(0), "fs_kv_want");
  Require(fs_kv_return_slab(first), "fs_kv_return_slab");
  fs_kv_change none;
  fs_kv_poll(&none, 1);
  return times;
}

void SayReady(const fs_kv_geometry& geometry) {
  printf("ready slabs=%u floor=%u cap=%u\n", geometry.slab_count,
         geometry.floor_slabs, geometry.cap_slabs);
}

bool InputWaits() {
  if (std::cin.rdbuf()->in_avail() > 0) return true;
  pollfd input = {STDIN_FILENO, POLLIN, 0};
  return poll(&input, 1, 0) > 0;
}

// Obeys lines until "exit" or the end, and lets `pool` make a step whenever
// there is none.
void Serve(GroupPool* pool) {
  for (;;) {
    while (pool != nullptr && !InputWaits()) pool->Step();
    std::string line;
    if (!std::getline(std::cin, line) || line == "exit") break;
    std::istringstream words(line);
    std::string command;
    uint32_t count = 0;
    words >> command >> count;
    if (command == "stats" && pool != nullptr) {
      printf("ok %s\n", pool->Stats().c_str());
    } else if (command == "lease" && pool == nullptr) {
      printf("ok %s\n", TimeLeases(count).c_str());
    } else {
      printf("error unknown command '%s'\n", command.c_str());
    }
  }
  puts("ok exit");
}

int RunAlone(const GroupOptions& options) {
  const RankMemory memory(options.gpus[0], options.floor_blocks, /*flags=*/0);
  SayReady(memory.geometry());
  Serve(nullptr);
  return 0;
}

int RunParent(const GroupOptions& options) {
  signal(SIGPIPE, SIG_IGN);  // a rank that has ended is an answer
  Ranks ranks(options);
  const std::vector<fs_kv_rank> joined = ranks.ReadHellos();
  fs_kv_geometry geometry = {};
  geometry.struct_bytes = sizeof(geometry);
  Require(fs_kv_join_ranks(joined.data(), static_cast<uint32_t>(joined.size()),
                           &geometry),
          "fs_kv_join_ranks");
  SayReady(geometry);
  std::unique_ptr<GroupPool> pool;
  if (options.random) {
    pool = std::make_unique<GroupPool>(&ranks, geometry, options.seed);
  }
  Serve(pool.get());
  return 0;
}

int Run(const GroupOptions& options) {
  if (fs_kv_register == nullptr) {
    puts("error no shim: start it under fsctl run, or set LD_PRELOAD");
    return kExitNoView;
  }
  if (options.rank >= 0) return RunRank(options);
  return options.alone ? RunAlone(options) : RunParent(options);
}

}  // namespace
}  // namespace stock_engine

int main(int argc, char** argv) {
  // Tests read through a pipe and wait for lines.
  setvbuf(stdout, nullptr, _IOLBF, 0);
  return stock_engine::Run(stock_engine::ParseGroupOptions(argc, argv));
}
