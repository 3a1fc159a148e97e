#ifndef TESTS_PROXY_ADMISSION_SITE_H_
#define TESTS_PROXY_ADMISSION_SITE_H_

#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "daemon/proxy/proxy.h"
#include "tests/proxy/peer.h"
#include "tools/lab/process/temporary_folder.h"
#include "tools/lab/stage/process.h"

namespace fineserve::proxy_tests {

// Records what happened, in words, and what was asked. Any thread.
class Journal {
 public:
  void Write(const std::string& event) {
    const std::lock_guard<std::mutex> lock(mutex_);
    events_.push_back(event);
  }
  void Asked(const proxy::AdmissionRequest& request) {
    const std::lock_guard<std::mutex> lock(mutex_);
    requests_.push_back(request);
    events_.push_back("submit " + std::to_string(request.id));
  }
  void Generated(uint64_t id, uint32_t tokens) {
    const std::lock_guard<std::mutex> lock(mutex_);
    generated_[id] = tokens;
  }
  // Returns the request's token count as last reported; 0 if none was reported.
  uint32_t generated(uint64_t id) const {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto reported = generated_.find(id);
    return reported == generated_.end() ? 0 : reported->second;
  }
  std::vector<std::string> events() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return events_;
  }
  std::vector<proxy::AdmissionRequest> requests() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return requests_;
  }
  bool AwaitEvents(size_t n) const {
    return process::Eventually([&] { return events().size() >= n; });
  }

 private:
  mutable std::mutex mutex_;
  std::vector<std::string> events_;
  std::vector<proxy::AdmissionRequest> requests_;
  std::map<uint64_t, uint32_t> generated_;
};

// Decides by the tenant's name: "refuse" is refused, "wait" waits until a
// tenant "release" arrives; others go to engine a, or to b if they must avoid
// a.
class ScriptedAdmission final : public proxy::Admission {
 public:
  explicit ScriptedAdmission(Journal* journal) : journal_(journal) {}

  void Submit(const proxy::AdmissionRequest& request,
              std::function<void(proxy::Verdict)> on_verdict) override;
  void Cancel(uint64_t id) override;
  void FirstToken(uint64_t id) override;
  void Progress(uint64_t id, uint32_t output_tokens) override;
  void Finished(uint64_t id, uint32_t prompt, uint32_t output,
                proxy::Outcome outcome) override;
  void Forwards(uint64_t id, const std::string& engine) override;
  void SetFleet(std::shared_ptr<const config::Fleet>) override {}
  bool Serves(const std::string&) const override { return true; }
  bool LetsIn(const std::string&) const override { return true; }
  bool Ready() const override { return false; }

 private:
  void Release();

  Journal* const journal_;
  std::map<uint64_t, std::function<void(proxy::Verdict)>> waiting_;
};

// Runs the proxy in a thread of this process; the test plays the clients and
// the engines "a" and "b" of model "m".
class AdmissionSite : public ::testing::Test {
 protected:
  // `counts_prompts`: whether the model's engines count prompts.
  explicit AdmissionSite(bool counts_prompts, const proxy::Limits& limits = {});
  ~AdmissionSite() override;

  proxy::Setup ProxySetup() const;
  // Sends a completion of 8 bytes from a new client.
  Peer Ask(const std::string& tenant, const std::string& fields = "");
  // Returns the value on the line of /metrics that begins with `line`; -1 if
  // none does.
  double Metric(const std::string& line);

  Listener a_, b_;
  const process::TemporaryFolder folder_;  // of fineserved's sockets
  RealClock clock_;
  Journal journal_;
  ScriptedAdmission admission_{&journal_};
  const bool counts_prompts_;
  std::unique_ptr<proxy::Proxy> proxy_;
  uint16_t port_ = 0;
  std::thread thread_;
};

}  // namespace fineserve::proxy_tests

#endif  // TESTS_PROXY_ADMISSION_SITE_H_
