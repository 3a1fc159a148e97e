// The part of an Exchange that learns its prompt's tokens before admission is
// asked.

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "daemon/base/log/log.h"
#include "daemon/proxy/exchange/exchange.h"
#include "daemon/proxy/request/json_number.h"

namespace fineserve::proxy {
namespace {

// vLLM's answer begins with the count; its list of tokens is as long as the
// prompt, and is not held (vllm/entrypoints/serve/tokenize/protocol.py).
constexpr size_t kBeginningBytes = 1024;

}  // namespace

asio::awaitable<void> Exchange::CountPrompt() {
  using Counted = Metrics::Counted;
  Counted how =
      facts_.prompt_tokens != 0 ? Counted::kExact : Counted::kEstimate;
  if (counts_prompt_) {
    const absl::optional<uint32_t> count = co_await AskForCount();
    if (client_gone_) co_return;
    life_->counted_ns = service_->clock->NowNs();
    counted_ = count.has_value();
    how = counted_ ? Counted::kExact : Counted::kFallback;
    if (counted_) {
      asked_.prompt_tokens = std::max(*count, 1u);
      Learn(*count);
    }
  }
  service_->metrics.CountPrompt(model_, how);
}

// Asks one of the model's engines to tokenize the prompt. It is sent the
// client's body: vLLM's /tokenize reads the fields that it shares with
// completions and chats, ignores the others, and has the same defaults for
// special tokens and templates.
asio::awaitable<absl::optional<uint32_t>> Exchange::AskForCount() {
  const std::shared_ptr<const Routes> routes = service_->routes;
  const config::FleetEngine* engine = EngineInTurn();
  if (engine == nullptr) co_return absl::nullopt;
  const uint32_t seconds = service_->limits.count_s;
  const Ended ended =
      co_await Converse(*engine, "/tokenize", {seconds, seconds});
  std::string beginning;
  const bool whole =
      ended == Ended::kWhole && co_await ReadBeginning(&beginning);
  client_->Unguard();
  absl::optional<uint32_t> count;
  if (whole && answer_->status() == 200) count = NumberOf(beginning, "count");
  if (whole) KeepEngine();
  engine_.reset();
  if (!count && !client_gone_) TellUncounted(engine->name, whole);
  co_return count;
}

// Gives the beginning of the answer's body, which is read to its end. False if
// the answer breaks off.
asio::awaitable<bool> Exchange::ReadBeginning(std::string* text) {
  for (;;) {
    for (const absl::string_view piece : pieces_) {
      const absl::string_view held =
          piece.substr(0, kBeginningBytes - text->size());
      text->append(held.data(), held.size());
    }
    if (answer_->done()) co_return true;
    if (co_await ReadAnswer() || answer_->broken()) co_return false;
  }
}

// Warns once per model; the metrics show how often it happens.
void Exchange::TellUncounted(const std::string& engine, bool answered) {
  if (!service_->uncounted.insert(model_).second) return;
  log::Warning(
      "engine {} did not count a prompt's tokens ({}); prompts of {} are "
      "estimated where that happens",
      engine,
      answered ? absl::StrCat("status ", answer_->status()) : "no answer",
      model_);
}

void Exchange::Learn(uint32_t prompt_tokens) {
  service_->estimator.Learn(facts_, prompt_tokens);
  service_->metrics.SetBytesPerToken(model_,
                                     service_->estimator.BytesPerToken(model_));
}

}  // namespace fineserve::proxy
