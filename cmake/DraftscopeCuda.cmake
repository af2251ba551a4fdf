# Compiles device code by calling nvcc ourselves: CMake 3.25 knows neither CUDA 13's architectures nor C++20 for it,
# and drops the latter without a word.
find_program(DRAFTSCOPE_NVCC nvcc HINTS ${CUDAToolkit_BIN_DIR} /usr/local/cuda/bin)
set(DRAFTSCOPE_CUDA_ARCHITECTURES "80;90" CACHE STRING "GPU architectures; the last one also as PTX for later GPUs")
option(DRAFTSCOPE_CUDA_SLIM "Leave out PTX and line numbers: a third of the size, for one kind of GPU" OFF)

if(DRAFTSCOPE_CCACHE)
    set(DRAFTSCOPE_CCACHE_COMMAND ${DRAFTSCOPE_CCACHE})
endif()

# ds_cuda_sources(TARGET FILES...): adds device code to a library.
function(ds_cuda_sources target)
    set(flags -std=c++20 -O3 --expt-relaxed-constexpr -Xcompiler -fPIC -I${PROJECT_SOURCE_DIR})
    foreach(arch ${DRAFTSCOPE_CUDA_ARCHITECTURES})
        list(APPEND flags -gencode=arch=compute_${arch},code=sm_${arch})
        set(newest ${arch})
    endforeach()
    if(NOT DRAFTSCOPE_CUDA_SLIM)
        list(APPEND flags -lineinfo -gencode=arch=compute_${newest},code=compute_${newest})
    endif()
    foreach(source ${ARGN})
        set(object ${CMAKE_CURRENT_BINARY_DIR}/${source}.o)
        get_filename_component(folder ${object} DIRECTORY)
        file(MAKE_DIRECTORY ${folder})
        add_custom_command(OUTPUT ${object}
            COMMAND ${DRAFTSCOPE_CCACHE_COMMAND} ${DRAFTSCOPE_NVCC} ${flags} -MD -MF ${object}.d -MT ${object}
                    -c ${CMAKE_CURRENT_SOURCE_DIR}/${source} -o ${object}
            DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/${source} DEPFILE ${object}.d
            COMMENT "Building CUDA object ${source}" VERBATIM)
        set_source_files_properties(${object} PROPERTIES EXTERNAL_OBJECT TRUE GENERATED TRUE)
        target_sources(${target} PRIVATE ${object})
    endforeach()
endfunction()
