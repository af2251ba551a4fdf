#pragma once

#include <string>
#include <string_view>

#include "base/result.h"

namespace draftscope::storage {

/// Columns that can hold what a user wrote or a model answered; exports without text leave them empty.
bool is_private_column(std::string_view table, std::string_view column);

/// Exports are written under a temporary name and renamed when whole. `out` must not exist.
Status check_new_file(const std::string& out);
std::string partial_name(const std::string& out);
Status publish(const std::string& partial, const std::string& out);

}  // namespace draftscope::storage
