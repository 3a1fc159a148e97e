// An engine that spans GPUs: this process runs the block pool and has no GPU;
// each rank is a child process with a view of its GPU's pool. `--help` lists
// what it does.
//
// stdout, one line each, flushed:
//   ranks 4712 4713
//   ready slabs=23 floor=1 cap=23
//   ok … | error …                       one answer per command

#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <iostream>
#include <memory>
#include <sstream>
#include <string>

#include "tools/lab/engines/ranks/failures.h"
#include "tools/lab/engines/ranks/group_options.h"
#include "tools/lab/engines/ranks/group_pool.h"
#include "tools/lab/engines/ranks/http_front.h"
#include "tools/lab/engines/ranks/lease_times.h"
#include "tools/lab/engines/ranks/prompt_pool.h"
#include "tools/lab/engines/ranks/rank_memory.h"
#include "tools/lab/engines/ranks/ranks.h"

namespace stock_engine {
namespace {

void SayReady(const fs_kv_geometry& geometry) {
  printf("ready slabs=%u floor=%u cap=%u\n", geometry.slab_count,
         geometry.floor_slabs, geometry.cap_slabs);
}

bool IsReadable(int fd) {
  pollfd input = {fd, POLLIN, 0};
  return poll(&input, 1, 0) > 0;
}

bool InputWaits() {
  return std::cin.rdbuf()->in_avail() > 0 || IsReadable(STDIN_FILENO);
}

// Its work until there is a line.
void ServeClients(GroupPool* pool, const HttpFront* front) {
  if (front == nullptr) return pool->Step();
  if (!IsReadable(front->descriptor())) return pool->Rest();
  front->ServeOne([pool] { pool->Answer(); });
}

// Obeys lines from stdin until "exit" or the end of input, and lets `pool`
// serve while no line is waiting.
void Serve(GroupPool* pool, const HttpFront* front) {
  for (;;) {
    while (pool != nullptr && !InputWaits()) ServeClients(pool, front);
    std::string line;
    if (!std::getline(std::cin, line) || line == "exit") break;
    std::istringstream words(line);
    std::string command;
    uint32_t count = 0;
    words >> command >> count;
    if (command == "stats" && pool != nullptr) {
      printf("ok %s\n", pool->Stats().c_str());
    } else if (command == "request" && pool != nullptr) {
      pool->Answer();
      puts("ok answered");
    } else if (command == "lease" && pool == nullptr) {
      printf("ok %s\n", TimeLeases(count).c_str());
    } else {
      printf("error unknown command '%s'\n", command.c_str());
    }
  }
  puts("ok exit");
}

// Serves completions and obeys lines until "exit" or the end of input.
void ServePrompts(PromptPool* pool) {
  for (;;) {
    while (!InputWaits()) pool->Step();
    std::string line;
    if (!std::getline(std::cin, line) || line == "exit") break;
    if (line == "finish") {
      pool->Finish();
      puts("ok finished");
    } else {
      printf("ok %s\n", pool->Stats().c_str());
    }
  }
  puts("ok exit");
}

int RunAlone(const GroupOptions& options) {
  const RankMemory memory(options.gpus[0], options.floor_blocks, /*flags=*/0);
  SayReady(memory.geometry());
  Serve(nullptr, nullptr);
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
  if (options.weights_mib != 0) {
    Require(fs_kv_follow(joined.data()), "fs_kv_follow");
    ranks.Introduce();
  }
  SayReady(geometry);
  std::unique_ptr<GroupPool> pool;
  std::unique_ptr<HttpFront> front;
  if (options.port != 0) {
    front = std::make_unique<HttpFront>(static_cast<uint16_t>(options.port));
  }
  if (options.prompts && front != nullptr) {
    PromptPool prompts(&ranks, geometry, front.get());
    ServePrompts(&prompts);
    return 0;
  }
  if (options.random || front != nullptr) {
    pool = std::make_unique<GroupPool>(&ranks, geometry, options.seed,
                                       options.weights_mib != 0);
  }
  Serve(pool.get(), front.get());
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
  // Tests read stdout through a pipe and wait for whole lines.
  setvbuf(stdout, nullptr, _IOLBF, 0);
  return stock_engine::Run(stock_engine::ParseGroupOptions(argc, argv));
}
