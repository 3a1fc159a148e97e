#include "daemon/proxy/listener.h"

#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "daemon/base/descriptor_store.h"

namespace fineserve::proxy {
namespace {

using boost::asio::ip::tcp;
using boost::system::error_code;

constexpr int kBacklog = 4096;
constexpr char kStoredName[] = "clients";

absl::Status Trouble(const std::string& host, uint16_t port,
                     const error_code& e) {
  return absl::UnavailableError(
      absl::StrCat("cannot listen on ", host, ":", port, ": ", e.message()));
}

absl::StatusOr<tcp::endpoint> Resolve(const std::string& host, uint16_t port,
                                      tcp::acceptor* acceptor) {
  error_code e;
  tcp::resolver resolver(acceptor->get_executor());
  const auto found =
      resolver.resolve(host, absl::StrCat(port), tcp::resolver::passive, e);
  if (e) return Trouble(host, port, e);
  return found.begin()->endpoint();
}

// Returns true if `acceptor` now listens on a socket that was kept for
// `endpoint`.
bool Adopt(holder::DescriptorStore::Named kept, const tcp::endpoint& endpoint,
           tcp::acceptor* acceptor) {
  const auto found = kept.find(kStoredName);
  if (found == kept.end()) return false;
  error_code e;
  acceptor->assign(endpoint.protocol(), found->second.get(), e);
  if (e) return false;
  found->second.Release();
  if (acceptor->local_endpoint(e) == endpoint && !e) return true;
  acceptor->close(e);
  return false;
}

}  // namespace

absl::Status Listen(const std::string& host, uint16_t port,
                    tcp::acceptor* acceptor) {
  const absl::StatusOr<tcp::endpoint> endpoint = Resolve(host, port, acceptor);
  if (!endpoint.ok()) return endpoint.status();
  error_code e;
  acceptor->open(endpoint->protocol(), e);
  if (!e) acceptor->set_option(tcp::acceptor::reuse_address(true), e);
  if (!e) acceptor->bind(*endpoint, e);
  if (!e) acceptor->listen(kBacklog, e);
  return e ? Trouble(host, port, e) : absl::OkStatus();
}

absl::Status ListenAcrossRestarts(const std::string& host, uint16_t port,
                                  tcp::acceptor* acceptor) {
  holder::DescriptorStore::Named kept = holder::DescriptorStore::TakeAll();
  const absl::StatusOr<tcp::endpoint> endpoint = Resolve(host, port, acceptor);
  if (!endpoint.ok()) return endpoint.status();
  if (Adopt(std::move(kept), *endpoint, acceptor)) return absl::OkStatus();
  holder::DescriptorStore::Remove(kStoredName);
  absl::Status s = Listen(host, port, acceptor);
  if (!s.ok() || port == 0) return s;
  return holder::DescriptorStore::Store(kStoredName, acceptor->native_handle());
}

}  // namespace fineserve::proxy
