// A program for tests of the supervisor: counts its starts in memory that its
// parent keeps, says that it is ready, writes each start to standard output as
// "START n pid", and then does what its arguments say for that start: "wait"
// (until SIGTERM or SIGINT), "kill" (itself), or an exit status. The last
// argument holds for all later starts. If the first argument is "unready", the
// program does not say that it is ready.

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <systemd/sd-daemon.h>
#include <unistd.h>

#include <algorithm>
#include <string>
#include <vector>

#include "daemon/base/descriptor_store.h"

namespace {

using fineserve::holder::DescriptorStore;

constexpr char kName[] = "starts";

int* Starts() {
  DescriptorStore::Named kept = DescriptorStore::TakeAll();
  fineserve::driver::Descriptor memory;
  if (kept.count(kName) != 0) {
    memory = std::move(kept[kName]);
  } else {
    memory.Reset(memfd_create(kName, MFD_CLOEXEC));
    if (ftruncate(memory.get(), sizeof(int)) != 0 ||
        !DescriptorStore::Store(kName, memory.get()).ok() ||
        !DescriptorStore::Flush().ok()) {
      exit(99);
    }
  }
  return static_cast<int*>(mmap(nullptr, sizeof(int), PROT_READ | PROT_WRITE,
                                MAP_SHARED, memory.get(), 0));
}

void OnTerm(int) { _exit(0); }

}  // namespace

int main(int argc, char** argv) {
  std::vector<std::string> acts(argv + 1, argv + argc);
  signal(SIGTERM, OnTerm);
  signal(SIGINT, OnTerm);
  const bool ready = acts.front() != "unready";
  if (!ready) acts.erase(acts.begin());
  const int start = ++*Starts();
  if (ready) sd_notify(0, "READY=1");
  printf("START %d %d\n", start, getpid());
  fflush(stdout);
  const std::string& act =
      acts[std::min(acts.size(), static_cast<size_t>(start)) - 1];
  if (act == "wait") {
    for (;;) pause();
  }
  if (act == "kill") raise(SIGKILL);
  return atoi(act.c_str());
}
