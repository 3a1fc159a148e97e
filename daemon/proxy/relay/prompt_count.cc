// The part of an Exchange that finds the token count of its prompt before
// admission is asked.

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "daemon/base/log/log.h"
#include "daemon/proxy/relay/exchange.h"
#include "daemon/proxy/request/json_number.h"

namespace fineserve::proxy {
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

// Asks one of the model's engines to tokenize the prompt. The engine is sent
// the client's body: vLLM's /tokenize reads the fields that it shares with
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
      ended == Ended::kWhole && co_await talk_.ReadBeginning(&beginning);
  client_->Unguard();
  absl::optional<uint32_t> count;
  if (whole && talk_.answer()->status() == 200)
    count = NumberOf(beginning, "count");
  if (whole) talk_.Keep();
  talk_.End();
  if (!count && !client_gone_) TellUncounted(engine->name, whole);
  co_return count;
}

// Warns once per model that a prompt was not counted; the metrics show how
// often it happens.
void Exchange::TellUncounted(const std::string& engine, bool answered) {
  if (!service_->uncounted.insert(model_).second) return;
  log::Warning(
      "engine {} did not count a prompt's tokens ({}); prompts of {} are "
      "estimated where that happens",
      engine,
      answered ? absl::StrCat("status ", talk_.answer()->status())
               : "no answer",
      model_);
}

void Exchange::Learn(uint32_t prompt_tokens) {
  service_->estimator.Learn(facts_, prompt_tokens);
  service_->metrics.SetBytesPerToken(model_,
                                     service_->estimator.BytesPerToken(model_));
}

}  // namespace fineserve::proxy
