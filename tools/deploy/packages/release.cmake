# Read by cpack: puts the Debian revision, which scripts/package may choose, into
# the packages' dependencies on one another.
if(DEFINED ENV{FINESERVE_PACKAGE_RELEASE})
  set(CPACK_DEBIAN_PACKAGE_RELEASE $ENV{FINESERVE_PACKAGE_RELEASE})
endif()
foreach(component PROXY VLLM DEV)
  string(REPLACE "@RELEASE@" "${CPACK_DEBIAN_PACKAGE_RELEASE}"
    CPACK_DEBIAN_${component}_PACKAGE_DEPENDS
    "${CPACK_DEBIAN_${component}_PACKAGE_DEPENDS}")
endforeach()
