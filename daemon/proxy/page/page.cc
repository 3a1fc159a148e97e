#include "daemon/proxy/page/page.h"

#include "absl/strings/str_cat.h"
#include "daemon/proxy/page/embedded_page.h"

namespace fineserve::proxy {

absl::string_view PageText() {
  return {reinterpret_cast<const char*>(kEmbeddedPage), sizeof(kEmbeddedPage)};
}

LocalAnswer PageAnswer() {
  LocalAnswer answer;
  answer.content_type = "text/html; charset=utf-8";
  answer.body = std::string(PageText());
  absl::StrAppend(&answer.fields,
                  "content-security-policy: default-src 'none'; "
                  "script-src 'sha256-",
                  kEmbeddedScriptHash, "'; style-src 'sha256-",
                  kEmbeddedStyleHash,
                  "'; connect-src 'self'; img-src data:; base-uri 'none'; "
                  "form-action 'none'; frame-ancestors 'none'\r\n"
                  "x-content-type-options: nosniff\r\n"
                  "referrer-policy: no-referrer\r\n"
                  "cache-control: no-store\r\n");
  return answer;
}

}  // namespace fineserve::proxy
