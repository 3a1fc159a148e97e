#include "daemon/proxy/admission/admission_channel.h"

#include <gtest/gtest.h>

#include <boost/asio/io_context.hpp>
#include <memory>

#include "daemon/contract/wire/message.h"
#include "daemon/proxy/admission/gpu_admission.h"

namespace fineserve::proxy {
namespace {

// This happens at the proxy's exit, when the io_context ends the last
// exchanges.
TEST(AdmissionChannelTest, OwnerThatOutlivesTheChannelCannotReachIt) {
  boost::asio::io_context io;
  const RealClock clock;
  GpuAdmission admission(std::make_shared<const config::Fleet>(), &clock);
  auto channel = std::make_unique<AdmissionChannel>(
      &io,
      [](const AdmissionLink::Hearer&) {
        return absl::NotFoundError("no daemon");
      },
      &admission, [] {});
  channel.reset();
  admission.Receive(wire::Encode(5, 0, wire::WelcomeT()));
  EXPECT_FALSE(admission.HasDaemon()) << "its greeting was not sent";
}

}  // namespace
}  // namespace fineserve::proxy
