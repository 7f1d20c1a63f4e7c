# One executable per tests/*/test_*.c, with cmocka. Tests may include the headers of any module (src/).
# The tag line of a test, /* run: quick|slow [asan] [tsan|tsan-long] [cuda] */, becomes its labels for ctest. `make quick` leaves
# out the slow ones, which take more than a second or two; the other tags are the tests of asan-sample, tsan-sample, tsan and test-cuda.
pkg_check_modules(CMOCKA IMPORTED_TARGET cmocka)
if(LN_STATIC)
  # see cmake/linking.cmake
elseif(CMOCKA_FOUND)
  file(GLOB LN_TESTS CONFIGURE_DEPENDS tests/*/test_*.c)
  foreach(f ${LN_TESTS})
    get_filename_component(name ${f} NAME_WE)
    add_executable(${name} ${f})
    target_include_directories(${name} PRIVATE include src)
    target_compile_options(${name} PRIVATE -Wall -Wextra -Wno-unused-function -Wno-missing-field-initializers -Wno-format-truncation -Wno-maybe-uninitialized # false at -O1
      $<$<BOOL:${LN_WERROR}>:-Werror> $<$<NOT:$<BOOL:${LN_SANITIZE}>>:-O1>) # compiling most of them takes longer than running them
    target_compile_definitions(${name} PRIVATE LN_ROOT="${CMAKE_SOURCE_DIR}" LN_BIN="${CMAKE_BINARY_DIR}")
    if(f MATCHES "/tests/serve/")
      target_link_libraries(${name} PRIVATE linnet_serve)
    endif()
    target_link_libraries(${name} PRIVATE linnet PkgConfig::CMOCKA)
    add_test(NAME ${name} COMMAND ${name})
    file(STRINGS ${f} tags REGEX "^/[*] run: [a-z -]+ [*]/$" LIMIT_COUNT 1)
    string(REGEX MATCHALL "[a-z-]+" tags "${tags}")
    list(REMOVE_ITEM tags run)
    set_tests_properties(${name} PROPERTIES LABELS "${tags}")
    if("slow" IN_LIST tags)
      set_tests_properties(${name} PROPERTIES COST 10) # first, so that the last to end is a short one
    endif()
    foreach(tag IN LISTS tags)
      list(APPEND LN_TESTS_OF_${tag} ${name})
    endforeach()
    if(f MATCHES "/tests/(cli|hard|server)/" AND TARGET linnet_cmd)
      add_dependencies(${name} linnet_cmd) # it spawns the command
    endif()
  endforeach()
  foreach(tag asan tsan tsan-long)
    add_custom_target(tests_${tag} DEPENDS ${LN_TESTS_OF_${tag}}) # what asan-sample and tsan build
  endforeach()
  add_library(old_driver MODULE tests/plugins/old_driver.c) # a libcuda.so.1 (test_cuda_driver)
  set_target_properties(old_driver PROPERTIES PREFIX lib OUTPUT_NAME cuda SUFFIX .so.1 LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/old-driver)
  target_compile_options(old_driver PRIVATE ${LN_WARN} -fvisibility=default)
  add_dependencies(test_cuda_driver old_driver)
  if(TARGET linnet_cmd)
    add_dependencies(test_cuda_driver linnet_cmd)
  endif()
  # The reference device as a plug-in, and plug-ins that are to be rejected (test_plugins, test_device_abi, test_devices).
  function(ln_plugin name)
    add_library(plugin_${name} MODULE ${ARGN})
    set_target_properties(plugin_${name} PROPERTIES PREFIX lib OUTPUT_NAME linnet-${name} LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR})
    target_include_directories(plugin_${name} PRIVATE include src)
    target_compile_options(plugin_${name} PRIVATE ${LN_WARN})
    add_dependencies(test_plugins plugin_${name})
  endfunction()
  ln_plugin(ref src/device/ref/ref_plugin.c)
  ln_plugin(poor tests/plugins/poor_plugin.c)
  foreach(plugin plugin_ref plugin_poor)
    target_link_libraries(${plugin} PRIVATE linnet)
    target_link_options(${plugin} PRIVATE -Wl,--exclude-libs,ALL) # its own copy of what it needs
  endforeach()
  add_dependencies(test_device_abi plugin_ref)
  foreach(bad abi function size host entry name)
    string(TOUPPER ${bad} BAD)
    ln_plugin(bad-${bad} tests/plugins/bad_plugin.c)
    target_compile_definitions(plugin_bad-${bad} PRIVATE BAD_${BAD})
  endforeach()
  # A device that sees the headers of the device interface and no others, and links nothing of linnet.
  set(abi_headers include/linnet.h src/base/base.h src/base/elementary.h src/base/elementary_inline.h src/quant/affine.h src/quant/block_float.h src/quant/encodings.h src/quant/encodings.def
      src/quant/formats.h src/quant/formats.def src/graph/program.h src/graph/ops.def src/graph/step.h
      src/graph/state_pool.h src/device/device.h)
  foreach(header IN LISTS abi_headers)
    configure_file(${header} ${CMAKE_BINARY_DIR}/abi/${header} COPYONLY)
  endforeach()
  add_library(plugin_flat MODULE tests/plugins/flat_plugin.c)
  set_target_properties(plugin_flat PROPERTIES PREFIX lib OUTPUT_NAME linnet-flat LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR})
  target_include_directories(plugin_flat PRIVATE ${CMAKE_BINARY_DIR}/abi/include ${CMAKE_BINARY_DIR}/abi/src)
  target_compile_options(plugin_flat PRIVATE ${LN_WARN})
  if(NOT LN_SANITIZE AND NOT LN_TSAN)
    target_link_options(plugin_flat PRIVATE -Wl,-z,defs) # it needs nothing of linnet
  endif()
  add_dependencies(test_device_abi plugin_flat)
  if(TARGET test_devices)
    add_dependencies(test_devices plugin_bad-abi plugin_poor)
  endif()
else()
  message(WARNING "cmocka is not installed: no unit tests")
endif()

# The lint that counts words.
add_test(NAME test_lint_words COMMAND ${CMAKE_SOURCE_DIR}/tests/lint/words.sh ${CMAKE_SOURCE_DIR})
set_tests_properties(test_lint_words PROPERTIES LABELS quick)

# The installed library, from outside. Sanitizers would have to be linked into everything that it builds.
if(NOT LN_SANITIZE AND NOT LN_TSAN AND NOT CMAKE_CROSSCOMPILING AND LN_SHARED)
  add_test(NAME test_install COMMAND ${CMAKE_SOURCE_DIR}/tests/install/run.sh ${CMAKE_SOURCE_DIR} ${CMAKE_BINARY_DIR} $<$<BOOL:${LN_WERROR}>:-Werror>)
  set_tests_properties(test_install PROPERTIES LABELS slow COST 100)
endif()

# The server's page in Chromium, if it is installed: the browser is not downloaded.
if(NOT LN_TSAN AND NOT CMAKE_CROSSCOMPILING AND NOT LN_STATIC)
  add_test(NAME test_browser COMMAND ${CMAKE_SOURCE_DIR}/tests/server/page.sh ${CMAKE_SOURCE_DIR} ${CMAKE_BINARY_DIR})
  set_tests_properties(test_browser PROPERTIES LABELS slow SKIP_RETURN_CODE 77 COST 100)
endif()

# Clients of the server from PyPI, over real sockets.
if(NOT LN_TSAN AND NOT CMAKE_CROSSCOMPILING AND NOT LN_STATIC)
  add_test(NAME test_clients COMMAND ${CMAKE_SOURCE_DIR}/tests/server/clients.sh ${CMAKE_SOURCE_DIR} ${CMAKE_BINARY_DIR})
  set_tests_properties(test_clients PROPERTIES LABELS slow SKIP_RETURN_CODE 77 COST 1000) # it waits for downloads
endif()

# Ranks over MPI on two hosts, which are network namespaces, and their failures; servers behind nginx.
if(NOT LN_SANITIZE AND NOT LN_TSAN AND NOT CMAKE_CROSSCOMPILING AND NOT LN_STATIC)
  add_test(NAME test_two_hosts COMMAND ${CMAKE_SOURCE_DIR}/tests/ranks/ranks.sh ${CMAKE_SOURCE_DIR} ${CMAKE_BINARY_DIR})
  add_test(NAME test_proxy COMMAND ${CMAKE_SOURCE_DIR}/tests/server/proxy.sh ${CMAKE_SOURCE_DIR} ${CMAKE_BINARY_DIR})
  set_tests_properties(test_two_hosts test_proxy PROPERTIES LABELS slow SKIP_RETURN_CODE 77 COST 100)
endif()

# The Python module, against the shared library. No sanitizer: Python would have to be linked with it.
if(NOT LN_SANITIZE AND NOT LN_TSAN AND NOT CMAKE_CROSSCOMPILING AND LN_SHARED)
  add_test(NAME test_python COMMAND ${CMAKE_SOURCE_DIR}/tests/python/module.sh ${CMAKE_SOURCE_DIR} ${CMAKE_BINARY_DIR})
  set_tests_properties(test_python PROPERTIES LABELS slow SKIP_RETURN_CODE 77 COST 100)
endif()

# What is said if the MLX device lacks its plug-in or the library of MLX, or finds another version of it.
if(NOT LN_SANITIZE AND NOT LN_TSAN AND NOT CMAKE_CROSSCOMPILING AND NOT LN_STATIC)
  add_test(NAME test_mlx_wheel COMMAND ${CMAKE_SOURCE_DIR}/tests/mlx/wheel.sh ${CMAKE_SOURCE_DIR} ${CMAKE_BINARY_DIR})
  set_tests_properties(test_mlx_wheel PROPERTIES LABELS quick SKIP_RETURN_CODE 77)
endif()

# The memory limit for texts, and fairness between clients that send them. `tests/server/text_limits.py BUILD/linnet tiny --whole`: all of it.
if(NOT LN_SANITIZE AND NOT LN_TSAN AND NOT CMAKE_CROSSCOMPILING AND NOT LN_STATIC)
  add_test(NAME test_text_limits COMMAND ${CMAKE_SOURCE_DIR}/tests/server/text_limits.sh ${CMAKE_SOURCE_DIR} ${CMAKE_BINARY_DIR})
  set_tests_properties(test_text_limits PROPERTIES LABELS slow SKIP_RETURN_CODE 77 COST 100)
endif()
