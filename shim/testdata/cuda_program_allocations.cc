// cuda_program's commands that allocate, free and ask about memory, and those
// of the C interface.
// clang-format off
//
//   alloc BYTES       allocates: "alloc RESULT shared|own", "shared" meaning
//                     from a reserved range
//   scoped BYTES      the same in a KV scope
//   small COUNT       COUNT allocations of 512 B
//   thread COUNT      the same in a thread that ends
//   threads COUNT     COUNT threads take and free KV at once: "threads N" did
//   free              frees the latest: "free RESULT"
//   inside            frees latest + 1: "inside RESULT"
//   asyncfree         frees the latest in stream order: "asyncfree RESULT"
//   meminfo           cuMemGetInfo without arguments: "meminfo RESULT"
//   ipc               asks for legacy IPC of the latest: "ipc RESULT"
//   unmaps            "unmaps N"
//   register          registers a view: "register RESULT"
//   progress STAGE    "progress RESULT", of fs_kv_progress
//
// clang-format on

#include <stdio.h>
#include <stdlib.h>

#include <atomic>
#include <thread>
#include <vector>

#include "bench/micro/null_driver.h"
#include "shim/fineserve_kv.h"
#include "shim/testdata/cuda_program.h"

extern "C" {
#pragma weak fs_kv_begin
#pragma weak fs_kv_end
#pragma weak fs_kv_progress
#pragma weak fs_kv_register
}

namespace fineserve::shim {
namespace {

using driver::CUdeviceptr;
using driver::CUresult;

// The null driver's addresses for reserved ranges.
constexpr CUdeviceptr kReserved = 0x5000'0000'0000;
constexpr CUdeviceptr kReservedEnd = 0x6000'0000'0000;

CUdeviceptr g_latest = 0;

void PrintAlloc(CUresult result) {
  printf("alloc %u %s\n", result, IsShared(g_latest) ? "shared" : "own");
}

void Small(long count) {
  for (long i = 0; i < count; ++i) {
    CUdeviceptr address;
    driver::cuMemAlloc_v2(&address, 512);
  }
}

void Threads(long count) {
  std::atomic<long> good{0};
  std::vector<std::thread> threads;
  for (long i = 0; i < count; ++i) {
    threads.emplace_back([&good] {
      CUdeviceptr address = 0;
      if (AllocScoped(&address, 4 << 20) == 0 && IsShared(address) &&
          driver::cuMemFree_v2(address) == 0) {
        ++good;
      }
    });
  }
  for (std::thread& t : threads) t.join();
  printf("threads %ld\n", good.load());
}

void AskIpc() {
  driver::CUipcMemHandle handle;
  printf("ipc %u\n", driver::cuIpcGetMemHandle(&handle, g_latest));
}

void RegisterView() {
  fs_kv_format format = {};
  format.struct_bytes = sizeof(format);
  format.mode = FS_KV_VIEW;
  format.planes = format.planes_per_allocation = 1;
  format.page_bytes = 64 << 10;
  fs_kv_geometry geometry = {};
  geometry.struct_bytes = sizeof(geometry);
  printf("register %d\n", fs_kv_register(&format, &geometry));
}

constexpr Command kAllocationCommands[] = {
    {"alloc",
     [](char** words) {
       PrintAlloc(driver::cuMemAlloc_v2(&g_latest, atol(words[0])));
       return 1;
     }},
    {"scoped",
     [](char** words) {
       PrintAlloc(AllocScoped(&g_latest, atol(words[0])));
       return 1;
     }},
    {"small",
     [](char** words) {
       Small(atol(words[0]));
       return 1;
     }},
    {"thread",
     [](char** words) {
       std::thread(Small, atol(words[0])).join();
       return 1;
     }},
    {"threads",
     [](char** words) {
       Threads(atol(words[0]));
       return 1;
     }},
    {"free",
     [](char**) {
       printf("free %u\n", driver::cuMemFree_v2(g_latest));
       return 0;
     }},
    {"inside",
     [](char**) {
       printf("inside %u\n", driver::cuMemFree_v2(g_latest + 1));
       return 0;
     }},
    {"asyncfree",
     [](char**) {
       printf("asyncfree %u\n", driver::cuMemFreeAsync(g_latest, nullptr));
       return 0;
     }},
    {"meminfo",
     [](char**) {
       printf("meminfo %u\n", driver::cuMemGetInfo_v2(nullptr, nullptr));
       return 0;
     }},
    {"unmaps",
     [](char**) {
       printf("unmaps %ld\n", nulldriver_calls("cuMemUnmap"));
       return 0;
     }},
    {"ipc", [](char**) { return AskIpc(), 0; }},
    {"register", [](char**) { return RegisterView(), 0; }},
    {"progress",
     [](char** words) {
       printf("progress %d\n", fs_kv_progress(atoi(words[0])));
       return 1;
     }},
};

}  // namespace

std::span<const Command> AllocationCommands() { return kAllocationCommands; }

CUresult AllocScoped(CUdeviceptr* out, size_t bytes) {
  if (fs_kv_begin != nullptr) fs_kv_begin();
  const CUresult result = driver::cuMemAlloc_v2(out, bytes);
  if (fs_kv_end != nullptr) fs_kv_end();
  return result;
}

bool IsShared(CUdeviceptr address) {
  return address >= kReserved && address < kReservedEnd;
}

}  // namespace fineserve::shim
