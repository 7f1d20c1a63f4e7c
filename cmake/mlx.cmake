# The MLX device: build/liblinnet-mlx.so (.dylib on a Mac), a plug-in on MLX's C++ library (docs/mlx.md). Nothing else depends on MLX.
#
#   LN_MLX          auto: built if MLX of the version below is found, else left out, with a message; on: must be built; off
#   LN_MLX_ROOT     the folder of MLX with include/, lib/ and share/: of the wheel, site-packages/mlx
#
# tools/mlx_wheel fetches the wheel from PyPI to where this file looks. MLX's C++ interface changes with every release, so one version is
# built for, and the plug-in checks it again when it is opened. C++ is needed here only.
set(LN_MLX auto CACHE STRING "the MLX device: auto, on, off")
set(LN_MLX_ROOT "" CACHE PATH "MLX: the folder with include, lib and share")
set(LN_MLX_VERSION 0.32.4)
set(LN_MLX_WHEEL mlx-cpu)
if(APPLE)
  set(LN_MLX_WHEEL mlx)
endif()
set_property(SOURCE src/device/plugins.c APPEND PROPERTY COMPILE_DEFINITIONS "LN_MLX_WHEEL=\"${LN_MLX_WHEEL}==${LN_MLX_VERSION}\"")

function(ln_mlx_without reason)
  if(LN_MLX STREQUAL "on")
    message(FATAL_ERROR "linnet: the MLX device cannot be built: ${reason}")
  endif()
  message(STATUS "linnet: built without the MLX device: ${reason}")
endfunction()

# Sets LN_MLX_INCLUDE and LN_MLX_LIBRARY of the version above, or `reason`.
function(ln_mlx_find)
  file(GLOB wheels ${CMAKE_BINARY_DIR}/mlx-venv/lib/python3*/site-packages/mlx)
  set(places ${LN_MLX_ROOT} ${wheels} /opt/homebrew/opt/mlx /usr/local/opt/mlx)
  set(install "tools/mlx_wheel ${CMAKE_BINARY_DIR} fetches it (pip install ${LN_MLX_WHEEL}==${LN_MLX_VERSION})")
  find_path(LN_MLX_INCLUDE mlx/version.h HINTS ${places} PATH_SUFFIXES include)
  find_library(LN_MLX_LIBRARY mlx HINTS ${places} PATH_SUFFIXES lib)
  set(reason "" PARENT_SCOPE)
  if(NOT LN_MLX_INCLUDE OR NOT LN_MLX_LIBRARY)
    set(reason "MLX ${LN_MLX_VERSION} is not installed; ${install}" PARENT_SCOPE)
    return()
  endif()
  file(STRINGS ${LN_MLX_INCLUDE}/mlx/version.h lines REGEX "define MLX_VERSION_(MAJOR|MINOR|PATCH) ")
  list(TRANSFORM lines REPLACE "^.* " "")
  string(REPLACE ";" "." found "${lines}")
  if(NOT found STREQUAL LN_MLX_VERSION)
    set(reason "${LN_MLX_INCLUDE} has MLX ${found}, expected ${LN_MLX_VERSION}; ${install}" PARENT_SCOPE)
  endif()
endfunction()

if(LN_MLX STREQUAL "off")
  return()
elseif(LN_STATIC OR LN_SANITIZE OR LN_TSAN)
  ln_mlx_without("a static or sanitized build has no plug-ins with MLX")
  return()
endif()
ln_mlx_find()
if(reason)
  unset(LN_MLX_INCLUDE CACHE)
  unset(LN_MLX_LIBRARY CACHE)
  ln_mlx_without("${reason}")
  return()
endif()
enable_language(CXX)
message(STATUS "linnet: the MLX device is built with ${LN_MLX_LIBRARY}")
get_filename_component(LN_MLX_FOLDER ${LN_MLX_LIBRARY} DIRECTORY)
file(GLOB LN_MLX_SOURCES CONFIGURE_DEPENDS src/device/mlx/*.cpp)
add_library(linnet_mlx MODULE ${LN_MLX_SOURCES})
set_target_properties(linnet_mlx PROPERTIES OUTPUT_NAME linnet-mlx SUFFIX ${CMAKE_SHARED_LIBRARY_SUFFIX} LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}
  CXX_STANDARD 20 CXX_STANDARD_REQUIRED ON CXX_EXTENSIONS OFF
  BUILD_WITH_INSTALL_RPATH ON INSTALL_RPATH ${LN_MLX_FOLDER}) # cmake pads a build's path with ":", which is the working directory
target_include_directories(linnet_mlx PRIVATE include)
target_include_directories(linnet_mlx SYSTEM PRIVATE ${LN_MLX_INCLUDE})
target_compile_definitions(linnet_mlx PRIVATE LN_MLX_VERSION="${LN_MLX_VERSION}" LN_MLX_WHEEL="${LN_MLX_WHEEL}")
# C's structs are initialized by the names of some members, and its enumerations mix.
target_compile_options(linnet_mlx PRIVATE -O2 -Wall -Wextra -Wno-missing-field-initializers -Wno-extra $<$<BOOL:${LN_WERROR}>:-Werror>)
target_link_libraries(linnet_mlx PRIVATE linnet ${LN_MLX_LIBRARY} Threads::Threads)
if(NOT APPLE)
  target_link_options(linnet_mlx PRIVATE -Wl,--exclude-libs,ALL -Wl,--no-undefined -Wl,--as-needed)
endif()
install(TARGETS linnet_mlx LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
