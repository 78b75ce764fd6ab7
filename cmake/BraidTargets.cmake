# How Braid's targets are made: one static library per folder of src/braid, one test program per
# folder of tests. Files are globbed, so adding one needs no edit here.

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin)
if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release)
endif()

find_program(CCACHE ccache)
if(CCACHE)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CCACHE})
  set(CMAKE_CUDA_COMPILER_LAUNCHER ${CCACHE})
endif()

add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-Wall> $<$<COMPILE_LANGUAGE:CXX>:-Wextra>
                    $<$<COMPILE_LANGUAGE:CXX>:-Werror=return-type>
                    # Designated initializers leave the rest at its default on purpose; gcc 12's
                    # -Wrestrict misfires on std::string (gcc bug 105329).
                    $<$<COMPILE_LANGUAGE:CXX>:-Wno-missing-field-initializers>
                    $<$<CXX_COMPILER_ID:GNU>:-Wno-restrict>)
if(CMAKE_CXX_COMPILER_ID STREQUAL GNU AND CMAKE_CXX_COMPILER_VERSION VERSION_GREATER_EQUAL 13)
  # -Wdangling-reference takes a reference from a temporary handle (JsonNode) for a part of the handle;
  # -Wmaybe-uninitialized misfires on the destructor of std::optional (gcc bug 80635), -Warray-bounds
  # on copies of short vectors.
  add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-Wno-dangling-reference>
                      $<$<COMPILE_LANGUAGE:CXX>:-Wno-maybe-uninitialized>
                      $<$<COMPILE_LANGUAGE:CXX>:-Wno-array-bounds>)
endif()
if(BRAID_SANITIZE)
  add_compile_options(-fsanitize=${BRAID_SANITIZE} -fno-omit-frame-pointer
                      $<$<COMPILE_LANGUAGE:CXX>:-fno-sanitize-recover=all>)
  add_link_options(-fsanitize=${BRAID_SANITIZE})
endif()

# braid_library(tensor DEPENDS base): library braid_tensor from the *.cc of the current folder.
function(braid_library name)
  cmake_parse_arguments(ARG "" "" "DEPENDS;LIBRARIES" ${ARGN})
  file(GLOB sources CONFIGURE_DEPENDS *.cc)
  if(NOT sources)
    add_library(braid_${name} INTERFACE)
    set(scope INTERFACE)
  else()
    add_library(braid_${name} STATIC ${sources})
    set(scope PUBLIC)
  endif()
  target_compile_features(braid_${name} ${scope} cxx_std_20)  # its headers' users need it
  target_include_directories(braid_${name} ${scope} $<BUILD_INTERFACE:${CMAKE_SOURCE_DIR}/src>
                                                    $<INSTALL_INTERFACE:include>)
  list(TRANSFORM ARG_DEPENDS PREPEND braid_)
  target_link_libraries(braid_${name} ${scope} ${ARG_DEPENDS} ${ARG_LIBRARIES})
endfunction()

# braid_precompile(braid PRIVATE <CLI/CLI.hpp>): target_precompile_headers, such that ccache finds objects again.
# CMAKE_DISABLE_PRECOMPILE_HEADERS=ON turns that off, and shows which sources lack an include.
function(braid_precompile name)
  target_precompile_headers(${name} ${ARGN})
  target_compile_options(${name} PRIVATE $<$<COMPILE_LANG_AND_ID:CXX,GNU>:-fpch-preprocess>
                         "$<$<COMPILE_LANG_AND_ID:CXX,Clang>:SHELL:-Xclang -fno-pch-timestamp>")
  if(CCACHE)
    set(sloppiness CCACHE_SLOPPINESS=pch_defines,time_macros)
    set_target_properties(${name} PROPERTIES CXX_COMPILER_LAUNCHER
                          "${CMAKE_COMMAND};-E;env;${sloppiness};${CCACHE}")
  endif()
endfunction()

# What all test programs have in common.
function(braid_test_options name)
  # A third less time to compile than -O3; the tested libraries keep theirs.
  target_compile_options(${name} PRIVATE $<$<AND:$<CONFIG:Release>,$<COMPILE_LANGUAGE:CXX>>:-O1>)
  target_link_libraries(${name} PRIVATE GTest::gtest GTest::gmock)
endfunction()

# Headers that most tests include, compiled once for all test programs. Compilers refuse them where options
# differ, or where a program lacks a definition with which the headers were compiled: so this target has no paths.
function(braid_test_headers)
  file(GENERATE OUTPUT ${CMAKE_BINARY_DIR}/tests/headers.cc CONTENT "")
  add_library(braid_test_headers OBJECT ${CMAKE_BINARY_DIR}/tests/headers.cc)
  set_target_properties(braid_test_headers PROPERTIES POSITION_INDEPENDENT_CODE OFF)
  target_compile_options(braid_test_headers PRIVATE ${CMAKE_CXX_COMPILE_OPTIONS_PIE})  # as programs are
  target_link_libraries(braid_test_headers PRIVATE fmt::fmt)
  braid_test_options(braid_test_headers)
  braid_precompile(braid_test_headers PRIVATE <gmock/gmock.h> <gtest/gtest.h> <fmt/format.h> <algorithm> <cmath>
                   <fstream> <map> <random> <string> <thread> <vector>)
endfunction()

# braid_test_program(test_unit_io LABEL unit LIBRARIES braid_io): one GoogleTest program from the
# *.cc and *.cu of `folder`, each of its tests known to ctest under the label, with these PROPERTIES.
function(braid_test_program name folder)
  cmake_parse_arguments(ARG "" "LABEL" "LIBRARIES;PROPERTIES" ${ARGN})
  file(GLOB sources CONFIGURE_DEPENDS ${folder}/*.cc ${folder}/*.cu)
  if(NOT sources)
    return()
  endif()
  add_executable(${name} ${sources})
  target_include_directories(${name} PRIVATE ${CMAKE_SOURCE_DIR}/tests)
  target_compile_definitions(${name} PRIVATE BRAID_TEST_DATA="${CMAKE_SOURCE_DIR}/tests"
                                             BRAID_BIN_DIR="${CMAKE_BINARY_DIR}/bin")
  braid_test_options(${name})
  braid_precompile(${name} REUSE_FROM braid_test_headers)
  target_link_libraries(${name} PRIVATE ${ARG_LIBRARIES} GTest::gtest_main)
  set(environment)
  if(BRAID_SANITIZE STREQUAL thread)
    # UCX's memory hooks lock in threads that the sanitizer has already ended: they crash there.
    set(environment ENVIRONMENT UCX_MEM_EVENTS=n)
  endif()
  if(ARG_LABEL STREQUAL gpu)
    set(environment ENVIRONMENT CUDA_DEVICE_MAX_CONNECTIONS=32)  # as the program asks for
  endif()
  gtest_discover_tests(${name} DISCOVERY_MODE PRE_TEST
                       PROPERTIES LABELS ${ARG_LABEL} TIMEOUT 300 ${environment} ${ARG_PROPERTIES})
endfunction()
