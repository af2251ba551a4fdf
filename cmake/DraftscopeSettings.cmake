# Language level, warnings, sanitizers: what every target of ours is built with.
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR})

if(NOT CMAKE_BUILD_TYPE)
    set(CMAKE_BUILD_TYPE Release CACHE STRING "" FORCE)
endif()

find_program(DRAFTSCOPE_CCACHE ccache)
if(DRAFTSCOPE_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
    set(CMAKE_C_COMPILER_LAUNCHER ${DRAFTSCOPE_CCACHE})
    # Without these words it caches nothing that uses a precompiled header.
    set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env CCACHE_SLOPPINESS=pch_defines,time_macros ${DRAFTSCOPE_CCACHE})
endif()

add_library(ds_settings INTERFACE)
target_include_directories(ds_settings INTERFACE ${PROJECT_SOURCE_DIR})
target_compile_options(ds_settings INTERFACE
    $<$<COMPILE_LANGUAGE:CXX>:-Wall -Wextra -Wshadow -Wnon-virtual-dtor -Wimplicit-fallthrough>)
if(DRAFTSCOPE_WARNINGS_ARE_ERRORS)
    target_compile_options(ds_settings INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-Werror>)
endif()
# The portable path must round the same everywhere: no contraction behind our back; the SIMD paths ask for FMA.
target_compile_options(ds_settings INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-ffp-contract=off>)

if(DRAFTSCOPE_SANITIZE)
    list(JOIN DRAFTSCOPE_SANITIZE "," ds_sanitizers)
    add_compile_options(-fsanitize=${ds_sanitizers} -fno-omit-frame-pointer -fno-sanitize-recover=all)
    add_link_options(-fsanitize=${ds_sanitizers})
    # With instrumentation GCC 12 sees uninitialised uses in std::optional and std::variant where there are none.
    add_compile_options($<$<CXX_COMPILER_ID:GNU>:-Wno-maybe-uninitialized>)
    add_library(ds_sanitizer_rules OBJECT ${CMAKE_CURRENT_LIST_DIR}/../tests/support/sanitizer_rules.cpp)
    target_sources(ds_settings INTERFACE
        $<$<STREQUAL:$<TARGET_PROPERTY:TYPE>,EXECUTABLE>:$<TARGET_OBJECTS:ds_sanitizer_rules>>)
    set(ds_timeout_factor 6)
else()
    set(ds_timeout_factor 1)
endif()

# ds_timeout(OUT SECONDS): how long a test may run; longer in a sanitizer build.
function(ds_timeout out seconds)
    math(EXPR longer "${seconds} * ${ds_timeout_factor}")
    set(${out} ${longer} PARENT_SCOPE)
endfunction()

# ds_find_sources(OUT FILES...): a name with * stands for all files that match. Every build looks for new ones.
function(ds_find_sources out)
    set(sources)
    foreach(name ${ARGN})
        if(name MATCHES "[*]")
            file(GLOB found CONFIGURE_DEPENDS ${name})
            list(APPEND sources ${found})
        else()
            list(APPEND sources ${name})
        endif()
    endforeach()
    set(${out} ${sources} PARENT_SCOPE)
endfunction()

# ds_compile_together(NAME): the compiler reads eight files of the target as one, which halves the time of a cold build.
# Names in their unnamed namespaces must not collide: a type that several files define is named after its file's subject.
option(DRAFTSCOPE_TOGETHER "Compile several files as one: a faster build from nothing, a slower one after each edit" ON)
function(ds_compile_together name)
    if(DRAFTSCOPE_TOGETHER)
        set_target_properties(${name} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 8)
        # A class may hold types of its own file's unnamed namespace; GCC takes that file for a header here.
        target_compile_options(${name} PRIVATE $<$<CXX_COMPILER_ID:GNU>:-Wno-subobject-linkage>)
    endif()
endfunction()

# ds_compile_apart(FILE...): files of this folder's targets whose names do collide.
function(ds_compile_apart)
    set_source_files_properties(${ARGN} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
endfunction()

# ds_library(NAME [TOGETHER] [SOURCES files...] [LINK libs...]): a static library of ours, by default of all files in the
# folder. TOGETHER: see ds_compile_together.
function(ds_library name)
    cmake_parse_arguments(arg "TOGETHER" "" "SOURCES;LINK" ${ARGN})
    if(NOT arg_SOURCES)
        set(arg_SOURCES *.cpp)
    endif()
    ds_find_sources(sources ${arg_SOURCES})
    add_library(${name} STATIC ${sources})
    target_link_libraries(${name} PUBLIC ds_settings ${arg_LINK})
    if(arg_TOGETHER)
        ds_compile_together(${name})
    endif()
endfunction()

# ds_quick_to_compile(NAME): for code whose speed nobody waits for. -O3 takes half as long again to compile.
function(ds_quick_to_compile name)
    target_compile_options(${name} PRIVATE $<$<AND:$<COMPILE_LANGUAGE:CXX>,$<CONFIG:Release>>:-O1>)
endfunction()

# ds_test(NAME [SOURCES files...] [LINK libs...] [LABELS ...]): a GoogleTest program, by default of all files in the
# folder. Every test becomes a ctest test.
function(ds_test name)
    cmake_parse_arguments(arg "" "TIMEOUT" "SOURCES;LINK;LABELS" ${ARGN})
    if(NOT arg_SOURCES)
        set(arg_SOURCES *.cpp)
    endif()
    ds_find_sources(sources ${arg_SOURCES})
    add_executable(${name} ${sources})
    set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
    target_link_libraries(${name} PRIVATE ds_settings ${arg_LINK} GTest::gtest GTest::gmock GTest::gtest_main)
    ds_quick_to_compile(${name})
    ds_compile_together(${name})
    target_compile_definitions(${name} PRIVATE DS_SOURCE_DIR="${PROJECT_SOURCE_DIR}" DS_BINARY_DIR="${CMAKE_BINARY_DIR}")
    if(NOT arg_TIMEOUT)
        set(arg_TIMEOUT 300)
    endif()
    ds_timeout(timeout ${arg_TIMEOUT})
    # Property tests draw the same cases in every run; start a test program by hand for others.
    gtest_discover_tests(${name} DISCOVERY_MODE PRE_TEST DISCOVERY_TIMEOUT 60 NO_PRETTY_VALUES
        PROPERTIES TIMEOUT ${timeout} ENVIRONMENT "RC_PARAMS=seed=20250101" LABELS "${arg_LABELS}")
endfunction()
