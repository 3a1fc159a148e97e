#include "daemon/proxy/page/gpu_watch.h"

#include <errno.h>
#include <sys/socket.h>

#include <algorithm>
#include <utility>

#include "absl/time/clock.h"
#include "daemon/contract/finding/daemon_sockets.h"

namespace fineserve::proxy {
namespace {

// A daemon sends nothing to an observer. If the socket becomes readable, the
// daemon has ended.
bool HasEnded(int socket) {
  char byte;
  const ssize_t n = recv(socket, &byte, sizeof(byte), MSG_DONTWAIT);
  return n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR);
}

void SetAnswers(bool answers, GpuSight* sight) {
  if (sight->since_ms != 0 && sight->answers == answers) return;
  sight->answers = answers;
  sight->since_ms = absl::ToUnixMillis(absl::Now());
}

}  // namespace

uint64_t PresentBytes(const abi::TableSnapshot& table) {
  const auto present = std::count_if(
      table.slabs.begin(), table.slabs.end(), [](const auto& slab) {
        return slab.word.state != abi::SlabState::kAbsent;
      });
  return static_cast<uint64_t>(present) * table.slab_bytes();
}

std::vector<GpuSight> GpuWatch::Look() {
  const uint64_t now_ns = clock_->NowNs();
  const bool relook = now_ns >= relook_ns_;
  if (relook) {
    relook_ns_ = now_ns + kRelookNs;
    FindMore();
  }
  std::vector<GpuSight> sights;
  for (auto& [name, gpu] : gpus_) {
    if (gpu.link && HasEnded(gpu.link->socket.get())) {
      gpu.link.reset();
      gpu.sight.why = "the daemon has ended";
    }
    if (!gpu.link && relook) Connect(&gpu);
    SetAnswers(gpu.link.has_value(), &gpu.sight);
    Read(&gpu);
    sights.push_back(gpu.sight);
  }
  return sights;
}

void GpuWatch::FindMore() {
  for (const std::string& socket : finding::ListSockets(folder_)) {
    const std::string name = finding::GpuOfSocket(socket);
    if (gpus_.size() >= kMostGpus || gpus_.count(name) != 0) continue;
    Watched gpu;
    gpu.socket = socket;
    gpu.sight.name = name;
    gpus_.emplace(name, std::move(gpu));
  }
}

void GpuWatch::Connect(Watched* gpu) {
  absl::StatusOr<abi::ObserverLink> link =
      abi::ConnectObserver(gpu->socket, kPatience);
  absl::Status s = link.status();
  if (s.ok()) {
    absl::StatusOr<abi::TableReader> reader =
        abi::TableReader::Map(link->table.get());
    s = reader.status();
    if (s.ok()) gpu->reader.emplace(*std::move(reader));
  }
  if (s.ok()) {
    gpu->sight.why.clear();
    gpu->link.emplace(*std::move(link));
  } else {
    gpu->sight.why = std::string(s.message());
  }
}

void GpuWatch::Read(Watched* gpu) {
  if (!gpu->reader) return;
  absl::StatusOr<abi::TableSnapshot> table = gpu->reader->Read();
  if (table.ok()) {
    gpu->sight.table = *std::move(table);
  } else {
    gpu->sight.why = std::string(table.status().message());
  }
}

}  // namespace fineserve::proxy
