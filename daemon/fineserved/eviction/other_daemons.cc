#include "daemon/fineserved/eviction/other_daemons.h"

#include <poll.h>

#include <algorithm>
#include <atomic>
#include <deque>
#include <memory>
#include <optional>
#include <utility>

#include "absl/time/time.h"
#include "daemon/contract/abi/move_link.h"
#include "daemon/contract/abi/observer_exchange.h"
#include "daemon/contract/abi/observer_link.h"
#include "daemon/contract/abi/transport.h"
#include "daemon/contract/finding/daemon_sockets.h"

namespace fineserve::server {
namespace {

// Returns the sequence of a CarryRequest; it is unique in the process.
uint32_t NextSequence() {
  static std::atomic<uint32_t> next{abi::kObserverSequence + 1};
  return next.fetch_add(1, std::memory_order_relaxed);
}

// The link of another GPU, over which that GPU's daemon copies.
class OtherLink : public store::Link {
 public:
  explicit OtherLink(driver::Descriptor socket) : socket_(std::move(socket)) {}

  bool Carry(const store::Piece& piece) override {
    auto request = abi::MakeMessage<abi::CarryRequest>(NextSequence());
    request.file_offset = piece.whole->file_offset;
    request.memory_bytes = piece.whole->memory.bytes;
    request.offset = piece.offset;
    request.bytes = piece.bytes;
    const int descriptors[] = {piece.whole->file->get(),
                               piece.whole->memory.memory.get()};
    if (abi::Send(socket_.get(), request, descriptors, 2) != 0) return false;
    sent_.push_back({request.header.sequence, std::nullopt});
    return true;
  }

  std::optional<Answer> Take() override {
    pollfd readable = {socket_.get(), POLLIN, 0};
    while (!sent_.empty() && !sent_.front().answer &&
           poll(&readable, 1, 0) > 0) {
      if (!Receive()) return Answer::kLost;
    }
    if (sent_.empty() || !sent_.front().answer) return std::nullopt;
    const Answer answer = *sent_.front().answer;
    sent_.pop_front();
    return answer;
  }

  int descriptor() const override { return socket_.get(); }

 private:
  struct Sent {
    uint32_t sequence;
    std::optional<Answer> answer;
  };

  // A refusal may arrive before answers to earlier messages.
  bool Receive() {
    abi::Received received;
    if (received.ReceiveFrom(socket_.get()) != 0 ||
        received.header() == nullptr) {
      return false;
    }
    const auto sent =
        std::find_if(sent_.begin(), sent_.end(), [&](const Sent& one) {
          return one.sequence == received.header()->sequence;
        });
    if (sent == sent_.end()) return false;
    abi::CarryDone done;
    abi::Refused refused;
    if (received.As(&done)) sent->answer = Answer::kCarried;
    if (received.As(&refused)) {
      sent->answer = refused.code == abi::RefusalCode::kWrongGpu
                         ? Answer::kNever
                         : Answer::kRefused;
    }
    return sent->answer.has_value();
  }

  const driver::Descriptor socket_;
  std::deque<Sent> sent_;
};

}  // namespace

std::vector<store::OtherDaemon> AskOtherDaemons(const std::string& own_socket) {
  constexpr absl::Duration kPatience = absl::Milliseconds(500);
  std::vector<store::OtherDaemon> others;
  const std::string folder = own_socket.substr(0, own_socket.rfind('/'));
  for (const std::string& socket : finding::ListSockets(folder)) {
    if (socket == own_socket) continue;
    absl::StatusOr<abi::ObserverLink> link =
        abi::ConnectObserver(socket, kPatience);
    if (!link.ok()) continue;
    absl::StatusOr<abi::StoreOffer> offer = abi::AskOffer(*link);
    if (!offer.ok()) continue;
    others.push_back({{std::move(offer->inventory), std::move(offer->files)},
                      std::make_unique<OtherLink>(std::move(link->socket))});
  }
  return others;
}

}  // namespace fineserve::server
