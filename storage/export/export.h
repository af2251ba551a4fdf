#pragma once

#include <string>
#include <string_view>

#include "base/result.h"

namespace draftscope::storage {

/// Returns whether a column can hold text of a user or a model. Exports without text leave such columns
/// empty.
bool is_private_column(std::string_view table, std::string_view column);

/// Exports are written under a temporary name and renamed when complete. `out` must not exist.
Status check_new_file(const std::string& out);
std::string partial_name(const std::string& out);
Status publish(const std::string& partial, const std::string& out);

}  // namespace draftscope::storage
