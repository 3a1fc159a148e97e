// Memory of an engine that may leave the GPU, which other processes open by
// CUDA's legacy IPC. The shim answers these calls.

#include <gmock/gmock.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <string>

#include "daemon/contract/abi/messages.h"
#include "daemon/contract/abi/transport.h"
#include "tests/integration/eviction/sharing_site.h"

namespace fineserve::integration {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;
using SharingTest = SharingSite;

TEST_F(SharingTest, OpenedMemoryIsTheExportersWhereverInItTheHandleWasMade) {
  const auto daemon = StartDaemon();
  const auto chat = StartEvictable("chat");
  const auto peer = StartEngine("4MiB");
  const std::string handle = HandleOf(*chat, 4096);
  EXPECT_EQ(HandleOf(*chat), handle) << "it is the allocation's";
  Poke(*chat, At(*chat, 8), 11);
  const uint64_t opened = Open(*peer, handle);
  EXPECT_EQ(Ask(*peer, "peek", opened + 8), Value(11));
  Poke(*peer, opened + kWorkspaceBytes - 4, 12);
  EXPECT_EQ(Ask(*chat, "peek", At(*chat, kWorkspaceBytes - 4)), Value(12));
  EXPECT_EQ(Ask(*peer, "range", opened + 4096),
            "ok base=" + std::to_string(opened) +
                " bytes=" + std::to_string(kWorkspaceBytes));
  EXPECT_THAT(Ask(*peer, "drop", opened), HasSubstr("error cuMemFree 1"));
  EXPECT_THAT(Ask(*peer, "share", opened),
              HasSubstr("error cuIpcGetMemHandle 1"));
  EXPECT_EQ(Ask(*peer, "close", opened), "ok closed");
  EXPECT_THAT(Ask(*peer, "close", opened), StartsWith("error"));
  EXPECT_THAT(Ask(*peer, "peek", opened), StartsWith("error"));
  EXPECT_THAT(chat->Ask("verify"), HasSubstr("ok verified"));
  EXPECT_THAT(peer->Ask("verify"), HasSubstr("ok verified"));
}

TEST_F(SharingTest, HandleThatIsOpenAlreadyYieldsTheSameAddressAndIsCounted) {
  const auto daemon = StartDaemon();
  const auto chat = StartEvictable("chat");
  const auto peer = StartEngine("4MiB");
  const std::string handle = HandleOf(*chat);
  const uint64_t opened = Open(*peer, handle);
  EXPECT_EQ(Open(*peer, handle), opened);
  EXPECT_EQ(Ask(*peer, "close", opened), "ok closed");
  Poke(*peer, opened, 13);
  EXPECT_THAT(Move("evict", "chat"), HasSubstr("chat: 40 MiB left the GPU"));
  Move("activate", "chat");
  EXPECT_EQ(Ask(*peer, "close", opened), "ok closed");
  EXPECT_THAT(Move("evict", "chat"), HasSubstr("chat: 44 MiB left the GPU"));
  EXPECT_EQ(Ask(*chat, "peek", At(*chat)), Value(13));
}

// As ranks on several GPUs do.
TEST_F(SharingTest, EachContextHasAMappingOfItsOwn) {
  if (!OnEmulatedGpu()) GTEST_SKIP() << "needs two devices with peer access";
  Set("EMUCUDA_DEVICES", "2");
  Set("CUDA_DEVICE_ORDER", "PCI_BUS_ID");  // as the daemon counts
  const auto daemon = StartDaemon();
  const auto chat = StartEvictable("chat");
  const auto peer = StartEngine("4MiB");
  const std::string handle = HandleOf(*chat);
  const uint64_t first = Open(*peer, handle);
  ASSERT_EQ(peer->Ask("device 1"), "ok device=1");
  const uint64_t second = Open(*peer, handle);
  EXPECT_NE(first, second);
  Poke(*peer, second, 15);
  EXPECT_EQ(Ask(*chat, "peek", At(*chat)), Value(15));
  EXPECT_EQ(Ask(*peer, "close", second), "ok closed");
  EXPECT_THAT(Move("evict", "chat"), HasSubstr("chat: 40 MiB left the GPU"));
  Move("activate", "chat");
  ASSERT_EQ(peer->Ask("device 0"), "ok device=0");
  EXPECT_EQ(Ask(*peer, "peek", first), Value(15));
  EXPECT_EQ(Ask(*peer, "close", first), "ok closed");
  EXPECT_THAT(Move("evict", "chat"), HasSubstr("chat: 44 MiB left the GPU"));
}

// A kernel of the peer may write the memory at any time.
TEST_F(SharingTest, MemoryThatAPeerHasOpenStaysOnTheGpuUntilItIsClosed) {
  const auto daemon = StartDaemon();
  const auto chat = StartEvictable("chat");
  const auto peer = StartEngine("4MiB");
  const uint64_t opened = Open(*peer, HandleOf(*chat));
  EXPECT_THAT(Explain(*chat),
              HasSubstr("stays: 4 MiB open in another process (CUDA IPC)"));
  for (uint32_t round = 0; round < 3; ++round) {
    ASSERT_THAT(Move("evict", "chat"),
                HasSubstr("40 MiB left the GPU; 4 MiB stays, since another "
                          "process or device has it"));
    Poke(*peer, opened, 20 + round);
    EXPECT_EQ(Ask(*chat, "peek", At(*chat)), Value(20 + round));
    EXPECT_THAT(chat->Ask("verify"), HasSubstr("ok verified"));
  }
  EXPECT_EQ(Ask(*peer, "close", opened), "ok closed");
  EXPECT_THAT(Explain(*chat), Not(HasSubstr("open in another process")));
  EXPECT_THAT(Move("evict", "chat"), HasSubstr("44 MiB left the GPU; the"));
}

TEST_F(SharingTest, OpeningWhatIsOnTheHostBringsItBack) {
  const auto daemon = StartDaemon();
  const auto chat = StartEvictable("chat");
  const auto peer = StartEngine("4MiB");
  Poke(*chat, At(*chat), 31);
  const std::string handle = HandleOf(*chat);
  Move("evict", "chat");
  const uint64_t opened = Open(*peer, handle);
  EXPECT_EQ(Ask(*peer, "peek", opened), Value(31));
  EXPECT_THAT(chat->Ask("verify"), HasSubstr("ok verified"));
}

TEST_F(SharingTest, PeerThatEndsOrRunsAnotherProgramHasNothingOpen) {
  const auto daemon = StartDaemon();
  const auto chat = StartEvictable("chat");
  const auto leaves_at_last = [&] {
    return Eventually([&] {
      const bool left =
          Move("evict", "chat").find("44 MiB left") != std::string::npos;
      Move("activate", "chat");
      return left;
    });
  };
  for (const bool ends : {true, false}) {
    const auto peer = StartEngine("4MiB");
    Open(*peer, HandleOf(*chat));
    EXPECT_THAT(Move("evict", "chat"), HasSubstr("4 MiB stays"));
    Move("activate", "chat");
    if (ends) {
      peer->Signal(SIGKILL);
    } else {
      peer->Tell("exec");
    }
    EXPECT_TRUE(leaves_at_last()) << ends;
    EXPECT_TRUE(Eventually([&] {
      return Explain(*chat).find("open in another") == std::string::npos;
    }));
  }
}

TEST_F(SharingTest, MemoryLivesUntilThePeerClosesItWhateverItsExporterDoes) {
  const auto daemon = StartDaemon();
  const auto peer = StartEngine("4MiB");
  for (const bool dies : {false, true}) {
    auto chat = StartEvictable("chat");
    Poke(*chat, At(*chat), 41);
    const std::string handle = HandleOf(*chat);
    const uint64_t opened = Open(*peer, handle);
    if (dies) {
      chat->EndBy(SIGKILL);
    } else {
      EXPECT_EQ(Ask(*chat, "drop", At(*chat)), "ok dropped");
      EXPECT_THAT(Move("evict", "chat"), HasSubstr("40 MiB left the GPU; the"));
    }
    const auto late = StartEngine("4MiB");
    EXPECT_THAT(late->Ask("open " + handle), StartsWith("error")) << dies;
    EXPECT_EQ(Ask(*peer, "peek", opened), Value(41)) << dies;
    Poke(*peer, opened, 42);
    EXPECT_EQ(Ask(*peer, "peek", opened), Value(42)) << dies;
    const uint64_t before = FreeBytes(*peer);
    EXPECT_EQ(Ask(*peer, "close", opened), "ok closed") << dies;
    EXPECT_EQ(FreeBytes(*peer), before + kSharedBytes) << dies;
  }
}

// When a context ends, all memory that was opened in it is closed.
TEST_F(SharingTest, ContextThatEndsClosesWhatWasOpenedInIt) {
  const auto daemon = StartDaemon();
  const auto chat = StartEvictable("chat");
  const auto peer = StartEngine("4MiB");
  const std::string handle = HandleOf(*chat);
  Open(*peer, handle);
  Open(*peer, handle);
  ASSERT_THAT(peer->Ask("end reset"), HasSubstr("ok"));
  EXPECT_THAT(Move("evict", "chat"), HasSubstr("44 MiB left the GPU; the"));
}

TEST_F(SharingTest, HandleThatNoProcessHasMadeOpensNothing) {
  const auto daemon = StartDaemon();
  const auto chat = StartEvictable("chat");
  const auto peer = StartEngine("4MiB");
  const std::string handle = HandleOf(*chat);
  const abi::IpcHandle decoded = Decode(handle);
  const auto changed = [&](size_t byte) {
    std::string other = handle;
    other[2 * byte] = other[2 * byte] == '0' ? '1' : '0';
    return other;
  };
  for (const size_t byte :
       {offsetof(abi::IpcHandle, image), offsetof(abi::IpcHandle, pid),
        offsetof(abi::IpcHandle, number), offsetof(abi::IpcHandle, check),
        offsetof(abi::IpcHandle, check) + 15,
        offsetof(abi::IpcHandle, socket)}) {
    EXPECT_THAT(peer->Ask("open " + changed(byte)),
                HasSubstr("error cuIpcOpenMemHandle 1"))
        << byte;
  }
  EXPECT_THAT(peer->Stderr(), HasSubstr("cuIpcOpenMemHandle refused: pid"));
  EXPECT_EQ(decoded.pid, static_cast<uint32_t>(chat->pid()));
  EXPECT_THAT(chat->Ask("open " + handle),
              HasSubstr("error cuIpcOpenMemHandle 201"))
      << "its own";
  const auto stranger = LaunchEngine("4MiB", {}, {{"FINESERVE_DISABLE", "1"}});
  EXPECT_NE(stranger->ReadLineWith("ready"), "");
  EXPECT_THAT(stranger->Ask("open " + handle), StartsWith("error"));
  EXPECT_THAT(Move("evict", "chat"), HasSubstr("44 MiB left the GPU; the"));
}

// Asks to open the handle from a process of `user`. Returns 'o' if that process
// gets the memory, 'n' if it gets no answer.
char AskAs(uid_t user, const abi::IpcHandle& handle) {
  process::Pipe pipe = process::MakePipe();
  const pid_t child = fork();
  if (child == 0) {
    char said = 'e';
    sockaddr_un address = {};
    address.sun_family = AF_UNIX;
    memcpy(address.sun_path + 1, handle.socket, 5);
    const int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    auto request = abi::MakeMessage<abi::OpenRequest>(1);
    request.handle = handle;
    abi::Received received;
    abi::OpenAnswer answer;
    if (setuid(user) == 0 && connect(fd, reinterpret_cast<sockaddr*>(&address),
                                     sizeof(sa_family_t) + 6) == 0) {
      abi::Send(fd, request);
      const bool answered =
          received.ReceiveFrom(fd) == 0 && received.As(&answer);
      said = !answered                                 ? 'n'
             : answer.result == abi::OpenResult::kOpen ? 'o'
                                                       : 'u';
    }
    (void)!write(pipe.write_end.get(), &said, 1);
    _exit(0);
  }
  pipe.write_end.Reset();
  char said = '-';
  (void)!read(pipe.read_end.get(), &said, 1);
  waitpid(child, nullptr, 0);
  return said;
}

TEST_F(SharingTest, AnotherUserGetsNoAnswer) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can be another user";
  const auto daemon = StartDaemon();
  const auto chat = StartEvictable("chat");
  const abi::IpcHandle handle = Decode(HandleOf(*chat));
  EXPECT_EQ(AskAs(geteuid(), handle), 'o');
  EXPECT_EQ(AskAs(65534, handle), 'n');
}

// The shared memory stays, while the rest moves with each engine.
TEST_F(SharingTest, TwoEnginesThatHaveEachOthersMemoryOpenLeaveAndComeBack) {
  const auto daemon = StartDaemon();
  const auto chat = StartEvictable("chat");
  const auto code = StartEvictable("code");
  const uint64_t of_chat = Open(*code, HandleOf(*chat));
  const uint64_t of_code = Open(*chat, HandleOf(*code));
  for (uint32_t round = 0; round < 3; ++round) {
    EXPECT_THAT(Move("evict", "chat"), HasSubstr("40 MiB left"));
    EXPECT_THAT(Move("evict", "code"), HasSubstr("40 MiB left"));
    Poke(*code, of_chat + 8, 50 + round);
    Poke(*chat, of_code + 8, 60 + round);
    EXPECT_EQ(Ask(*chat, "peek", At(*chat, 8)), Value(50 + round));
    EXPECT_EQ(Ask(*code, "peek", At(*code, 8)), Value(60 + round));
    EXPECT_THAT(chat->Ask("verify"), HasSubstr("ok verified"));
    EXPECT_THAT(code->Ask("verify"), HasSubstr("ok verified"));
  }
}

}  // namespace
}  // namespace fineserve::integration
