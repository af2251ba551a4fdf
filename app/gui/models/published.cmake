# Compiles the results of assets/published/*.json into a C++ table, so that they need no installed files and no JSON
# reader. The table has what the plane draws: results of a draft LM head with tau, without their tasks and without the
# papers' other tables. Absent members become std::nullopt.

function(ds_text_member out row name)
    string(JSON value ERROR_VARIABLE absent GET "${row}" ${name})
    if(absent)
        set(value "")
    endif()
    set(${out} "R\"ds(${value})ds\"" PARENT_SCOPE)
endfunction()

function(ds_number_member out row name)
    string(JSON value ERROR_VARIABLE absent GET "${row}" ${name})
    if(absent)
        set(value "std::nullopt")
    endif()
    set(${out} "${value}" PARENT_SCOPE)
endfunction()

function(ds_derived_member out row)
    set(text "")
    string(JSON count ERROR_VARIABLE absent LENGTH "${row}" derived)
    if(NOT absent AND count GREATER 0)
        math(EXPR last "${count} - 1")
        foreach(i RANGE ${last})
            string(JSON value GET "${row}" derived ${i})
            list(APPEND text "${value}")
        endforeach()
        list(JOIN text ", " text)
    endif()
    set(${out} "R\"ds(${text})ds\"" PARENT_SCOPE)
endfunction()

# The C++ initializer of one result, or "". `head` holds the members of its paper, `setups` the paper's setups.
function(ds_published_row out row head setups)
    set(${out} "" PARENT_SCOPE)
    string(JSON name GET "${row}" head)
    string(JSON tau ERROR_VARIABLE absent GET "${row}" tau)
    if(absent OR name STREQUAL "none")
        return()
    endif()
    string(JSON key GET "${row}" setup)
    string(JSON setup GET "${setups}" ${key} text)
    string(JSON label GET "${setups}" ${key} label)
    string(JSON target GET "${row}" target)
    if(label)
        string(APPEND target ", ${label}")
    endif()
    string(JSON kind GET "${row}" kind)
    string(JSON tau_kind ERROR_VARIABLE absent GET "${row}" tau_kind)
    if(absent)
        set(tau_kind ${kind})
    endif()
    set(text "    {${head}")
    ds_text_member(value "${row}" head)
    string(APPEND text "${value}, ")
    ds_text_member(value "${row}" config)
    string(APPEND text "${value}, R\"ds(${target})ds\", R\"ds(${setup})ds\", ")
    ds_text_member(value "${row}" source)
    string(APPEND text "${value}, ")
    ds_derived_member(value "${row}")
    string(APPEND text "${value}, \"${kind}\", \"${tau_kind}\"")
    foreach(name tau rho_tau nu speedup_vs_ar speedup_vs_full kappa)
        ds_number_member(value "${row}" ${name})
        string(APPEND text ", ${value}")
    endforeach()
    set(${out} "${text}},\n" PARENT_SCOPE)
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
        string(JSON setups GET "${json}" setups)
        string(JSON results GET "${json}" results)
        string(JSON count LENGTH "${results}")
        math(EXPR last "${count} - 1")
        foreach(i RANGE ${last})
            # Every call parses its whole text: a row is taken out once.
            string(JSON row GET "${results}" ${i})
            ds_published_row(text "${row}" "${head}" "${setups}")
            string(APPEND rows "${text}")
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
