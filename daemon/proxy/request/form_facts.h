#ifndef DAEMON_PROXY_REQUEST_FORM_FACTS_H_
#define DAEMON_PROXY_REQUEST_FORM_FACTS_H_

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "daemon/proxy/request/request_facts.h"

namespace fineserve::proxy {

// True if a body of this Content-Type is a form with files (RFC 7578), as
// /v1/audio/transcriptions and translations take it.
bool IsForm(absl::string_view content_type);

// Reads such a body. The sound's tokens are not counted, since its bytes do not
// show how many they are. InvalidArgument, with one line for the client, if
// `body` is not such a form.
absl::StatusOr<RequestFacts> ReadFormFacts(absl::string_view content_type,
                                           absl::string_view body);

}  // namespace fineserve::proxy

#endif  // DAEMON_PROXY_REQUEST_FORM_FACTS_H_
