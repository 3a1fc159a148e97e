// A program that is in a special state when it allocates: the capture of its
// stack must not touch that state, or wait for it. One command:
// clang-format off
//
//   closed            allocates, closes every descriptor from 3 on, opens
//                     sockets at those numbers, allocates from elsewhere:
//                     "closed kept" if each socket still holds its message
//   constructor FILE  opens FILE in a thread, and allocates while its
//                     constructor waits for a lock of ours: "constructor done"
//   own FILE          allocates, then opens FILE: "own 2", the number of its
//                     dependencies that are those beside it
//
// clang-format on

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <mutex>
#include <semaphore>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "kernels/driver/prototypes.h"

namespace {

constexpr size_t kLarge = 4 << 20;
constexpr std::string_view kMessage = "kept";

std::mutex g_allocating;  // as PyTorch's allocator has one
std::binary_semaphore g_in_constructor{0};

bool Allocate(size_t bytes = kLarge) {
  fineserve::driver::CUdeviceptr address;
  return fineserve::driver::cuMemAlloc_v2(&address, bytes) == 0;
}

// Allocates far down the stack, so that other pages of it hold frames of other
// code.
[[gnu::noinline]] bool AllocateFarBelow(int depth) {
  volatile char page[6000];
  page[0] = 1;
  const bool done = depth == 0 ? Allocate() : AllocateFarBelow(depth - 1);
  page[1] = page[0];
  return done;
}

// Returns a socket that holds the message; its other end stays open.
int SocketWithMessage() {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends) != 0 ||
      write(ends[1], kMessage.data(), kMessage.size()) < 0 ||
      write(ends[0], kMessage.data(), kMessage.size()) < 0) {
    return -1;
  }
  return ends[0];
}

bool HoldsMessage(int fd) {
  char text[64];
  const ssize_t n = recv(fd, text, sizeof(text), MSG_DONTWAIT);
  return n >= 0 && std::string_view(text, n) == kMessage;
}

void AllocateWithClosedDescriptors() {
  alarm(20);
  bool kept = Allocate();
  for (int fd = 3; fd < 256; ++fd) close(fd);
  for (int i = 0; i < 8; ++i) kept = SocketWithMessage() >= 0 && kept;
  kept = AllocateFarBelow(5) && kept;
  for (int fd = 3; fd < 3 + 2 * 8; ++fd) kept = HoldsMessage(fd) && kept;
  printf("closed %s\n", kept ? "kept" : "changed");
}

void AllocateDuringConstructor(const char* file) {
  alarm(20);
  const bool known = Allocate(512);  // the driver: that takes the loader's lock
  std::unique_lock lock(g_allocating);
  std::thread opening([file] {
    if (dlopen(file, RTLD_NOW) == nullptr) g_in_constructor.release();
  });
  g_in_constructor.acquire();
  const bool done = Allocate();
  lock.unlock();
  opening.join();
  printf("constructor %s\n", known && done ? "done" : "failed");
}

void OpenAfterAllocating(const char* file) {
  const bool allocated = Allocate();
  void* const library = dlopen(file, RTLD_NOW);
  using Count = int (*)();
  const auto count =
      library == nullptr
          ? nullptr
          : reinterpret_cast<Count>(dlsym(library, "own_dependencies"));
  if (!allocated || count == nullptr) {
    printf("own %s\n", allocated ? dlerror() : "no memory");
  } else {
    printf("own %d\n", count());
  }
}

}  // namespace

// Called by the constructor of the library FILE.
extern "C" void stack_host_wait() {
  g_in_constructor.release();
  const std::lock_guard lock(g_allocating);
}

int main(int argc, char** argv) {
  const std::string command = argc > 1 ? argv[1] : "";
  if (command == "closed") AllocateWithClosedDescriptors();
  if (command == "constructor" && argc > 2) AllocateDuringConstructor(argv[2]);
  if (command == "own" && argc > 2) OpenAfterAllocating(argv[2]);
  return 0;
}
