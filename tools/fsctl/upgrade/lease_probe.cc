#include "tools/fsctl/upgrade/lease_probe.h"

#include <string.h>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "daemon/abi/observer_link.h"
#include "daemon/abi/printable.h"
#include "daemon/abi/transport.h"

namespace fineserve::fsctl {
namespace {

// A request for whole slabs waits up to 5 s in the daemon.
constexpr absl::Duration kPatience = absl::Seconds(10);

// Sends the request and copies its answer. A refusal is Unavailable, or
// ResourceExhausted.
template <typename Request, typename Answer>
absl::Status Ask(int socket, const Request& request, Answer* answer) {
  abi::Received received;
  int error = abi::Send(socket, request);
  if (error == 0) error = received.ReceiveFrom(socket);
  if (error != 0) {
    return absl::UnavailableError(
        absl::StrCat("a lease got no answer: ", strerror(error)));
  }
  if (received.As(answer)) return absl::OkStatus();
  abi::Refused refused = {};
  if (!received.As(&refused)) {
    return absl::UnavailableError("a lease got an answer of the wrong kind");
  }
  const std::string why = abi::Printable(refused.text);
  return refused.code == abi::RefusalCode::kPoolExhausted
             ? absl::ResourceExhaustedError(why)
             : absl::UnavailableError(
                   absl::StrCat("a lease was refused: ", why));
}

}  // namespace

absl::StatusOr<std::string> ProbeLease(const std::string& socket,
                                       bool any_is_free) {
  if (!any_is_free) return std::string("none is free, so none was leased");
  const absl::StatusOr<abi::ObserverLink> link =
      abi::ConnectMember(socket, "fsctl-upgrade", kPatience);
  if (absl::IsResourceExhausted(link.status())) {
    return absl::StrCat("not leased: ", link.status().message());
  }
  if (!link.ok()) return link.status();
  auto request = abi::MakeMessage<abi::LeaseRequest>(1);
  request.slab_count = 1;
  abi::LeaseGrant grant = {};
  absl::Status s = Ask(link->socket.get(), request, &grant);
  if (absl::IsResourceExhausted(s)) {
    return absl::StrCat("not leased: ", s.message());
  }
  if (!s.ok()) return s;
  auto back = abi::MakeMessage<abi::ReturnRequest>(2);
  back.lease = grant.lease;
  abi::ReturnDone done = {};
  s = Ask(link->socket.get(), back, &done);
  if (!s.ok()) return s;
  return std::string("one was leased and returned");
}

}  // namespace fineserve::fsctl
