#include "tools/lab/engines/ranks/lease_times.h"

#include <unistd.h>

#include <chrono>
#include <cstdio>

#include "tools/lab/engines/ranks/failures.h"

namespace stock_engine {
namespace {

using Clock = std::chrono::steady_clock;

// Time for the daemon to zero the returned slab.
constexpr useconds_t kSettleUs = 3000;

// Waits as an idle engine does, and returns the next slab that is leased.
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

}  // namespace

std::string TimeLeases(uint32_t count) {
  // The engine holds its floor of one slab until the end.
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

}  // namespace stock_engine
