#include "tests/integration/machines/network.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <limits.h>
#include <linux/if.h>
#include <linux/if_tun.h>
#include <netinet/in.h>
#include <netinet/ip.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sched.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <thread>
#include <utility>

#include "kernels/driver/descriptor.h"

namespace fineserve::integration {
namespace {

constexpr size_t kPacketBytes = 65536;
constexpr int kIdleMs = 20;

// Returns the offset of the data of a TCP segment to or from `port`; 0 if the
// packet is no such segment, or has no data.
size_t DataOf(const std::string& packet, uint16_t port) {
  iphdr ip;
  if (packet.size() < sizeof(ip)) return 0;
  memcpy(&ip, packet.data(), sizeof(ip));
  const size_t at = ip.ihl * 4u;
  tcphdr tcp;
  if (ip.protocol != IPPROTO_TCP || packet.size() < at + sizeof(tcp)) return 0;
  memcpy(&tcp, packet.data() + at, sizeof(tcp));
  if (ntohs(tcp.source) != port && ntohs(tcp.dest) != port) return 0;
  const size_t data = at + tcp.doff * 4u;
  return data < packet.size() ? data : 0;
}

// Changes one 16-bit word, an even number of bytes behind the TCP header, and
// adjusts the checksum (RFC 1624, equation 3).
void Garble(size_t word_at, std::string* packet) {
  const size_t tcp_at = (static_cast<uint8_t>((*packet)[0]) & 15) * 4u;
  char* const sum_at = packet->data() + tcp_at + offsetof(tcphdr, check);
  uint16_t before, sum;
  memcpy(&before, packet->data() + word_at, sizeof(before));
  memcpy(&sum, sum_at, sizeof(sum));
  const uint16_t after = before ^ 0x0101;
  uint32_t folded = static_cast<uint16_t>(~sum) +
                    static_cast<uint32_t>(static_cast<uint16_t>(~before)) +
                    after;
  while (folded > UINT16_MAX) folded = (folded & UINT16_MAX) + (folded >> 16);
  sum = static_cast<uint16_t>(~folded);
  memcpy(packet->data() + word_at, &after, sizeof(after));
  memcpy(sum_at, &sum, sizeof(sum));
}

std::string NamespaceOf(const std::string& path) {
  std::array<char, PATH_MAX> text = {};
  const ssize_t got = readlink(path.c_str(), text.data(), text.size() - 1);
  return got < 0 ? "" : text.data();
}

// Makes a TUN device in the calling thread's network namespace.
driver::Descriptor MakeDevice(const char* name) {
  driver::Descriptor device(
      open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC));
  ifreq request = {};
  strncpy(request.ifr_name, name, sizeof(request.ifr_name) - 1);
  request.ifr_flags = IFF_TUN | IFF_NO_PI;
  if (ioctl(device.get(), TUNSETIFF, &request) != 0) {
    ADD_FAILURE() << "TUNSETIFF: " << strerror(errno);
  }
  return device;
}

}  // namespace

PacketSwitch::PacketSwitch(std::vector<driver::Descriptor> machines)
    : machines_(std::move(machines)),
      is_up_(machines_.size(), true),
      thread_([this] { Run(); }) {}

PacketSwitch::~PacketSwitch() {
  ending_ = true;
  thread_.join();
}

void PacketSwitch::SetWeather(const Weather& weather) {
  const std::lock_guard lock(mutex_);
  weather_ = weather;
}

void PacketSwitch::SetLink(size_t machine, bool up) {
  const std::lock_guard lock(mutex_);
  is_up_[machine] = up;
}

void PacketSwitch::Run() {
  while (!ending_) {
    std::vector<pollfd> waited;
    for (const driver::Descriptor& machine : machines_) {
      waited.push_back({machine.get(), POLLIN, 0});
    }
    poll(waited.data(), waited.size(), MillisecondsToNext());
    for (size_t i = 0; i < waited.size(); ++i) {
      if (waited[i].revents != 0) TakeFrom(i);
    }
    Deliver();
  }
}

int PacketSwitch::MillisecondsToNext() const {
  if (on_their_way_.empty()) return kIdleMs;
  const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
      on_their_way_.front().due - Clock::now());
  return static_cast<int>(std::clamp<int64_t>(left.count() + 1, 0, kIdleMs));
}

bool PacketSwitch::Happens(double probability) {
  return std::uniform_real_distribution<double>()(random_) < probability;
}

void PacketSwitch::TakeFrom(size_t machine) {
  std::array<char, kPacketBytes> bytes;
  for (;;) {
    const ssize_t got =
        read(machines_[machine].get(), bytes.data(), bytes.size());
    if (got < static_cast<ssize_t>(sizeof(iphdr))) return;
    iphdr ip;
    memcpy(&ip, bytes.data(), sizeof(ip));
    const size_t to = (ntohl(ip.daddr) & 0xFF) - 1;
    if (ip.version != 4 || to >= machines_.size()) continue;
    const std::lock_guard lock(mutex_);
    if (!is_up_[machine] || !is_up_[to] || Happens(weather_.loss)) continue;
    std::string packet(bytes.data(), static_cast<size_t>(got));
    const size_t data = DataOf(packet, weather_.garbled_port);
    if (data != 0 && data + 1 < packet.size() && Happens(weather_.garbled)) {
      // Garbles the last whole word of the data, because the first one may be
      // the header of a frame.
      Garble(data + (packet.size() - data - 2) / 2 * 2, &packet);
      ++garbled_;
    }
    on_their_way_.push_back(
        {Clock::now() + weather_.delay, to, std::move(packet)});
  }
}

void PacketSwitch::Deliver() {
  while (!on_their_way_.empty() && on_their_way_.front().due <= Clock::now()) {
    const Packet packet = std::move(on_their_way_.front());
    on_their_way_.pop_front();
    // If the device's queue is full, the packet is lost, as in a network.
    if (write(machines_[packet.to].get(), packet.bytes.data(),
              packet.bytes.size()) < 0) {
      continue;
    }
  }
}

std::string Network::Trouble() {
  const Finished made =
      RunToEnd({"sh", "-c", "unshare --net ip tuntap add eth0 mode tun"}, {});
  if (made.code == 0) return "";
  return "network namespaces and TUN devices are not permitted here, or "
         "iproute2 is missing: " +
         made.err;
}

std::unique_ptr<Process> Network::NewNamespace() {
  auto holder = std::make_unique<Process>(
      std::vector<std::string>{"unshare", "--net", "sleep", "infinity"},
      Process::Environment{});
  EXPECT_TRUE(Eventually([&] {
    const std::string its = NamespaceOf(PathOf(*holder));
    return !its.empty() && its != NamespaceOf("/proc/self/ns/net");
  })) << holder->Stderr();
  return holder;
}

std::string Network::PathOf(const Process& holder) {
  return "/proc/" + std::to_string(holder.pid()) + "/ns/net";
}

bool Network::Run(const Process& holder,
                  const std::vector<std::string>& command) {
  const Finished done =
      RunToEnd(With({"nsenter", "--net=" + PathOf(holder)}, command), {});
  EXPECT_EQ(done.code, 0) << done.err;
  return done.code == 0;
}

Network::Network(int machines) {
  std::vector<driver::Descriptor> devices;
  for (int i = 0; i < machines; ++i) {
    machines_.push_back(NewNamespace());
    const Process& machine = *machines_.back();
    InThreadOn(i, [&] { devices.push_back(MakeDevice("eth0")); });
    Run(machine, {"sh", "-c",
                  "ip addr add " + Host(i) +
                      "/24 dev eth0 && ip link set eth0 up && "
                      "ip link set lo up"});
  }
  switch_.emplace(std::move(devices));
}

std::vector<std::string> Network::On(
    int machine, const std::vector<std::string>& command) const {
  return With({"nsenter", "--net=" + PathOf(*machines_[machine])}, command);
}

void Network::InThreadOn(int machine, const std::function<void()>& act) const {
  std::thread([&] {
    const driver::Descriptor its(
        open(PathOf(*machines_[machine]).c_str(), O_RDONLY | O_CLOEXEC));
    if (setns(its.get(), CLONE_NEWNET) != 0) {
      ADD_FAILURE() << "setns: " << strerror(errno);
      return;
    }
    act();
  }).join();
}

std::string Network::Host(int machine) {
  return "10.93.0." + std::to_string(machine + 1);
}

}  // namespace fineserve::integration
