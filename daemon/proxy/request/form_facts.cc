#include "daemon/proxy/request/form_facts.h"

#include <algorithm>
#include <string>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

namespace fineserve::proxy {
namespace {

// The value of a field's parameter, like boundary="b"; empty if it has none.
absl::string_view Parameter(absl::string_view field, absl::string_view name) {
  for (absl::string_view part : absl::StrSplit(field, ';')) {
    part = absl::StripAsciiWhitespace(part);
    if (!absl::StartsWithIgnoreCase(part, name)) continue;
    part.remove_prefix(name.size());
    if (!absl::ConsumePrefix(&part, "=")) continue;
    if (absl::ConsumePrefix(&part, "\"")) return part.substr(0, part.find('"'));
    return part;
  }
  return "";
}

// The name of the control that a part's head names.
absl::string_view NameIn(absl::string_view head) {
  for (const absl::string_view line : absl::StrSplit(head, "\r\n")) {
    if (absl::StartsWithIgnoreCase(line, "content-disposition:")) {
      return Parameter(line, "name");
    }
  }
  return "";
}

void ReadPart(absl::string_view name, absl::string_view value, size_t at,
              RequestFacts* facts) {
  if (name == "model") {
    facts->model = std::string(value);
    facts->model_at = at;
    facts->model_bytes = value.size();
  }
  if (name == "stream") facts->stream = absl::EqualsIgnoreCase(value, "true");
  if (name == "prompt") facts->text_bytes += value.size();
  if (name == "max_completion_tokens" &&
      !absl::SimpleAtoi(value, &facts->max_tokens)) {
    facts->max_tokens = 0;  // for the engine to refuse
  }
}

}  // namespace

bool IsForm(absl::string_view content_type) {
  return absl::StartsWithIgnoreCase(content_type, "multipart/form-data");
}

absl::StatusOr<RequestFacts> ReadFormFacts(absl::string_view content_type,
                                           absl::string_view body) {
  const char* const whole = body.data();
  const absl::string_view boundary = Parameter(content_type, "boundary");
  // As if a line were in front of the first one.
  const std::string mark = absl::StrCat("\r\n--", boundary);
  const bool begins =
      !boundary.empty() && absl::ConsumePrefix(&body, mark.substr(2));
  RequestFacts facts;
  while (begins && !absl::StartsWith(body, "--")) {
    const size_t head_end = body.find("\r\n\r\n");
    const size_t end = head_end == absl::string_view::npos
                           ? head_end
                           : body.find(mark, head_end + 2);
    if (end == absl::string_view::npos) break;
    // An empty content shares its line break with the head's end.
    const size_t content = std::min(head_end + 4, end);
    const absl::string_view value = body.substr(content, end - content);
    ReadPart(NameIn(body.substr(0, head_end)), value,
             static_cast<size_t>(value.data() - whole), &facts);
    body.remove_prefix(end + mark.size());
  }
  if (begins && absl::StartsWith(body, "--")) return facts;
  return absl::InvalidArgumentError(
      "the body is not a whole multipart/form-data form with the boundary that "
      "its Content-Type names");
}

}  // namespace fineserve::proxy
