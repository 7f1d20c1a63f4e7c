# Programs that measure; built by name, or all of them, as `make test` does.
add_custom_target(bench_programs)
file(GLOB LN_BENCH CONFIGURE_DEPENDS bench/*.c)
foreach(f ${LN_BENCH})
  get_filename_component(name ${f} NAME_WE)
  add_executable(${name} EXCLUDE_FROM_ALL ${f})
  target_compile_options(${name} PRIVATE ${LN_WARN})
  target_link_libraries(${name} PRIVATE linnet)
  add_dependencies(bench_programs ${name})
endforeach()
if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64") # vectors and tiles by name, called only where they are
  set_source_files_properties(bench/tile_costs.c PROPERTIES COMPILE_OPTIONS "-O3;-mavx2;-mfma;-mf16c;-mavx512f;-mavx512bw;-mavx512dq;-mavx512vl;-mprefer-vector-width=512")
endif()
