#include "tests/conformance/collectives.h"

#include <dlfcn.h>

#include <array>
#include <cstdlib>
#include <cstring>
#include <string>

#include "tests/conformance/session.h"

namespace fineserve::conformance {
namespace {

constexpr size_t kIdWords = sizeof(ncclUniqueId) / sizeof(uint64_t);

// The library loads "libcudart.so.13", so it gets the runtime that is already
// loaded under that name.
void* NcclLibrary() {
  static void* const library = [] {
    EXPECT_NE(RuntimeLibrary(), nullptr);
    const char* named = getenv("FINESERVE_LIBNCCL");
    const std::string path =
        named != nullptr ? named : EmulatedLibrary("libnccl.so.2");
    void* loaded = dlopen(path.c_str(), RTLD_NOW);
    EXPECT_NE(loaded, nullptr) << dlerror();
    return loaded;
  }();
  return library;
}

NcclFunctions FindNcclFunctions() {
  NcclFunctions functions;
#define FINESERVE_FIND(name, args) \
  functions.name =                 \
      reinterpret_cast<decltype(functions.name)>(FindInNccl(#name));
  EMUCUDA_NCCL_API(FINESERVE_FIND)
#undef FINESERVE_FIND
  return functions;
}

void SendId(Channel& channel, const ncclUniqueId& id) {
  std::array<uint64_t, kIdWords> words;
  memcpy(words.data(), &id, sizeof(id));
  for (const uint64_t word : words) channel.Send(word);
}

ncclUniqueId ReceiveId(Channel& channel) {
  std::array<uint64_t, kIdWords> words;
  for (uint64_t& word : words) word = channel.Receive();
  ncclUniqueId id;
  memcpy(&id, words.data(), sizeof(id));
  return id;
}

// Starts a process for one rank, which receives the communicator's id from its
// parent.
std::unique_ptr<Peer> Fork(int rank, int ranks,
                           const std::function<void(Rank&, Channel&)>& body) {
  return std::make_unique<Peer>([=](Channel& channel) {
    Rank self(rank, ranks);
    self.Join(ReceiveId(channel));
    body(self, channel);
  });
}

Rank JoinFirst(int ranks, const std::vector<std::unique_ptr<Peer>>& peers) {
  ncclUniqueId id;
  EXPECT_EQ(Nccl().ncclGetUniqueId(&id), ncclSuccess);
  for (const auto& peer : peers) SendId(peer->channel(), id);
  Rank self(0, ranks);
  self.Join(id);
  return self;
}

}  // namespace

void* FindInNccl(const char* name) {
  void* const found = dlsym(NcclLibrary(), name);
  EXPECT_NE(found, nullptr) << name;
  return found;
}

const NcclFunctions& Nccl() {
  static const NcclFunctions functions = FindNcclFunctions();
  return functions;
}

void Rank::Join(const ncclUniqueId& id) {
  ASSERT_EQ(Runtime().cudaSetDevice(rank_), cudaSuccess);
  ASSERT_EQ(Runtime().cudaStreamCreate(&stream_), cudaSuccess);
  ASSERT_EQ(Nccl().ncclCommInitRank(&comm_, ranks_, id, rank_), ncclSuccess);
}

char* Rank::Allocate(size_t bytes) const {
  void* address = nullptr;
  EXPECT_EQ(Runtime().cudaMalloc(&address, bytes), cudaSuccess);
  return static_cast<char*>(address);
}

char* Rank::Upload(const std::vector<char>& bytes) const {
  char* const to = Allocate(bytes.size());
  EXPECT_EQ(Runtime().cudaMemcpy(to, bytes.data(), bytes.size(),
                                 cudaMemcpyHostToDevice),
            cudaSuccess);
  return to;
}

std::vector<char> Rank::Download(const char* from, size_t bytes) const {
  Synchronize();
  std::vector<char> to(bytes);
  EXPECT_EQ(
      Runtime().cudaMemcpy(to.data(), from, bytes, cudaMemcpyDeviceToHost),
      cudaSuccess);
  return to;
}

void Rank::Synchronize() const {
  EXPECT_EQ(Runtime().cudaStreamSynchronize(stream_), cudaSuccess);
}

bool Rank::HasWork() const {
  return Runtime().cudaStreamQuery(stream_) == cudaErrorNotReady;
}

void RunRanks(int ranks, const std::function<void(Rank&)>& body) {
  setenv("EMUCUDA_DEVICES", std::to_string(ranks).c_str(), 1);
  std::vector<std::unique_ptr<Peer>> peers;
  for (int rank = 1; rank < ranks; ++rank) {
    peers.push_back(
        Fork(rank, ranks, [&](Rank& self, Channel&) { body(self); }));
  }
  Rank self = JoinFirst(ranks, peers);
  body(self);
  for (const auto& peer : peers) peer->Join();
}

void RunPair(const std::function<void(Rank&, Peer&)>& first,
             const std::function<void(Rank&, Channel&)>& second) {
  setenv("EMUCUDA_DEVICES", "2", 1);
  std::vector<std::unique_ptr<Peer>> peers;
  peers.push_back(Fork(1, 2, second));
  Rank self = JoinFirst(2, peers);
  first(self, *peers[0]);
}

}  // namespace fineserve::conformance
