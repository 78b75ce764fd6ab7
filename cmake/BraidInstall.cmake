# `cmake --install`: the program, the static libraries with their headers, and a package for
# find_package(braid). Targets are braid::<folder> (braid::engine, braid::schedule, ...) and
# braid::strategy for shared libraries with a strategy, which the program that loads them completes.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

function(braid_libraries_below folder result)
  get_property(targets DIRECTORY ${folder} PROPERTY BUILDSYSTEM_TARGETS)
  get_property(subfolders DIRECTORY ${folder} PROPERTY SUBDIRECTORIES)
  set(libraries)
  foreach(target ${targets})
    get_target_property(type ${target} TYPE)
    if(type MATCHES "^(STATIC|INTERFACE)_LIBRARY$")
      list(APPEND libraries ${target})
    endif()
  endforeach()
  foreach(subfolder ${subfolders})
    braid_libraries_below(${subfolder} below)
    list(APPEND libraries ${below})
  endforeach()
  set(${result} ${libraries} PARENT_SCOPE)
endfunction()

braid_libraries_below(${CMAKE_SOURCE_DIR}/src/braid libraries)
foreach(library ${libraries})
  string(REGEX REPLACE "^braid_" "" name ${library})
  set_target_properties(${library} PROPERTIES EXPORT_NAME ${name})
endforeach()
add_library(braid_strategy INTERFACE)
set_target_properties(braid_strategy PROPERTIES EXPORT_NAME strategy)
target_compile_features(braid_strategy INTERFACE cxx_std_20)
target_include_directories(braid_strategy INTERFACE $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
target_link_libraries(braid_strategy INTERFACE fmt::fmt)

install(TARGETS ${libraries} braid_strategy EXPORT braidTargets)
install(TARGETS braid)
install(DIRECTORY ${CMAKE_SOURCE_DIR}/src/braid DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}
        FILES_MATCHING PATTERN "*.h" PATTERN "cuda" EXCLUDE PATTERN "pmix" EXCLUDE PATTERN "libav" EXCLUDE
        PATTERN "lossy" EXCLUDE PATTERN "xgrammar" EXCLUDE)
install(DIRECTORY ${CMAKE_SOURCE_DIR}/configs ${CMAKE_SOURCE_DIR}/profiles ${CMAKE_SOURCE_DIR}/examples
        DESTINATION ${CMAKE_INSTALL_DATADIR}/braid)
install(DIRECTORY ${CMAKE_SOURCE_DIR}/docs/ DESTINATION ${CMAKE_INSTALL_DOCDIR}/docs)
install(FILES ${CMAKE_SOURCE_DIR}/LICENSE ${CMAKE_SOURCE_DIR}/README.md DESTINATION ${CMAKE_INSTALL_DOCDIR})
set(package ${CMAKE_INSTALL_LIBDIR}/cmake/braid)
install(EXPORT braidTargets NAMESPACE braid:: DESTINATION ${package})
configure_package_config_file(${CMAKE_SOURCE_DIR}/cmake/braidConfig.cmake.in
                              ${CMAKE_BINARY_DIR}/braidConfig.cmake INSTALL_DESTINATION ${package})
write_basic_package_version_file(${CMAKE_BINARY_DIR}/braidConfigVersion.cmake
                                 COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_BINARY_DIR}/braidConfig.cmake ${CMAKE_BINARY_DIR}/braidConfigVersion.cmake
        DESTINATION ${package})

# `make install` builds these first; a build of the program alone has not all of them.
add_custom_target(installed DEPENDS braid ${libraries})
# cmake -DMANIFEST=install_manifest.txt -P uninstall.cmake: removes what the manifest lists.
file(WRITE ${CMAKE_BINARY_DIR}/uninstall.cmake [[
if(NOT EXISTS "${MANIFEST}")
  message(FATAL_ERROR "uninstall: no list of files, ${MANIFEST}: nothing was installed from this build")
endif()
file(STRINGS "${MANIFEST}" files)
foreach(file ${files})
  file(REMOVE "$ENV{DESTDIR}${file}")
endforeach()
# Folders named braid, and below them, that are empty now; the deepest first.
set(folders)
foreach(file ${files})
  cmake_path(GET file PARENT_PATH folder)
  while(folder MATCHES "/braid(/|$)")
    list(APPEND folders ${folder})
    cmake_path(GET folder PARENT_PATH folder)
  endwhile()
endforeach()
list(REMOVE_DUPLICATES folders)
list(SORT folders ORDER DESCENDING)
foreach(folder ${folders})
  file(GLOB left "$ENV{DESTDIR}${folder}/*")
  if(NOT left)
    file(REMOVE_RECURSE "$ENV{DESTDIR}${folder}")
  endif()
endforeach()
list(LENGTH files count)
file(REMOVE "${MANIFEST}")
message(STATUS "removed ${count} files")
]])

# `make deb`: the program, headers, libraries, the CMake package and a service of systemd; the
# libraries that these need are read from the program (dpkg-shlibdeps).
set(deb ${CMAKE_SOURCE_DIR}/deploy/deb)
install(FILES ${deb}/braid.service DESTINATION lib/systemd/system COMPONENT service EXCLUDE_FROM_ALL)
install(FILES ${deb}/serve.toml DESTINATION ../etc/braid COMPONENT service EXCLUDE_FROM_ALL)
set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME braid)
set(CPACK_PACKAGE_CONTACT "The Braid maintainers <maintainers@braid.invalid>")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "Runs large language models on one or many GPUs, or on CPUs")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_SECTION science)
# What a program of one's own needs that links the libraries; ffmpeg brings libavformat for videos.
set(CPACK_DEBIAN_PACKAGE_SUGGESTS "g++, cmake, pkg-config, libfmt-dev, nlohmann-json3-dev, libonig-dev, libpng-dev, \
libutf8proc-dev, libboost-dev, prometheus-cpp-dev, ffmpeg")
foreach(name ucx pmix)
  string(TOUPPER ${name} upper)
  if(BRAID_HAS_${upper})
    string(APPEND CPACK_DEBIAN_PACKAGE_SUGGESTS ", lib${name}-dev")
  endif()
endforeach()
set(CPACK_DEBIAN_PACKAGE_CONTROL_EXTRA "${deb}/conffiles;${deb}/postinst;${deb}/prerm")
# Without the Python package, which pip installs.
set(CPACK_INSTALL_CMAKE_PROJECTS "${CMAKE_BINARY_DIR};braid;Unspecified;/;${CMAKE_BINARY_DIR};braid;service;/")
include(CPack)
