#include "shim/host/elf_module.h"

#include <dlfcn.h>
#include <gtest/gtest.h>

namespace fineserve::shim {
namespace {

TEST(ElfModule, DefaultVersionOfALibcFunctionIsFound) {
  Module libc;
  ASSERT_TRUE(FindModuleBySoname("libc.so.6", &libc));
  void* const handle = dlopen("libc.so.6", RTLD_NOW);
  for (const char* name : {"dlsym", "dlopen", "getpid", "nftw"}) {
    EXPECT_EQ(FindDefinition(libc, name), dlsym(handle, name)) << name;
  }
  EXPECT_EQ(FindDefinition(libc, "no_such_function"), nullptr);
}

TEST(ElfModule, SymbolThatIsOnlyReferredToIsNoDefinition) {
  Module own;
  ASSERT_TRUE(FindModuleByPosition(0, &own));
  // A function that no sanitizer's runtime defines in the program.
  ASSERT_GT(getppid(), 0);
  EXPECT_EQ(FindDefinition(own, "getppid"), nullptr);
}

TEST(ElfModule, LibraryWithTheOldHashTableIsSearchedToo) {
  void* const handle = dlopen(SYSV_LIBRARY, RTLD_NOW);
  ASSERT_NE(handle, nullptr) << dlerror();
  void* const wanted = dlsym(handle, "probe_next");
  Module module;
  ASSERT_TRUE(FindModuleByAddress(wanted, &module));
  EXPECT_EQ(FindDefinition(module, "probe_next"), wanted);
  EXPECT_EQ(FindDefinition(module, "probe_last"), nullptr);
}

TEST(ElfModule, PositionsFollowTheLinkMap) {
  Module own, libc, none;
  static int in_executable;
  ASSERT_TRUE(FindModuleByAddress(&in_executable, &own));
  ASSERT_TRUE(FindModuleBySoname("libc.so.6", &libc));
  EXPECT_EQ(own.position, 0u);
  EXPECT_GT(libc.position, own.position);
  EXPECT_FALSE(FindModuleByPosition(100'000, &none));
  EXPECT_FALSE(FindModuleBySoname("libnone.so.1", &none));
  EXPECT_FALSE(FindModuleByAddress(nullptr, &none));
}

}  // namespace
}  // namespace fineserve::shim
