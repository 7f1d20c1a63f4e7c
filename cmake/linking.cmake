# How everything is linked, as far as flags of the user's (CFLAGS, LDFLAGS, CMAKE_..._FLAGS) change it: -static and -flto.
string(TOUPPER "${CMAKE_BUILD_TYPE}" LN_TYPE)
set(LN_USER_C " ${CMAKE_C_FLAGS} ${CMAKE_C_FLAGS_${LN_TYPE}} ")
set(LN_USER_EXE "${LN_USER_C} ${CMAKE_EXE_LINKER_FLAGS} ")
set(LN_USER_SHARED "${LN_USER_C} ${CMAKE_SHARED_LINKER_FLAGS} ")

# A program that is linked statically: no shared library can be made with -static, the tests' cmocka is a shared one.
set(LN_STATIC OFF)
if(LN_USER_EXE MATCHES " -static(-pie)? ")
  set(LN_STATIC ON)
  message(STATUS "linnet: -static: the command is linked statically; the tests are left out, since cmocka is a shared library")
endif()
if(LN_SHARED AND LN_USER_SHARED MATCHES " -static(-pie)? ")
  message(STATUS "linnet: -static: the shared library is left out (to have it too, give -static in CMAKE_EXE_LINKER_FLAGS alone)")
  set(LN_SHARED OFF)
endif()

# The static library is one relocatable object with the library's own names made local (install.cmake). If objects hold gcc's intermediate
# code, gcc compiles it into that object; clang's bit code cannot be made into one by every linker.
set(LN_LTO OFF)
if(LN_USER_EXE MATCHES " -flto(=[^ ]*)? ")
  set(LN_LTO ON)
  set(CMAKE_AR ${CMAKE_C_COMPILER_AR}) # gcc's, which read its intermediate code
  set(CMAKE_RANLIB ${CMAKE_C_COMPILER_RANLIB})
elseif(CMAKE_INTERPROCEDURAL_OPTIMIZATION)
  message(FATAL_ERROR "linnet: CMAKE_INTERPROCEDURAL_OPTIMIZATION is not supported: its archive members cannot be linked into one object. "
    "Give -flto in CFLAGS (gcc), or leave it out.")
endif()
if(LN_LTO AND NOT CMAKE_C_COMPILER_ID STREQUAL "GNU")
  message(FATAL_ERROR "linnet: -flto needs gcc: the static library is one object of machine code, which ${CMAKE_C_COMPILER_ID} does not make of "
    "its intermediate code with every linker. Leave -flto out, or use gcc.")
endif()
