# Programs that measure; built by name only.
file(GLOB LN_BENCH CONFIGURE_DEPENDS bench/*.c)
foreach(f ${LN_BENCH})
  get_filename_component(name ${f} NAME_WE)
  add_executable(${name} EXCLUDE_FROM_ALL ${f})
  target_compile_options(${name} PRIVATE ${LN_WARN})
  target_link_libraries(${name} PRIVATE linnet)
endforeach()
