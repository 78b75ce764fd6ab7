# How CUDA sources are compiled.
enable_language(CUDA)
if(NOT CMAKE_CUDA20_STANDARD_COMPILE_OPTION)  # CMake before 3.26 does not know it
  set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION "-std=c++20")
  set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION "-std=c++20")
endif()
set(CMAKE_CUDA_STANDARD 20)
set(CMAKE_CUDA_ARCHITECTURES OFF)
find_package(CUDAToolkit REQUIRED)

# Hopper first; every other GPU from sm_80 runs code for that. Without the first, a Hopper GPU does, too.
option(BRAID_CUDA_HOPPER "Code for Hopper beside that for any GPU from sm_80" ON)
set(BRAID_CUDA_ARCHITECTURES
    $<$<COMPILE_LANGUAGE:CUDA>:-gencode=arch=compute_80,code=[sm_80,compute_80]>)
if(BRAID_CUDA_HOPPER)
  list(APPEND BRAID_CUDA_ARCHITECTURES
       $<$<COMPILE_LANGUAGE:CUDA>:-gencode=arch=compute_90a,code=sm_90a>)
endif()

# fmt 9 takes constexpr away from nvcc and leaves consteval: give it both.
add_compile_definitions($<$<COMPILE_LANGUAGE:CUDA>:FMT_USE_CONSTEXPR=1>)
