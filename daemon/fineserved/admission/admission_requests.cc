// Handles what proxies send about their requests; admission_service.cc handles
// everything else.

#include <string>

#include "absl/strings/str_cat.h"
#include "daemon/contract/wire/message.h"
#include "daemon/contract/wire/terms.h"
#include "daemon/fineserved/admission/admission_service.h"

namespace fineserve::admission {

using sched::ReplicaId;
using sched::RequestId;

void AdmissionService::HandleRequest(const std::string& peer, Proxy* from,
                                     const wire::MessageT& message) {
  const uint64_t id = message.request;
  if (const wire::SubmitT* submit = message.body.AsSubmit()) {
    Submit(peer, from, id, *submit);
    return;
  }
  const auto known = from->requests.find(id);
  if (const wire::CancelT* cancel = message.body.AsCancel()) {
    if (known == from->requests.end()) return;
    cancel->elsewhere ? scheduler_.Withdraw(known->second)
                      : scheduler_.Cancel(known->second);
    proxies_.Forget(known->second);
  } else if (message.body.AsFirstToken() != nullptr) {
    if (known != from->requests.end()) {
      scheduler_.FirstToken(known->second, Now());
    }
  } else if (const wire::ProgressT* progress = message.body.AsProgress()) {
    Progress(*from, *progress);
  } else if (const wire::FinishedT* finished = message.body.AsFinished()) {
    Finish(from, id, *finished);
  } else {
    Refuse(peer, id, "a daemon does not take this message");
  }
}

void AdmissionService::Submit(const std::string& peer, Proxy* from, uint64_t id,
                              const wire::SubmitT& submit) {
  const auto model = models_.find(submit.model);
  if (model == models_.end()) {
    Refuse(
        peer, id,
        absl::StrCat("no model \"", submit.model, "\" in this daemon's fleet"));
    return;
  }
  const absl::optional<RequestId> entered =
      proxies_.Enter(from, {peer, id, model->second, Now(), submit.id});
  if (!entered) return;  // asked twice, answered once
  sched::Submission s{wire::TermsOf(submit), *entered, model->second,
                      Now() - wire::Duration(submit.waited_us),
                      submit.asked_before};
  const size_t avoided = EngineIndex(submit.avoid_engine);
  if (avoided != engines_.size()) {
    s.avoid = sched::ReplicaId{static_cast<uint32_t>(avoided)};
  }
  if (submit.tell_waits) tell_waits_.push_back(*entered);
  const absl::Status status = scheduler_.Submit(s);
  if (status.ok()) return;
  proxies_.Forget(*entered);
  Refuse(peer, id, std::string(status.message()));
}

void AdmissionService::Progress(const Proxy& from,
                                const wire::ProgressT& progress) {
  for (const auto& stream : progress.streams) {
    const auto known = from.requests.find(stream->request);
    if (known == from.requests.end()) continue;
    scheduler_.Progress(known->second, stream->output_tokens);
  }
}

void AdmissionService::Finish(Proxy* from, uint64_t id,
                              const wire::FinishedT& finished) {
  const auto known = from->requests.find(id);
  if (known == from->requests.end()) return;
  // An answer that was cut off says nothing about the length of answers.
  const bool whole = finished.outcome == wire::Outcome::kDone;
  if (whole && finished.output_tokens != 0) {
    scheduler_.CameWhole(known->second, finished.output_tokens, Now());
  }
  scheduler_.Finished(known->second, whole ? finished.output_tokens : 0);
  // The request may still be waiting: the proxy asked again while the verdict
  // was on its way.
  scheduler_.Cancel(known->second);
  proxies_.Forget(known->second);
}

void AdmissionService::Adopt(const std::string& peer, Proxy* from,
                             const wire::RunningRequestT& running) {
  const size_t engine = EngineIndex(running.engine);
  if (engine == engines_.size()) return;
  const absl::optional<RequestId> id = proxies_.Enter(
      from, {peer, running.request, engines_[engine].model, Now(), running.id});
  if (!id) return;
  const absl::Status status = scheduler_.Adopt(
      {wire::TermsOf(running), *id, engines_[engine].model, Now()},
      ReplicaId{static_cast<uint32_t>(engine)});
  if (!status.ok()) {
    proxies_.Forget(*id);
    return;
  }
  scheduler_.Progress(*id, running.output_tokens);
}

}  // namespace fineserve::admission
