#ifndef DAEMON_PROXY_REQUEST_REQUEST_FACTS_H_
#define DAEMON_PROXY_REQUEST_REQUEST_FACTS_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "daemon/proxy/replica_choice/prefix_index.h"

namespace fineserve::proxy {

// A scheduler's inputs from a request's body, for the paths that
// Route::kAdmitted names; other bodies usually only name a model.
struct RequestFacts {
  std::string model;  // empty: not given
  // Where the body names the model: position of the first byte, and number of
  // bytes, including a JSON string's quotes.
  size_t model_at = 0;
  size_t model_bytes = 0;
  bool stream = false;
  bool background = false;  // the answer is fetched later
  // Limit for all choices and prompts together; 0: not given.
  uint32_t max_tokens = 0;
  uint64_t text_bytes = 0;  // of prompt, messages and tools, as in the JSON
  uint32_t prompt_tokens =
      0;  // given as token ids, so counted and not estimated
  // True if the body has other content that becomes tokens: images, sound,
  // files, an earlier response.
  bool has_uncounted = false;
  PromptPrefix prefix = {};  // of texts and token ids, as the JSON has them
};

// Reads the body without building a document. Grows the capacity, not the size,
// of `body`, because simdjson reads past its end. If a key is repeated, the
// last one counts, as in Python's reader. A value of an unexpected type is left
// for the engine to refuse. InvalidArgument, with one line for the client, if
// `body` is not a JSON object.
absl::StatusOr<RequestFacts> ReadFacts(std::string* body);

// Replaces the model's name with `model` in the body that `facts` were read
// from. `is_form`: the body is a form, not JSON.
void RenameModel(const std::string& model, bool is_form, RequestFacts* facts,
                 std::string* body);

// True if a body of this Content-Type is a form with files (RFC 7578), as
// /v1/audio/transcriptions and translations take it.
bool IsForm(absl::string_view content_type);

// Reads a body that is a form with files. The tokens of the sound are not
// counted, since its bytes do not show how many they are. InvalidArgument, with
// one line for the client, if `body` is not such a form.
absl::StatusOr<RequestFacts> ReadFormFacts(absl::string_view content_type,
                                           absl::string_view body);

}  // namespace fineserve::proxy

#endif  // DAEMON_PROXY_REQUEST_REQUEST_FACTS_H_
