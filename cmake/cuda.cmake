# CUDA and, inside it, NCCL: RA_HAVE_CUDA, RA_HAVE_SM90, RA_HAVE_NCCL.
#
# By default there is machine code for compute capability 7.5 to 9.0, for 10.0 and 12.0 where the compiler has them, and
# PTX that the driver compiles for what comes later. A sanitized build is for the C code: there AUTO means OFF. The
# kernels for Hopper are compiled for it and nothing else, where the compiler can.
set(all_architectures "75-real;80-real;86-real;89-real;90-real;90-virtual")
set(RA_CUDA_ARCHITECTURES ${all_architectures} CACHE STRING "What libringattn_cuda is compiled for")
option(RA_CUDA_QUICK "Compile the mma.sync and FMA kernels quickly and slow: to see that they compile" OFF)

set(RA_HAVE_CUDA FALSE)
set(RA_HAVE_SM90 FALSE)
if(RA_CUDA STREQUAL "ON" OR (RA_CUDA STREQUAL "AUTO" AND NOT RA_SANITIZE))
  include(CheckLanguage)
  if(NOT CMAKE_CUDA_ARCHITECTURES)
    set(CMAKE_CUDA_ARCHITECTURES ${RA_CUDA_ARCHITECTURES})
  endif()
  check_language(CUDA)
  if(CMAKE_CUDA_COMPILER)
    enable_language(CUDA)
    if(CMAKE_CUDA_ARCHITECTURES STREQUAL all_architectures AND CMAKE_CUDA_COMPILER_VERSION VERSION_GREATER_EQUAL 12.8)
      list(APPEND CMAKE_CUDA_ARCHITECTURES 100-real 120-real)
    endif()
    set(CMAKE_CUDA_STANDARD 17)
    set(CMAKE_CUDA_STANDARD_REQUIRED ON)
    set(CMAKE_CUDA_VISIBILITY_PRESET hidden)
    find_package(CUDAToolkit QUIET)
    set(RA_HAVE_CUDA ${CUDAToolkit_FOUND})
    if(CMAKE_CUDA_COMPILER_VERSION VERSION_LESS 11.8)
      set(RA_HAVE_CUDA FALSE) # no launches with attributes
    endif()
    if(CMAKE_CUDA_COMPILER_ID STREQUAL "NVIDIA" AND CMAKE_CUDA_COMPILER_VERSION VERSION_GREATER_EQUAL 12.0)
      set(RA_HAVE_SM90 ${CUDAToolkit_FOUND})
    endif()
  endif()
endif()
if(RA_CUDA STREQUAL "ON" AND NOT RA_HAVE_CUDA)
  message(FATAL_ERROR
          "RA_CUDA=ON, but there is no CUDA toolkit, 11.8 or later: put nvcc on PATH or set CMAKE_CUDA_COMPILER")
endif()

# NCCL is opened at run time (transport/nccl/nccl_api.h) and not needed to build. Where there is one now, it is the last
# place that is looked at.
set(RA_HAVE_NCCL FALSE)
if(RA_HAVE_CUDA AND NOT RA_NCCL STREQUAL "OFF")
  set(RA_HAVE_NCCL TRUE)
  find_library(NCCL_LIBRARY NAMES libnccl.so.2 HINTS ${CUDAToolkit_LIBRARY_DIR} $ENV{NCCL_HOME}/lib)
endif()
if(RA_NCCL STREQUAL "ON" AND NOT RA_HAVE_NCCL)
  message(FATAL_ERROR "RA_NCCL=ON, but there is no CUDA")
endif()
