#include "daemon/proxy/record/recent_page.h"

#include <algorithm>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "daemon/proxy/record/life.h"
#include "daemon/proxy/request/engine_paths.h"

namespace fineserve::proxy {
namespace {

constexpr absl::string_view kPath = "/requests";
constexpr absl::string_view kFollow = "/follow";
// Bounded because the proxy's one thread writes them, at some microseconds
// each.
constexpr size_t kMostShown = 1000;
constexpr size_t kShown = 100;

// Returns the part after kPath, without the query.
absl::string_view RestOf(absl::string_view target) {
  return absl::StripPrefix(target.substr(0, target.find('?')), kPath);
}

absl::string_view QueryOf(absl::string_view target) {
  const size_t at = target.find('?');
  return at == target.npos ? "" : target.substr(at + 1);
}

LocalAnswer NothingKept() {
  return ErrorAnswer(ClientError(
      404, "not_kept",
      "no requests are kept; start the proxy with --recent-requests N"));
}

LocalAnswer OneRequest(const Recorder& recorder, absl::string_view id,
                       uint64_t now_ns) {
  const auto life = recorder.Find(id);
  if (!life.ok()) {
    const bool unknown = absl::IsNotFound(life.status());
    return ErrorAnswer(ClientError(unknown ? 404 : 400,
                                   unknown ? "not_known" : "ambiguous",
                                   std::string(life.status().message())));
  }
  LocalAnswer answer;
  answer.body = LifeWithSteps(**life, now_ns);
  return answer;
}

LocalAnswer ManyRequests(const Recorder& recorder, const RecentQuery& query,
                         uint64_t now_ns) {
  std::string lines;
  size_t shown = 0;
  for (const auto& life : recorder.Kept()) {
    if (shown == query.most) break;
    if (!query.Takes(*life)) continue;
    absl::StrAppend(&lines, shown++ == 0 ? "" : ",", LifeLine(*life, now_ns));
  }
  LocalAnswer answer;
  answer.body = absl::StrCat("{\"under_way\":", recorder.under_way().size(),
                             ",\"ended\":", recorder.ended(), ",\"requests\":[",
                             lines, "]}");
  return answer;
}

}  // namespace

bool IsFollowed(absl::string_view target) { return RestOf(target) == kFollow; }

absl::optional<RecentQuery> ReadRecentQuery(absl::string_view target) {
  RecentQuery query;
  query.most = kShown;
  for (const absl::string_view word :
       absl::StrSplit(QueryOf(target), '&', absl::SkipEmpty())) {
    const std::pair<absl::string_view, absl::string_view> pair =
        absl::StrSplit(word, absl::MaxSplits('=', 1));
    uint32_t most = 0;
    if (pair.first == "model") {
      query.model = PercentDecoded(pair.second);
    } else if (pair.first == "most" && absl::SimpleAtoi(pair.second, &most)) {
      query.most = std::min<size_t>(most, kMostShown);
    } else {
      return absl::nullopt;
    }
  }
  return query;
}

LocalAnswer RequestsPage(const Recorder& recorder, absl::string_view target,
                         uint64_t now_ns) {
  if (!recorder.keeps()) return NothingKept();
  absl::string_view rest = RestOf(target);
  if (absl::ConsumePrefix(&rest, "/") && !rest.empty()) {
    return OneRequest(recorder, PercentDecoded(rest), now_ns);
  }
  const absl::optional<RecentQuery> query = ReadRecentQuery(target);
  if (!query) {
    return ErrorAnswer(ClientError(400, "bad_query",
                                   "/requests takes ?model=NAME and ?most=N"));
  }
  return ManyRequests(recorder, *query, now_ns);
}

}  // namespace fineserve::proxy
