#include "daemon/proxy/admission/admission_channel.h"

#include <boost/asio/awaitable.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <utility>

#include "daemon/base/http/socket_io.h"
#include "daemon/base/log/log.h"
#include "daemon/proxy/admission/gpu_admission.h"

namespace fineserve::proxy {
namespace {

namespace asio = boost::asio;
using boost::system::error_code;

constexpr std::chrono::milliseconds kBeat(250);
// Heuristic: short compared with an engine's step, long compared with the time
// to a client's next request.
constexpr std::chrono::milliseconds kPutOff(2);

}  // namespace

class AdmissionChannel::Link {
 public:
  Link(asio::io_context* io, Connect connect, GpuAdmission* admission,
       std::function<void()> on_open)
      : io_(io),
        connect_(std::move(connect)),
        admission_(admission),
        on_open_(std::move(on_open)),
        flush_timer_(*io) {
    admission_->SetSend([this](absl::string_view bytes) {
      return link_ != nullptr && link_->Send(bytes);
    });
    admission_->SetHold([this] { FlushSoon(); });
  }
  Link(const Link&) = delete;
  Link& operator=(const Link&) = delete;
  // The io_context may end exchanges later, and they must not use this link.
  ~Link() {
    admission_->SetSend([](absl::string_view) { return false; });
    admission_->SetHold([] {});
  }

  void Start() { asio::co_spawn(*io_, Beat(), asio::detached); }

 private:
  asio::awaitable<void> Beat() {
    asio::steady_timer timer(*io_);
    for (;;) {
      if (link_ == nullptr) Open();
      // Receives first: messages that came while this process was stopped must
      // count before the clock does.
      if (link_ != nullptr) link_->Receive();
      admission_->Tick();
      timer.expires_after(kBeat);
      co_await timer.async_wait(kTuple);
    }
  }

  void Open() {
    absl::StatusOr<std::unique_ptr<AdmissionLink>> link = connect_(
        {[this] { admission_->Connected(); },
         [this](absl::string_view bytes) { admission_->Receive(bytes); }});
    const absl::Status s = link.status();
    if (s.ok()) {
      link_ = *std::move(link);
      on_open_();
      return;
    }
    if (!std::exchange(warned_, true)) {
      log::Warning("{}", std::string(s.message()));
    }
    admission_->GoOn();
  }

  void FlushSoon() {
    if (std::exchange(flush_set_, true)) return;
    flush_timer_.expires_after(kPutOff);
    flush_timer_.async_wait([this](error_code) {
      flush_set_ = false;
      admission_->Flush();
    });
  }

  asio::io_context* const io_;
  const Connect connect_;
  GpuAdmission* const admission_;
  const std::function<void()> on_open_;
  std::unique_ptr<AdmissionLink> link_;
  asio::steady_timer flush_timer_;
  bool flush_set_ = false;
  bool warned_ = false;  // that no daemon was found, or several
};

AdmissionChannel::AdmissionChannel(asio::io_context* io, Connect connect,
                                   GpuAdmission* admission,
                                   std::function<void()> on_open)
    : link_(std::make_unique<Link>(io, std::move(connect), admission,
                                   std::move(on_open))) {}

AdmissionChannel::~AdmissionChannel() = default;

void AdmissionChannel::Start() { link_->Start(); }

}  // namespace fineserve::proxy
