# The library as others get it: shared and static, with its headers, a pkg-config file and a CMake package.
#
# Both export the functions that the public headers declare and nothing else. Hidden visibility is not enough: gcc 12 exports what has the attribute
# target_clones all the same. So the linker is given the list; and the static library is linked into a single object whose other
# names are made local, so that they cannot meet names of a program's own. (build/liblinnet.a, which the tests link, keeps them.)
# The shared one stays mapped when it is unloaded (nodelete): its threads sleep in its code.
# All paths in the two description files are relative, so that the tree may be moved, unless a directory was given as an absolute one.
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${LN_HEADERS})
foreach(header IN LISTS LN_HEADERS)
  file(STRINGS ${header} declared REGEX "^LN_API .*\\(")
  list(TRANSFORM declared REPLACE "^LN_API .*[ *](ln_[a-z0-9_]+)\\(.*$" "\\1")
  list(APPEND LN_NAMES ${declared})
endforeach()
string(REPLACE ";" "\n" LN_LINES "${LN_NAMES}")
file(GENERATE OUTPUT ${CMAKE_BINARY_DIR}/exports.txt CONTENT "${LN_LINES}\n")
string(REGEX REPLACE "(^|\n)ln_" "\\1_ln_" LN_MACHO_LINES "${LN_LINES}") # Mach-O's names begin with an underscore
file(GENERATE OUTPUT ${CMAKE_BINARY_DIR}/exports_macos.txt CONTENT "${LN_MACHO_LINES}\n")
file(GENERATE OUTPUT ${CMAKE_BINARY_DIR}/exports.map CONTENT "{ global: ${LN_NAMES}; local: *; };\n")

if(IS_ABSOLUTE "${CMAKE_INSTALL_LIBDIR}" OR IS_ABSOLUTE "${CMAKE_INSTALL_INCLUDEDIR}")
  set(LN_PC_PREFIX ${CMAKE_INSTALL_PREFIX})
  set(LN_PC_LIBDIR ${CMAKE_INSTALL_FULL_LIBDIR})
  set(LN_PC_INCLUDEDIR ${CMAKE_INSTALL_FULL_INCLUDEDIR})
  set(LN_CMAKE_LIBDIR ${CMAKE_INSTALL_FULL_LIBDIR})
  set(LN_CMAKE_INCLUDEDIR ${CMAKE_INSTALL_FULL_INCLUDEDIR})
else()
  file(RELATIVE_PATH LN_UP ${CMAKE_INSTALL_FULL_LIBDIR}/pkgconfig ${CMAKE_INSTALL_PREFIX})
  string(REGEX REPLACE "/$" "" LN_UP "${LN_UP}")
  set(LN_PC_PREFIX "\${pcfiledir}/${LN_UP}")
  set(LN_PC_LIBDIR "\${prefix}/${CMAKE_INSTALL_LIBDIR}")
  set(LN_PC_INCLUDEDIR "\${prefix}/${CMAKE_INSTALL_INCLUDEDIR}")
  # ${CMAKE_INSTALL_LIBDIR}/cmake/linnet is one folder deeper than ${CMAKE_INSTALL_LIBDIR}/pkgconfig
  set(LN_CMAKE_LIBDIR "\${CMAKE_CURRENT_LIST_DIR}/../${LN_UP}/${CMAKE_INSTALL_LIBDIR}")
  set(LN_CMAKE_INCLUDEDIR "\${CMAKE_CURRENT_LIST_DIR}/../${LN_UP}/${CMAKE_INSTALL_INCLUDEDIR}")
endif()
# What a program needs in addition to the static library. Not Requires.private: pkg-config would add those libraries' own definitions to --cflags.
if(CMAKE_DL_LIBS)
  set(LN_PC_DL -l${CMAKE_DL_LIBS})
endif()
string(JOIN " " LN_PC_PRIVATE ${DEPS_STATIC_LDFLAGS} -lm ${LN_PC_DL} -pthread)

set(LN_OBJECTS $<TARGET_OBJECTS:linnet_objects> $<TARGET_OBJECTS:ln_ops_float> $<TARGET_OBJECTS:ln_ops_double>)
if(LN_SHARED)
add_library(linnet_shared SHARED ${LN_OBJECTS})
set_target_properties(linnet_shared PROPERTIES OUTPUT_NAME linnet VERSION ${PROJECT_VERSION} SOVERSION ${PROJECT_VERSION_MAJOR})
if(APPLE)
  target_link_options(linnet_shared PRIVATE -Wl,-exported_symbols_list,${CMAKE_BINARY_DIR}/exports_macos.txt)
  set_target_properties(linnet_shared PROPERTIES LINK_DEPENDS ${CMAKE_BINARY_DIR}/exports_macos.txt INSTALL_NAME_DIR ${CMAKE_INSTALL_FULL_LIBDIR})
else()
  target_link_options(linnet_shared PRIVATE -Wl,--no-undefined -Wl,--as-needed -Wl,-z,nodelete -Wl,--version-script=${CMAKE_BINARY_DIR}/exports.map)
  set_target_properties(linnet_shared PROPERTIES LINK_DEPENDS ${CMAKE_BINARY_DIR}/exports.map)
endif()
target_link_libraries(linnet_shared PRIVATE PkgConfig::DEPS Threads::Threads m ${CMAKE_DL_LIBS})
install(TARGETS linnet_shared LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
endif()

set(LN_ARCHIVE ${CMAKE_BINARY_DIR}/static/liblinnet.a)
if(LN_LTO)
  separate_arguments(LN_LTO_FLAGS UNIX_COMMAND "${LN_USER_C}")
  set(LN_RELOCATABLE ${CMAKE_C_COMPILER} ${LN_LTO_FLAGS} -r -nostdlib -flinker-output=nolto-rel)
else()
  set(LN_RELOCATABLE ${CMAKE_LINKER} -r)
endif()
set(LN_KEEP_EXPORTS ${CMAKE_OBJCOPY} --keep-global-symbols=exports.txt)
if(APPLE) # Xcode's tools
  set(LN_KEEP_EXPORTS nmedit -s exports_macos.txt)
endif()
add_custom_command(OUTPUT ${LN_ARCHIVE}
  COMMAND ${CMAKE_COMMAND} -E rm -f ${LN_ARCHIVE}
  COMMAND ${LN_RELOCATABLE} -o static/linnet.o ${LN_OBJECTS}
  COMMAND ${LN_KEEP_EXPORTS} static/linnet.o
  COMMAND ${CMAKE_AR} qcs ${LN_ARCHIVE} static/linnet.o
  DEPENDS ${LN_OBJECTS} ${CMAKE_BINARY_DIR}/exports.txt linnet_objects ln_ops_float ln_ops_double WORKING_DIRECTORY ${CMAKE_BINARY_DIR} COMMAND_EXPAND_LISTS VERBATIM)
file(MAKE_DIRECTORY ${CMAKE_BINARY_DIR}/static)
add_custom_target(linnet_static ALL DEPENDS ${LN_ARCHIVE})

include(CMakePackageConfigHelpers)
set(LN_PACKAGE ${CMAKE_INSTALL_LIBDIR}/cmake/linnet)
configure_file(cmake/linnet.pc.in linnet.pc @ONLY)
configure_file(cmake/linnetConfig.cmake.in linnetConfig.cmake @ONLY)
write_basic_package_version_file(${CMAKE_BINARY_DIR}/linnetConfigVersion.cmake COMPATIBILITY SameMinorVersion)

install(FILES ${LN_ARCHIVE} DESTINATION ${CMAKE_INSTALL_LIBDIR})
# cmake --install --strip, which `make install` uses, strips programs and shared libraries by itself.
install(CODE "if(CMAKE_INSTALL_DO_STRIP)
  set(archive \"${CMAKE_INSTALL_LIBDIR}/liblinnet.a\")
  if(NOT IS_ABSOLUTE \"\${archive}\")
    set(archive \"\${CMAKE_INSTALL_PREFIX}/\${archive}\")
  endif()
  execute_process(COMMAND \"${CMAKE_STRIP}\" --strip-debug \"\$ENV{DESTDIR}\${archive}\" COMMAND_ERROR_IS_FATAL ANY)
endif()")
install(FILES ${LN_HEADERS} DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(FILES ${CMAKE_BINARY_DIR}/linnet.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
install(FILES ${CMAKE_BINARY_DIR}/linnetConfig.cmake ${CMAKE_BINARY_DIR}/linnetConfigVersion.cmake DESTINATION ${LN_PACKAGE})
install(DIRECTORY models/tiny DESTINATION ${CMAKE_INSTALL_DATADIR}/linnet/models OPTIONAL)
