# Compiles device code by calling nvcc ourselves: CMake 3.25 knows neither CUDA 13's architectures nor C++20 for it,
# and drops the latter without a word.
find_program(DRAFTSCOPE_NVCC nvcc HINTS ${CUDAToolkit_BIN_DIR} /usr/local/cuda/bin)
set(DRAFTSCOPE_CUDA_ARCHITECTURES "80;90" CACHE STRING "GPU architectures; the last one also as PTX for later GPUs")

# ds_cuda_sources(TARGET FILES...): adds device code to a library.
function(ds_cuda_sources target)
    set(flags -std=c++20 -O3 --expt-relaxed-constexpr -Xcompiler -fPIC -lineinfo -I${PROJECT_SOURCE_DIR})
    foreach(arch ${DRAFTSCOPE_CUDA_ARCHITECTURES})
        list(APPEND flags -gencode=arch=compute_${arch},code=sm_${arch})
        set(newest ${arch})
    endforeach()
    list(APPEND flags -gencode=arch=compute_${newest},code=compute_${newest})
    foreach(source ${ARGN})
        set(object ${CMAKE_CURRENT_BINARY_DIR}/${source}.o)
        get_filename_component(folder ${object} DIRECTORY)
        file(MAKE_DIRECTORY ${folder})
        add_custom_command(OUTPUT ${object}
            COMMAND ${DRAFTSCOPE_NVCC} ${flags} -MD -MF ${object}.d -MT ${object}
                    -c ${CMAKE_CURRENT_SOURCE_DIR}/${source} -o ${object}
            DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/${source} DEPFILE ${object}.d
            COMMENT "Building CUDA object ${source}" VERBATIM)
        set_source_files_properties(${object} PROPERTIES EXTERNAL_OBJECT TRUE GENERATED TRUE)
        target_sources(${target} PRIVATE ${object})
    endforeach()
endfunction()
