# Dear ImGui (docking) and ImPlot, compiled by us from the cache folder that tools/fetch_deps.sh fills.
set(ds_cache "$ENV{XDG_CACHE_HOME}")
if(NOT ds_cache)
    set(ds_home "$ENV{HOME}")
    if(NOT ds_home)
        execute_process(COMMAND sh -c "getent passwd $(id -u) | cut -d: -f6"
            OUTPUT_VARIABLE ds_home OUTPUT_STRIP_TRAILING_WHITESPACE)
    endif()
    set(ds_cache "${ds_home}/.cache")
endif()
set(DRAFTSCOPE_IMGUI_DIR "${ds_cache}/draftscope/deps/imgui-bundle-1.93.0" CACHE PATH "Unpacked imgui-bundle folders")
if(NOT EXISTS ${DRAFTSCOPE_IMGUI_DIR}/.complete)
    message(STATUS "Fetching Dear ImGui into ${DRAFTSCOPE_IMGUI_DIR}")
    execute_process(COMMAND ${PROJECT_SOURCE_DIR}/tools/fetch_deps.sh imgui RESULT_VARIABLE ds_fetched)
    if(NOT ds_fetched EQUAL 0)
        message(FATAL_ERROR "Dear ImGui could not be fetched; use -DDRAFTSCOPE_GUI=OFF to build without the window.")
    endif()
endif()

find_package(OpenGL REQUIRED COMPONENTS OpenGL EGL)
find_package(glfw3 3.3 REQUIRED)

set(ds_imgui ${DRAFTSCOPE_IMGUI_DIR}/imgui/imgui)
set(ds_implot ${DRAFTSCOPE_IMGUI_DIR}/implot/implot)
set(ds_test_engine ${DRAFTSCOPE_IMGUI_DIR}/imgui_test_engine/imgui_test_engine/imgui_test_engine)
set(ds_imgui_sources
    ${ds_imgui}/imgui.cpp ${ds_imgui}/imgui_draw.cpp ${ds_imgui}/imgui_tables.cpp ${ds_imgui}/imgui_widgets.cpp ${ds_imgui}/imgui_stacklayout.cpp
    ${ds_imgui}/misc/cpp/imgui_stdlib.cpp)

# Headers and configuration, for sources that are linked with either build of the library.
add_library(ds_imgui_headers INTERFACE)
target_include_directories(ds_imgui_headers SYSTEM INTERFACE ${ds_imgui} ${ds_imgui}/backends ${ds_imgui}/misc/cpp ${ds_implot})
target_include_directories(ds_imgui_headers INTERFACE ${PROJECT_SOURCE_DIR})
target_compile_definitions(ds_imgui_headers INTERFACE IMGUI_USER_CONFIG="cmake/imgui_config.h")
target_link_libraries(ds_imgui_headers INTERFACE glfw OpenGL::OpenGL OpenGL::EGL ${CMAKE_DL_LIBS})

function(ds_imgui_target name)
    target_link_libraries(${name} PUBLIC ds_imgui_headers)
    target_compile_features(${name} PUBLIC cxx_std_20)
    target_compile_options(${name} PRIVATE -w)
endfunction()

# ImPlot knows nothing of the test engine: one build of it serves both.
add_library(ds_implot OBJECT ${ds_implot}/implot.cpp ${ds_implot}/implot_items.cpp)
ds_imgui_target(ds_implot)

# Compiled once, with hooks that report each item of a frame: the program answers them itself (app/gui/shell/item_hooks.cpp),
# in GUI tests the test engine does. An object library, because ImGui and the engine call each other.
add_library(ds_imgui_objects OBJECT ${ds_imgui_sources}
    ${ds_imgui}/backends/imgui_impl_glfw.cpp ${ds_imgui}/backends/imgui_impl_opengl3.cpp)
ds_imgui_target(ds_imgui_objects)
target_compile_definitions(ds_imgui_objects PRIVATE IMGUI_ENABLE_TEST_ENGINE)

# What the program ships with.
add_library(ds_imgui STATIC $<TARGET_OBJECTS:ds_imgui_objects> $<TARGET_OBJECTS:ds_implot>)
target_link_libraries(ds_imgui PUBLIC ds_imgui_headers)

# The same with the test engine, for GUI tests only (never shipped: the engine has its own licence).
if(DRAFTSCOPE_TESTS)
    file(GLOB ds_test_engine_sources ${ds_test_engine}/imgui_*.cpp)
    add_library(ds_imgui_tested OBJECT EXCLUDE_FROM_ALL ${ds_test_engine_sources} ${ds_imgui}/backends/imgui_impl_null.cpp)
    ds_imgui_target(ds_imgui_tested)
    target_include_directories(ds_imgui_tested SYSTEM PUBLIC ${ds_test_engine} ${ds_test_engine}/..)
    target_compile_definitions(ds_imgui_tested PUBLIC IMGUI_ENABLE_TEST_ENGINE
        IMGUI_TEST_ENGINE_ENABLE_COROUTINE_STDTHREAD_IMPL=1)
    target_link_libraries(ds_imgui_tested PUBLIC Threads::Threads)
    target_sources(ds_imgui_tested INTERFACE $<TARGET_OBJECTS:ds_imgui_objects>)
endif()
