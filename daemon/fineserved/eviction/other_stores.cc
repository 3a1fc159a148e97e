#include "daemon/fineserved/eviction/other_stores.h"

#include <utility>

#include "absl/time/time.h"
#include "daemon/contract/abi/move_link.h"
#include "daemon/contract/abi/observer_link.h"
#include "daemon/contract/finding/daemon_sockets.h"

namespace fineserve::server {

std::vector<store::Offer> AskOtherStores(const std::string& own_socket) {
  constexpr absl::Duration kPatience = absl::Milliseconds(500);
  std::vector<store::Offer> offers;
  const std::string folder = own_socket.substr(0, own_socket.rfind('/'));
  for (const std::string& socket : finding::ListSockets(folder)) {
    if (socket == own_socket) continue;
    const absl::StatusOr<abi::ObserverLink> link =
        abi::ConnectObserver(socket, kPatience);
    if (!link.ok()) continue;
    absl::StatusOr<abi::StoreOffer> offer = abi::AskOffer(*link);
    if (!offer.ok() || !offer->inventory.valid()) continue;
    offers.push_back({std::move(offer->inventory), std::move(offer->files)});
  }
  return offers;
}

}  // namespace fineserve::server
