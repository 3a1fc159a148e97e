# Settings for scripts/bundle: programs need only glibc and the files of the
# bundle (design note 0007).

# Everything is static of which Debian has a static library. The others, some of
# them C++, are beside the programs with the libstdc++.so that they need.
get_property(imported DIRECTORY PROPERTY IMPORTED_TARGETS)
foreach(target ${imported})
  if(target MATCHES "^absl::")
    get_target_property(shared ${target} IMPORTED_LOCATION_NONE)
    string(REGEX REPLACE "\\.so.*" ".a" static "${shared}")
    if(EXISTS "${static}")
      set_target_properties(${target} PROPERTIES
        IMPORTED_LOCATION_NONE "${static}" IMPORTED_SONAME_NONE "")
    endif()
  endif()
endforeach()
add_compile_definitions(SPDLOG_HEADER_ONLY FMT_HEADER_ONLY)

# One unit a library or program, as in dev: a third of the time. Warnings are the
# other presets' errors; optimised across a unit, gcc 12 raises false ones.
set(CMAKE_UNITY_BUILD ON)
set(CMAKE_UNITY_BUILD_BATCH_SIZE 0)
add_compile_options(-Wno-error)

# Debian's static Abseil is not position-independent.
set(executable "$<STREQUAL:$<TARGET_PROPERTY:TYPE>,EXECUTABLE>")
add_link_options("$<${executable}:-no-pie>" -static-libstdc++ -static-libgcc
                 -Wl,--gc-sections)
# The newest symbol of glibc that libstdc++ asks for; exported for the bundled
# libraries that bring a libstdc++.so.
add_library(fineserve_portable_arc4random STATIC
            ${CMAKE_CURRENT_LIST_DIR}/portable_arc4random.c)
link_libraries(fineserve_portable_arc4random)
add_link_options("$<${executable}:LINKER:--undefined=arc4random>"
                 "$<${executable}:LINKER:--export-dynamic-symbol=arc4random>")
add_compile_options(-ffunction-sections -fdata-sections
                    -ffile-prefix-map=${CMAKE_SOURCE_DIR}=.)

# The bundle expects its libraries there on every distribution.
set(CMAKE_INSTALL_LIBDIR lib)

# finds_libraries_beside(target): sets DT_RPATH and not RUNPATH, because it also
# applies to the libraries that the bundle's libraries need.
function(finds_libraries_beside target)
  target_link_options(${target} PRIVATE -Wl,--disable-new-dtags)
  set_target_properties(${target} PROPERTIES
    BUILD_WITH_INSTALL_RPATH ON INSTALL_RPATH "$ORIGIN/../lib")
endfunction()
