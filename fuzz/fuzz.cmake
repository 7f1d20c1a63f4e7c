# The fuzzers: fuzz/fuzz_*.c, each as it is and as its twin with failing allocations (fuzz.h), built instead of everything else. `make fuzz`
# and `make fuzz-coverage` are the ways in. The system's libraries are taken as archives, so that a binary runs wherever there is a C
# library of the same age.
if(NOT CMAKE_C_COMPILER_ID MATCHES "Clang")
  message(FATAL_ERROR "LN_FUZZ needs clang: CC=clang")
endif()
set(LN_FUZZ_OPT -O1 CACHE STRING "optimisation; -O0 where they are only built, not run")
option(LN_FUZZ_COVERAGE "count the lines that the corpus reaches, instead of sanitizers" OFF)
foreach(l jansson pcre2-8 utf8proc)
  find_library(LN_A_${l} NAMES lib${l}.a REQUIRED)
  list(APPEND LN_ARCHIVES ${LN_A_${l}})
endforeach()
add_compile_options(${LN_FUZZ_OPT} -gline-tables-only -fno-omit-frame-pointer -U_FORTIFY_SOURCE)
if(LN_FUZZ_COVERAGE)
  add_compile_options(-fprofile-instr-generate -fcoverage-mapping)
  add_link_options(-fprofile-instr-generate)
else()
  add_compile_options(-fsanitize=address,undefined -fno-sanitize-recover=all)
  add_link_options(-fsanitize=address,undefined)
endif()
set(LN_FUZZED_FILES src/base/*.c src/unicode/*.c src/quant/*.c src/io/*.c src/checkpoint/*.c src/tokenizer/*.c src/jinja/*.c src/chat/*.c
  src/model/*.c src/model/families/*.c src/graph/*.c src/grammar/*.c src/api/api_form.c src/args/sized_struct.c src/args/struct_defaults.c
  src/wire/*.c src/batch/batch_input.c
  src/train/adapter_file.c src/train/batches.c src/train/checkpoint.c src/train/dataset.c src/train/sample_reader.c
  src/serve/http_*.c src/serve/stream.c src/serve/dialect.c src/serve/messages_*.c src/serve/responses_*.c)
file(GLOB LN_FUZZED CONFIGURE_DEPENDS ${LN_FUZZED_FILES})
add_library(fuzzed STATIC ${LN_FUZZED})
target_include_directories(fuzzed PUBLIC include src)
target_compile_options(fuzzed PRIVATE -fsanitize=fuzzer-no-link ${LN_WARN} -Wno-sign-conversion)
target_link_libraries(fuzzed PUBLIC ${LN_ARCHIVES} Threads::Threads m)

file(GLOB LN_FUZZERS CONFIGURE_DEPENDS fuzz/fuzz_*.c)
foreach(f ${LN_FUZZERS})
  get_filename_component(name ${f} NAME_WE)
  foreach(twin "" _oom)
    add_executable(${name}${twin} ${f})
    target_compile_options(${name}${twin} PRIVATE -fsanitize=fuzzer ${LN_WARN} -Wno-sign-conversion)
    if(twin)
      target_compile_definitions(${name}${twin} PRIVATE FUZZ_OOM)
    endif()
    target_link_options(${name}${twin} PRIVATE -fsanitize=fuzzer -static-libstdc++ -static-libgcc)
    target_link_libraries(${name}${twin} PRIVATE fuzzed)
  endforeach()
endforeach()
