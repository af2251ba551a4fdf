#pragma once

#include <string>

#include "app/gui/shell/display.h"

namespace draftscope {

/// Writes an 8-bit RGB PNG with one IDAT chunk. An existing file is replaced atomically.
Status write_png(const std::string& path, const Image& image);

}  // namespace draftscope
