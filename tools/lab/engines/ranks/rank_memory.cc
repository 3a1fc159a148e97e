#include "tools/lab/engines/ranks/rank_memory.h"

#include <fcntl.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "tools/lab/engines/ranks/failures.h"
#include "tools/lab/engines/ranks/rank_weights.h"

namespace stock_engine {
namespace {

constexpr uint32_t kPageBytes = 64 << 10;
constexpr unsigned kRubbish = 0xffffffff;
constexpr int kRankBackMs = 100;  // between two asks

void UseDevice(int ordinal) {
  fineserve::driver::CUdevice device = 0;
  fineserve::driver::CUcontext context;
  STOCK_ENGINE_CALL(cuInit, 0);
  STOCK_ENGINE_CALL(cuDeviceGet, &device, ordinal);
  STOCK_ENGINE_CALL(cuDevicePrimaryCtxRetain, &context, device);
  STOCK_ENGINE_CALL(cuCtxSetCurrent, context);
}

}  // namespace

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
  // Writes to the scratch, as an engine's warm-up does.
  STOCK_ENGINE_CALL(cuMemsetD32Async, tensor_, kRubbish, bytes / 4, stream_);
  Require(fs_kv_progress(FS_KV_POOL_CONSTRUCTED), "fs_kv_progress");
  Require(fs_kv_activate(), "fs_kv_activate");
}

void RankMemory::Fill(uint32_t slab, uint32_t word) {
  STOCK_ENGINE_CALL(cuMemsetD32Async, At(slab), word, geometry_.plane_bytes / 4,
                    stream_);
}

Answer RankMemory::Check(uint32_t slab, uint32_t word) {
  // If the copy never runs, the buffer's bytes must not match any expected
  // value.
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

namespace {

void MeetPeers(RankWeights* weights) {
  RankPeers peers;
  if (!ReadAll(STDIN_FILENO, &peers, sizeof(peers))) return;
  Require(fs_kv_follow(&peers.first), "fs_kv_follow");
  weights->Open(peers.shared);
}

// Returns false if the order has no answer.
bool Obey(const Order& order, RankMemory* memory, RankWeights* weights,
          Answer* answer) {
  switch (order.ask) {
    case Ask::kFill:
      memory->Fill(order.slab, order.word);
      return false;
    case Ask::kPeers:
      MeetPeers(weights);
      return false;
    case Ask::kWrite:
      weights->Write(order.word);
      return false;
    case Ask::kCheck:
      *answer = memory->Check(order.slab, order.word);
      return true;
    case Ask::kSync:
      STOCK_ENGINE_CALL(cuCtxSynchronize);
      return true;
    case Ask::kVerify:
      *answer = weights->Verify(order.word);
      return true;
    case Ask::kLeave:
      answer->wrong = fs_kv_leave() == FS_OK ? 0 : 1;
      return true;
    case Ask::kComeBack:
      answer->wrong = fs_kv_come_back(kRankBackMs) > 0 ? 0 : 1;
      return true;
  }
  return false;
}

}  // namespace

int RunRank(const GroupOptions& options) {
  // Error lines must not get mixed up with the answers.
  const int answers = fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 3);
  dup2(STDERR_FILENO, STDOUT_FILENO);
  const auto rank = static_cast<size_t>(options.rank);
  RankMemory memory(options.gpus[rank], options.floor_blocks, FS_KV_RANK);
  RankWeights weights(uint64_t{options.weights_mib} << 20,
                      static_cast<uint32_t>(rank));
  RankHello hello = {};
  hello.shared = weights.Share();
  hello.geometry = memory.geometry();
  hello.rank.struct_bytes = sizeof(hello.rank);
  Require(fs_kv_read_rank(&hello.rank), "fs_kv_read_rank");
  if (!WriteAll(answers, &hello, sizeof(hello))) return 0;
  Order order;
  while (ReadAll(STDIN_FILENO, &order, sizeof(order))) {
    Answer answer = {order.slab, 0, 0, order.word, order.word};
    if (Obey(order, &memory, &weights, &answer) &&
        !WriteAll(answers, &answer, sizeof(answer))) {
      break;
    }
  }
  return 0;  // its parent has ended
}

}  // namespace stock_engine
