# For scripts/bundle: programs that need glibc, and what lies beside them, and
# nothing else of the machine (design note 0007).

# A library of C++ code that is shared would need a libstdc++.so, and Debian
# 12's needs glibc 2.36. So: everything static but C libraries.
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

# Debian's static Abseil is not position-independent.
set(executable "$<STREQUAL:$<TARGET_PROPERTY:TYPE>,EXECUTABLE>")
add_link_options("$<${executable}:-no-pie>" -static-libstdc++ -static-libgcc
                 -Wl,--gc-sections)
add_compile_options(-ffunction-sections -fdata-sections
                    -ffile-prefix-map=${CMAKE_SOURCE_DIR}=.)

# Where the bundle expects it, whatever the distribution's habit is.
set(CMAKE_INSTALL_LIBDIR lib)

# finds_libraries_beside(target): DT_RPATH, not RUNPATH, because it also finds
# what the libraries there need in turn.
function(finds_libraries_beside target)
  target_link_options(${target} PRIVATE -Wl,--disable-new-dtags)
  set_target_properties(${target} PROPERTIES
    BUILD_WITH_INSTALL_RPATH ON INSTALL_RPATH "$ORIGIN/../lib")
endfunction()
