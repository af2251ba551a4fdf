# Compiles assets/published/*.json into a C++ table, so that the results need no installed files and no JSON reader.
# Absent members become std::nullopt.

function(ds_text_member out json row name)
    string(JSON value ERROR_VARIABLE absent GET "${json}" results ${row} ${name})
    if(absent)
        set(value "")
    endif()
    set(${out} "R\"ds(${value})ds\"" PARENT_SCOPE)
endfunction()

function(ds_number_member out json row name)
    string(JSON value ERROR_VARIABLE absent GET "${json}" results ${row} ${name})
    if(absent)
        set(value "std::nullopt")
    endif()
    set(${out} "${value}" PARENT_SCOPE)
endfunction()

function(ds_derived_member out json row)
    set(text "")
    string(JSON count ERROR_VARIABLE absent LENGTH "${json}" results ${row} derived)
    if(NOT absent AND count GREATER 0)
        math(EXPR last "${count} - 1")
        foreach(i RANGE ${last})
            string(JSON value GET "${json}" results ${row} derived ${i})
            list(APPEND text "${value}")
        endforeach()
        list(JOIN text ", " text)
    endif()
    set(${out} "R\"ds(${text})ds\"" PARENT_SCOPE)
endfunction()

function(ds_published_source out folder)
    file(GLOB files CONFIGURE_DEPENDS ${folder}/*.json)
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${files})
    set(rows "")
    foreach(file ${files})
        file(READ ${file} json)
        set(head "")
        foreach(name paper short citation note)
            string(JSON value GET "${json}" ${name})
            string(APPEND head "R\"ds(${value})ds\", ")
        endforeach()
        string(JSON kappa ERROR_VARIABLE absent GET "${json}" kappa)
        if(absent)
            set(kappa "std::nullopt")
        endif()
        string(JSON count LENGTH "${json}" results)
        math(EXPR last "${count} - 1")
        foreach(i RANGE ${last})
            string(APPEND rows "    {${head}")
            foreach(name head config target setup source)
                ds_text_member(value "${json}" ${i} ${name})
                string(APPEND rows "${value}, ")
            endforeach()
            ds_derived_member(value "${json}" ${i})
            string(APPEND rows "${value}")
            foreach(name tau rho_tau nu speedup_vs_ar speedup_vs_full)
                ds_number_member(value "${json}" ${i} ${name})
                string(APPEND rows ", ${value}")
            endforeach()
            string(APPEND rows ", ${kappa}},\n")
        endforeach()
    endforeach()
    set(generated ${CMAKE_CURRENT_BINARY_DIR}/published_results.cpp)
    file(CONFIGURE OUTPUT ${generated} CONTENT [[// Made from assets/published by app/gui/models/published.cmake.
#include "app/gui/models/plane.h"

namespace draftscope {

std::span<const PublishedResult> published_results() {
    static const PublishedResult results[] = {
@rows@    };
    return results;
}

}  // namespace draftscope
]] @ONLY)
    set(${out} ${generated} PARENT_SCOPE)
endfunction()
