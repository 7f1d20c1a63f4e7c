# One executable per tests/*/test_*.c, with cmocka. Tests may include the headers of any room (src/).
pkg_check_modules(CMOCKA IMPORTED_TARGET cmocka)
if(LN_STATIC)
  # see cmake/linking.cmake
elseif(CMOCKA_FOUND)
  file(GLOB LN_TESTS CONFIGURE_DEPENDS tests/*/test_*.c)
  foreach(f ${LN_TESTS})
    get_filename_component(name ${f} NAME_WE)
    add_executable(${name} ${f})
    target_include_directories(${name} PRIVATE include src)
    target_compile_options(${name} PRIVATE -Wall -Wextra -Wno-unused-function -Wno-missing-field-initializers -Wno-format-truncation
      $<$<BOOL:${LN_WERROR}>:-Werror>)
    target_compile_definitions(${name} PRIVATE LN_ROOT="${CMAKE_SOURCE_DIR}" LN_BIN="${CMAKE_BINARY_DIR}")
    target_link_libraries(${name} PRIVATE linnet PkgConfig::CMOCKA)
    add_test(NAME ${name} COMMAND ${name})
    if(f MATCHES "/(cli|hard)/" AND TARGET linnet_cmd)
      add_dependencies(${name} linnet_cmd) # it spawns the command
    endif()
  endforeach()
else()
  message(WARNING "cmocka is not installed: no unit tests")
endif()

# The installed library, from outside. Sanitizers would have to be linked into everything that it builds.
if(NOT LN_SANITIZE AND NOT LN_TSAN AND NOT CMAKE_CROSSCOMPILING AND LN_SHARED)
  add_test(NAME test_install COMMAND ${CMAKE_SOURCE_DIR}/tests/install/run.sh ${CMAKE_SOURCE_DIR} ${CMAKE_BINARY_DIR} $<$<BOOL:${LN_WERROR}>:-Werror>)
endif()
