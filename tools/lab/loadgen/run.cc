#include "tools/lab/loadgen/run.h"

#include <stdio.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/signal_set.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <cstddef>
#include <string>

#include "absl/strings/str_cat.h"
#include "kernels/driver/descriptor_limit.h"
#include "tools/lab/workload/metrics.h"
#include "tools/openai/client.h"
#include "tools/openai/error_tuple.h"

namespace fineserve::loadgen {
namespace {

// One line on standard error that is drawn again and again:
//
//   [=====>        ] 21/60 s  sent 1203/3400, running 32, dropped 4, failed 0,
//   on time 97.3 %
class Progress {
 public:
  Progress(bool shown, double seconds, size_t requests)
      : shown_(shown), seconds_(seconds), requests_(requests) {}

  bool shown() const { return shown_; }
  void Ended(workload::End end, bool attained);
  void Show(double now_s, size_t sent, size_t flying) const;
  void Clear() const;

 private:
  const bool shown_;
  const double seconds_;
  const size_t requests_;
  size_t ended_ = 0, attained_ = 0, dropped_ = 0, failed_ = 0;
};

void Progress::Ended(workload::End end, bool attained) {
  ++ended_;
  attained_ += attained ? 1 : 0;
  dropped_ += end == workload::End::kDropped ? 1 : 0;
  failed_ += end == workload::End::kFailed ? 1 : 0;
}

void Progress::Show(double now_s, size_t sent, size_t flying) const {
  constexpr size_t kColumns = 24;
  const double part = seconds_ > 0 ? std::min(now_s / seconds_, 1.0) : 1;
  const auto filled = static_cast<size_t>(part * kColumns);
  const std::string bar =
      std::string(filled, '=') + (filled < kColumns ? ">" : "");
  const double on_time = ended_ == 0 ? 0
                                     : 100 * static_cast<double>(attained_) /
                                           static_cast<double>(ended_);
  fprintf(stderr,
          "\r\033[K[%-*s] %.0f/%.0f s  sent %zu/%zu, running %zu, dropped %zu, "
          "failed %zu, on time %.1f %%",
          static_cast<int>(kColumns), bar.c_str(), now_s, seconds_, sent,
          requests_, flying, dropped_, failed_, on_time);
  fflush(stderr);
}

void Progress::Clear() const {
  if (shown_) fprintf(stderr, "\r\033[K");
}

namespace asio = boost::asio;
using openai::Clock;
using openai::kTuple;
using workload::Arrival;
using workload::End;
using workload::Outcome;

Clock::duration Seconds(double s) {
  return std::chrono::duration_cast<Clock::duration>(
      std::chrono::duration<double>(s));
}

double CpuSeconds() {
  rusage used;
  getrusage(RUSAGE_SELF, &used);
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) +
           1e-6 * static_cast<double>(t.tv_usec);
  };
  return seconds(used.ru_utime) + seconds(used.ru_stime);
}

std::string Millis(double seconds) {
  return absl::StrCat(static_cast<int64_t>(seconds * 1000));
}

class Sender {
 public:
  Sender(const Options& options, const workload::Trace& trace)
      : options_(options),
        trace_(trace),
        client_(&context_, options.target,
                std::chrono::milliseconds(
                    static_cast<int64_t>(options.timeout_s * 1000))),
        next_(context_),
        tick_(context_),
        interrupt_(context_, SIGINT),
        progress_(options.progress && isatty(STDERR_FILENO) != 0,
                  trace.seconds(), trace.arrivals.size()) {}

  RunResult Run() {
    // An open loop may need a connection for each request.
    driver::RaiseDescriptorLimit();
    const double cpu = CpuSeconds();
    start_ = Clock::now();
    interrupt_.async_wait([this](const auto& error, int) {
      if (error) return;
      result_.interrupted = true;
      next_.cancel();
      if (flying_ == 0) Finish();
    });
    asio::co_spawn(context_, SendAll(), asio::detached);
    if (progress_.shown()) asio::co_spawn(context_, Show(), asio::detached);
    context_.run();
    progress_.Clear();
    result_.seconds = Since(Clock::now());
    result_.cpu_share = (CpuSeconds() - cpu) / result_.seconds;
    Collect();
    return std::move(result_);
  }

 private:
  double Since(Clock::time_point t) const {
    return std::chrono::duration<double>(t - start_).count();
  }

  workload::Slo SloOf(uint32_t model) const {
    const auto own = options_.slos.find(trace_.models[model]);
    return own == options_.slos.end() ? options_.slo : own->second;
  }

  Outcome Planned(const Arrival& a) const {
    Outcome o;
    o.model = a.model;
    o.begin_s = a.at_s;
    o.end_s = a.at_s;
    o.lengths = a.lengths;
    o.slo = SloOf(a.model);
    return o;
  }

  asio::awaitable<void> SendAll() {
    for (const Arrival& a : trace_.arrivals) {
      next_.expires_at(start_ + Seconds(a.at_s));
      co_await next_.async_wait(kTuple);
      if (result_.interrupted) break;
      const double late = Since(Clock::now()) - a.at_s;
      result_.worst_late_s = std::max(result_.worst_late_s, late);
      const size_t index = result_.outcomes.size();
      result_.outcomes.push_back(Planned(a));
      ended_.push_back(false);
      ++flying_;
      asio::co_spawn(context_, Send(index), asio::detached);
    }
    sent_all_ = true;
    if (flying_ == 0) Finish();
    if (flying_ == 0 || options_.limit_s <= 0) co_return;
    next_.expires_after(Seconds(options_.limit_s));
    const auto [cancelled] = co_await next_.async_wait(kTuple);
    if (!cancelled) context_.stop();
  }

  asio::awaitable<void> Send(size_t index) {
    const Outcome& planned = result_.outcomes[index];
    const workload::Slo slo = planned.slo;
    std::string body =
        openai::Body(trace_.models[planned.model], planned.lengths.input,
                     planned.lengths.output, index, options_.chat);
    openai::Client::Fields fields = {
        {"x-request-id", absl::StrCat("load-", index)}};
    if (options_.send_slo) {
      fields.emplace_back("x-slo-ttft-ms", Millis(slo.ttft_s));
      if (slo.tpot_s > 0)
        fields.emplace_back("x-slo-tpot-ms", Millis(slo.tpot_s));
    }
    const openai::Answer answer =
        co_await client_.Post(std::move(body), std::move(fields));
    Note(index, answer);
    --flying_;
    if (flying_ == 0 && sent_all_) Finish();
  }

  void Note(size_t index, const openai::Answer& answer) {
    Outcome& o = result_.outcomes[index];
    ended_[index] = true;
    result_.answered += answer.status != 0 ? 1 : 0;
    o.end_s = Since(answer.end);
    if (answer.output_tokens > 0) o.first_token_s = Since(answer.first_token);
    if (answer.error.empty()) {
      o.end = End::kDone;
      o.lengths.output = answer.output_tokens;
    } else {
      const bool refused = answer.status == 429 || answer.status == 503;
      o.end = refused ? End::kDropped : End::kFailed;
      o.lengths.output = 0;
      ++result_.errors[answer.status == 0 || answer.status == 200
                           ? answer.error
                           : absl::StrCat("HTTP ", answer.status)];
    }
    progress_.Ended(o.end, o.attained());
  }

  // Ends the run: nothing is left to wait for.
  void Finish() {
    tick_.cancel();
    next_.cancel();
    interrupt_.cancel();
  }

  // Counts requests that --limit cut off as unfinished.
  void Collect() {
    for (size_t i = 0; i < ended_.size(); ++i) {
      if (ended_[i]) continue;
      ++result_.unfinished;
      result_.outcomes[i].end_s = result_.seconds;
      result_.outcomes[i].lengths.output = 0;
    }
  }

  asio::awaitable<void> Show() {
    while (!sent_all_ || flying_ > 0) {
      progress_.Show(Since(Clock::now()), result_.outcomes.size(), flying_);
      tick_.expires_after(std::chrono::milliseconds(200));
      co_await tick_.async_wait(kTuple);
    }
  }

  const Options& options_;
  const workload::Trace& trace_;
  asio::io_context context_{1};
  openai::Client client_;
  asio::steady_timer next_, tick_;
  asio::signal_set interrupt_;
  Progress progress_;
  Clock::time_point start_;
  RunResult result_;
  std::vector<bool> ended_;  // by outcome
  size_t flying_ = 0;
  bool sent_all_ = false;
};

}  // namespace

RunResult Run(const Options& options, const workload::Trace& trace) {
  return Sender(options, trace).Run();
}
}  // namespace fineserve::loadgen
