#include "tools/fsctl/profile/measurement.h"

#include <signal.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/signal_set.hpp>
#include <chrono>
#include <cstdint>
#include <exception>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "tools/fsctl/profile/batch_answers.h"
#include "tools/fsctl/profile/engine_facts.h"
#include "tools/fsctl/profile/point_plan.h"
#include "tools/fsctl/profile/profile_output.h"
#include "tools/openai/client.h"
#include "tools/openai/target.h"

namespace fineserve::fsctl {
namespace {

// Sends batches to an engine, one after the other, over persistent connections.
// SIGINT or SIGTERM ends the current batch and all later ones. Confined to one
// thread.
class BatchRun {
 public:
  struct Subject {
    openai::Target target;
    std::string model;
    bool chat = false;
  };

  // A different `seed` gives different prompts, so that a prefix cache has no
  // entries from earlier measurements.
  BatchRun(Subject subject, uint64_t seed);

  // Sends `batch` prompts of `words` words at once, and waits for all answers
  // to end. Cancelled after a signal; otherwise the errors of ReadAnswers.
  absl::StatusOr<Sample> Run(uint32_t batch, uint32_t words,
                             uint32_t output_tokens);

  // Returns the number of tokens in a prompt of `words` words. Same errors as
  // Run.
  absl::StatusOr<CountedPrompt> Count(uint32_t words);

 private:
  absl::StatusOr<std::vector<openai::Answer>> Send(uint32_t batch,
                                                   uint32_t words,
                                                   uint32_t output_tokens);

  const Subject subject_;
  uint64_t next_prompt_;
  boost::asio::io_context context_{1};
  openai::Client client_;
  boost::asio::signal_set signals_;
  bool interrupted_ = false;
  openai::Clock::time_point sent_;
};

namespace asio = boost::asio;

constexpr std::chrono::seconds kPatience{120};  // for a whole answer

BatchRun::BatchRun(Subject subject, uint64_t seed)
    : subject_(std::move(subject)),
      next_prompt_(seed),
      client_(&context_, subject_.target, kPatience, /*notes_events=*/true),
      signals_(context_, SIGINT, SIGTERM) {
  signals_.async_wait([this](const auto& error, int) {
    if (error) return;
    interrupted_ = true;
    context_.stop();
  });
}

absl::StatusOr<std::vector<openai::Answer>> BatchRun::Send(
    uint32_t batch, uint32_t words, uint32_t output_tokens) {
  std::vector<openai::Answer> answers(batch);
  std::vector<std::string> bodies;
  for (uint32_t i = 0; i < batch; ++i) {
    bodies.push_back(openai::Body(subject_.model, words, output_tokens,
                                  next_prompt_++, subject_.chat));
  }
  uint32_t left = batch;
  sent_ = openai::Clock::now();
  for (uint32_t i = 0; i < batch; ++i) {
    asio::co_spawn(context_, client_.Post(std::move(bodies[i]), {}),
                   [this, &left, out = &answers[i]](const std::exception_ptr&,
                                                    openai::Answer answer) {
                     *out = std::move(answer);
                     if (--left == 0) context_.stop();
                   });
  }
  context_.restart();
  context_.run();  // the signals' wait alone would keep it running
  if (interrupted_) {
    return absl::CancelledError("interrupted; no profile was written");
  }
  return answers;
}

absl::StatusOr<Sample> BatchRun::Run(uint32_t batch, uint32_t words,
                                     uint32_t output_tokens) {
  const auto answers = Send(batch, words, output_tokens);
  if (!answers.ok()) return answers.status();
  return ReadAnswers(sent_, *answers);
}

absl::StatusOr<CountedPrompt> BatchRun::Count(uint32_t words) {
  const auto answers = Send(1, words, 2);
  if (!answers.ok()) return answers.status();
  if (const absl::Status s = CheckAnswer(answers->front()); !s.ok()) return s;
  return CountedPrompt{words, answers->front().prompt_tokens};
}

using openai::Clock;

constexpr std::chrono::seconds kPagePatience{5};
// An engine still counts a request for a moment after the request has ended.
constexpr int kBusyLooks = 10;
constexpr std::chrono::milliseconds kBetweenLooks{100};
constexpr uint32_t kFewWords = 32, kMoreWords = 128;

// Shows the progress on standard error.
class Display {
 public:
  Display(bool on_terminal, double budget_s)
      : on_terminal_(on_terminal), budget_s_(budget_s) {}
  ~Display() { Clear(); }

  double elapsed_s() const {
    return std::chrono::duration<double>(Clock::now() - began_).count();
  }

  void Show(size_t done, size_t all, const std::string& now) const {
    if (!on_terminal_) return;
    winsize size = {};
    const bool known = ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0;
    // Leaves the last column free, since some terminals begin a new line after
    // it.
    const size_t columns = known && size.ws_col > 1 ? size.ws_col - 1u : 79;
    const std::string text =
        ProgressText({done, all, elapsed_s(), budget_s_, now}, columns);
    fprintf(stderr, "\r\033[K%s", text.c_str());
    fflush(stderr);
  }

  void Tell(size_t done, size_t all, const PlannedPoint& point,
            const Sample& sample) const {
    if (on_terminal_) return;
    fprintf(stderr, "%zu/%zu  %s: TTFT %.2f ms, step %.2f ms\n", done, all,
            point.Title().c_str(), 1e3 * sample.ttft_s, 1e3 * sample.step_s);
  }

  void Clear() const {
    if (on_terminal_) fprintf(stderr, "\r\033[K");
  }

 private:
  const bool on_terminal_;
  const double budget_s_;
  const Clock::time_point began_ = Clock::now();
};

absl::StatusOr<ServedModel> FindModel(const MeasurementPlan& plan) {
  const auto page = openai::GetPage(plan.target, "/v1/models", kPagePatience);
  if (page.ok()) return ChooseModel(*page, plan.model);
  return absl::UnavailableError(
      absl::StrCat("no answer: ", page.status().message(),
                   "; does the engine run, and are host and port right?"));
}

absl::optional<double> RequestsNow(const openai::Target& target) {
  const auto page = openai::GetPage(target, "/metrics", kPagePatience);
  if (!page.ok() || page->status != 200) return absl::nullopt;
  return RequestsInside(page->body);
}

// Returns FailedPrecondition while other requests are in the engine. Returns OK
// if the engine does not report them, and says so the first time.
absl::Status CheckIdle(const MeasurementPlan& plan, bool is_first) {
  if (plan.even_if_busy) return absl::OkStatus();
  double inside = 0;
  for (int i = 0; i < kBusyLooks; ++i) {
    if (i > 0) std::this_thread::sleep_for(kBetweenLooks);
    const absl::optional<double> requests = RequestsNow(plan.target);
    if (!requests && is_first) {
      fprintf(stderr,
              "fsctl: warning: the engine has no /metrics like vLLM's, so "
              "whether it is idle is not known; see that no client uses it\n");
    }
    inside = requests.value_or(0);
    if (inside == 0) return absl::OkStatus();
  }
  return absl::FailedPreconditionError(absl::StrFormat(
      "the engine is busy (requests in it: %.0f), and their times would mix "
      "with the measurement's; drain it first (fsctl drain), or measure anyway "
      "with --even-if-busy",
      inside));
}

// Measures an engine whose model is known.
class Rounds {
 public:
  Rounds(const MeasurementPlan& plan, const std::string& model,
         bool on_terminal)
      : plan_(plan),
        run_({plan.target, model, plan.chat}, plan.seed),
        display_(on_terminal, plan.budget_s) {
    for (const PlannedPoint& point : plan.points) {
      points_.push_back({point, {}, ""});
    }
  }

  absl::Status Run() {
    if (const absl::Status s = WarmUp(); !s.ok()) return s;
    while (const auto next = NextPoint(points_)) {
      if (display_.elapsed_s() >= plan_.budget_s) break;
      const absl::Status s = Repeat(&points_[*next]);
      if (!s.ok()) return s;
    }
    for (PointSamples& p : points_) {
      if (p.samples.empty() && p.dropped.empty()) {
        p.dropped = "the time was over; give more with --budget";
      }
    }
    return absl::OkStatus();
  }

  std::vector<PointSamples> Take() { return std::move(points_); }

 private:
  // Learns how long prompts become, and sends the engine its largest batch
  // once.
  absl::Status WarmUp() {
    display_.Show(0, RepetitionsLeft(points_), "warming up");
    const auto few = run_.Count(kFewWords);
    if (!few.ok()) return few.status();
    const auto more = run_.Count(kMoreWords);
    if (!more.ok()) return more.status();
    rate_ = RateOf(*few, *more);
    const PlannedPoint& largest = points_.back().point;
    const auto warm =
        run_.Run(largest.batch, rate_.WordsFor(kFewWords), kMoreWords);
    if (warm.ok() || absl::IsFailedPrecondition(warm.status())) {
      return absl::OkStatus();
    }
    return warm.status();
  }

  absl::Status Repeat(PointSamples* p) {
    const size_t left = RepetitionsLeft(points_);
    display_.Show(done_, done_ + left, p->point.Title());
    absl::Status s = CheckIdle(plan_, /*is_first=*/false);
    if (!s.ok()) return s;
    const auto sample =
        run_.Run(p->point.batch, rate_.WordsFor(p->point.prompt_tokens),
                 p->point.output_tokens);
    if (sample.ok()) {
      p->samples.push_back(*sample);
      ++done_;
      display_.Tell(done_, done_ + RepetitionsLeft(points_), p->point, *sample);
      return absl::OkStatus();
    }
    if (absl::IsFailedPrecondition(sample.status())) {
      p->dropped = std::string(sample.status().message());
      return absl::OkStatus();
    }
    if (absl::IsCancelled(sample.status())) return sample.status();
    return absl::Status(
        sample.status().code(),
        absl::StrCat(p->point.Title(), ": ", sample.status().message()));
  }

  const MeasurementPlan& plan_;
  BatchRun run_;
  Display display_;
  WordRate rate_;
  std::vector<PointSamples> points_;
  size_t done_ = 0;
};

}  // namespace

absl::StatusOr<Measured> Measure(const MeasurementPlan& plan,
                                 bool on_terminal) {
  const absl::StatusOr<ServedModel> model = FindModel(plan);
  if (!model.ok()) return model.status();
  absl::Status s = CheckLengths(plan.points, model->most_tokens);
  if (s.ok()) s = CheckIdle(plan, /*is_first=*/true);
  if (!s.ok()) return s;
  Rounds rounds(plan, model->name, on_terminal);
  if (s = rounds.Run(); !s.ok()) return s;
  return Measured{model->name, rounds.Take()};
}
}  // namespace fineserve::fsctl
