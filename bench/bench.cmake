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
foreach(name layer steps) # they load what they compare
  if(TARGET ${name})
    target_link_libraries(${name} PRIVATE ${CMAKE_DL_LIBS})
  endif()
endforeach()
if(LN_AVX512_OPT) # vectors and tiles by name; it looks at the machine first
  set_source_files_properties(bench/tile_costs.c PROPERTIES COMPILE_OPTIONS "${LN_AVX512_OPT}")
endif()
