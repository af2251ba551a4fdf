#pragma once

namespace draftscope::storage {

/// CREATE TABLE statements of a Nsight Systems export (columns of schema 3.16.1, in its order), for the
/// tables that we fill: no STRICT, no indexes, since scripts look the columns up.
extern const char* const nsys_base_sql;    ///< strings, ranges, process, session, enumerations: always there
extern const char* const nsys_kernel_sql;  ///< the activity tables exist only when they have rows
extern const char* const nsys_memcpy_sql;
extern const char* const nsys_memset_sql;
extern const char* const nsys_graph_sql;
extern const char* const nsys_runtime_sql;
extern const char* const nsys_gpu_sql;

}  // namespace draftscope::storage
