#ifndef TOOLS_FSCTL_PROFILE_BATCH_RUN_H_
#define TOOLS_FSCTL_PROFILE_BATCH_RUN_H_

#include <boost/asio/io_context.hpp>
#include <boost/asio/signal_set.hpp>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "tools/fsctl/profile/engine_facts.h"
#include "tools/fsctl/profile/point_plan.h"
#include "tools/openai/client.h"

namespace fineserve::fsctl {

// Sends batches to an engine, one after the other, over connections that are
// kept. SIGINT and SIGTERM end the batch under way and every later one.
// Confined to one thread.
class BatchRun {
 public:
  struct Subject {
    openai::Target target;
    std::string model;
    bool chat = false;
  };

  // `seed`: another one gives other prompts, so that what earlier measurements
  // left in a prefix cache does not count.
  BatchRun(Subject subject, uint64_t seed);

  // Sends `batch` prompts of so many words at once and waits for the ends of
  // their answers. Cancelled after a signal; other errors as ReadAnswers'.
  absl::StatusOr<Sample> Run(uint32_t batch, uint32_t words,
                             uint32_t output_tokens);

  // Returns the number of tokens in a prompt of so many words. Errors as Run's.
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

}  // namespace fineserve::fsctl

#endif  // TOOLS_FSCTL_PROFILE_BATCH_RUN_H_
