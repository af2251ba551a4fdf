#pragma once

namespace draftscope::storage {

/// CREATE TABLE statements for the tables of a Nsight Systems export that we fill. Columns and their order
/// are those of schema 3.16.1. The tables have no STRICT and no indexes, since scripts look up the columns.
extern const char* const nsys_base_sql;  ///< always created: strings, ranges, process, session, enumerations
extern const char* const nsys_kernel_sql;  ///< activity tables are created only if they have rows
extern const char* const nsys_memcpy_sql;
extern const char* const nsys_memset_sql;
extern const char* const nsys_graph_sql;
extern const char* const nsys_runtime_sql;
extern const char* const nsys_gpu_sql;

}  // namespace draftscope::storage
