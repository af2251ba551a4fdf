#pragma once

#include <string>

#include "app/gui/shell/backend.h"

namespace draftscope {

/// 8-bit RGB PNG (W3C PNG, one IDAT chunk). Overwrites; writes to a temporary name first.
Status write_png(const std::string& path, const Image& image);

}  // namespace draftscope
