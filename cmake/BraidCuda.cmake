# How CUDA sources are compiled, for `codes` of BraidFindCuda.cmake.
if(NOT CMAKE_CUDA20_STANDARD_COMPILE_OPTION)  # CMake before 3.26 does not know it
  set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION "-std=c++20")
  set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION "-std=c++20")
endif()
set(CMAKE_CUDA_STANDARD 20)
set(CMAKE_CUDA_ARCHITECTURES OFF)  # below, and in CMake's terms not to be had
enable_language(CUDA)
find_package(CUDAToolkit REQUIRED)

# Hopper's own code (90a), and code that every other GPU from sm_80 on runs. Without the first a Hopper GPU runs
# the second, too.
set(BRAID_CUDA_ARCHITECTURES)
if(80 IN_LIST codes)
  list(APPEND BRAID_CUDA_ARCHITECTURES $<$<COMPILE_LANGUAGE:CUDA>:-gencode=arch=compute_80,code=[sm_80,compute_80]>)
endif()
set(BRAID_CUDA_HOPPER OFF)
if(90a IN_LIST codes)
  set(BRAID_CUDA_HOPPER ON)
  list(APPEND BRAID_CUDA_ARCHITECTURES $<$<COMPILE_LANGUAGE:CUDA>:-gencode=arch=compute_90a,code=sm_90a>)
endif()

# fmt 9 takes constexpr away from nvcc and leaves consteval: give it both.
add_compile_definitions($<$<COMPILE_LANGUAGE:CUDA>:FMT_USE_CONSTEXPR=1>)
